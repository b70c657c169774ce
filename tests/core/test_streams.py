"""What streams do by themselves, whatever the backend."""

import ctypes
import gc
import weakref
from array import array
from contextlib import nullcontext

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership
from accelerator_graph.backends.cpu import CpuBackend
from threads import in_thread


class Memory:
    """Something that can be referenced weakly."""


@pytest.mark.promise("memory-of-calls-is-kept")
def test_a_capture_keeps_what_goes_through_its_thread(monkeypatch):
    stream, other = ag.Stream(backend="cpu"), ag.Stream(backend="cpu")
    outer, inner = ag.Graph(stream=stream), ag.Graph(stream=other)
    kept = [Memory() for _ in range(6)]
    references = [weakref.ref(each) for each in kept]
    with outer:
        stream.launch(int)
        with inner:
            other.launch(int)
            for name in ("fill", "copy", "launch"):  # a backend that keeps nothing, as a driver does
                monkeypatch.setattr(CpuBackend, name, lambda self, stream, *args, **how: None)
            stream.fill(kept[0], 1)
            other.copy(kept[1], kept[2])
            stream.launch(kept[3], kept[4], out=kept[5])
            monkeypatch.undo()
    del kept
    gc.collect()
    assert all(reference() is not None for reference in references)
    inner.reset()
    gc.collect()
    assert all(reference() is not None for reference in references)
    outer.reset()
    gc.collect()
    assert all(reference() is None for reference in references)


def test_nothing_is_kept_outside_a_capture(monkeypatch):
    stream, memory = ag.Stream(backend="cpu"), Memory()
    reference = weakref.ref(memory)
    monkeypatch.setattr(CpuBackend, "fill", lambda self, stream, dst, value, nbytes: None)
    stream.fill(memory, 1)
    del memory
    assert reference() is None


def test_copies_and_fills_of_elements_as_bytes_are_refused_unless_the_bytes_are_counted():
    stream, two = ag.Stream(backend="cpu"), (ctypes.c_int32 * 2)(1, -1)
    floats, bools, data = array("f", [0, 0]), (ctypes.c_bool * 2)(), bytearray(8)
    for where in (nullcontext(), ag.Graph(stream=stream)):
        with where:
            with pytest.raises(
                TypeError, match="of dst are '<f4', those of src '<i4', and copies don't convert"
            ):
                stream.copy(floats, two)
            with pytest.raises(TypeError, match="would become 1, and an element of dst, '<f4', has 4 bytes"):
                stream.fill(floats, 1)
            stream.launch(int)
    stream.copy(floats, two, 8)
    stream.copy(data, two)
    stream.fill(bools, 1)
    stream.synchronize()
    assert (floats.tobytes(), data, [*bools]) == (bytes(two), bytes(two), [True, True])
    stream.copy(two, bytes(4))
    stream.fill(floats, 0)
    stream.synchronize()
    assert ([*two], [*floats]) == ([0, -1], [0, 0])


CALLS = {
    "fill": lambda stream, other: stream.fill(bytearray(1), 1),
    "copy": lambda stream, other: stream.copy(bytearray(1), bytes(1)),
    "launch": lambda stream, other: stream.launch(int),
    "query": lambda stream, other: stream.query(),
    "synchronize": lambda stream, other: stream.synchronize(),
    "record_event": lambda stream, other: stream.record(),
    "wait_event": lambda stream, other: stream.wait(other),
    "capture_status": lambda stream, other: stream.close(),
}


@pytest.mark.parametrize("method", CALLS)
def test_a_call_keeps_a_stream_that_another_thread_closes(monkeypatch, method):
    stream, other = ag.Stream(backend="cpu"), ag.Stream(backend="cpu")
    does, destroys = getattr(CpuBackend, method), CpuBackend.destroy_stream
    there, destroyed = {id(each._native) for each in (stream, other)}, []

    def close(backend, *args, **how):
        monkeypatch.setattr(CpuBackend, method, does)

        def close_both():
            stream.close()
            other.close()

        in_thread(close_both)
        used = {id(each) for each in args} & there
        assert used
        assert used.isdisjoint(destroyed)
        return does(backend, *args, **how)

    def destroy(backend, native):
        destroyed.append(id(native))
        destroys(backend, native)

    monkeypatch.setattr(CpuBackend, method, close)
    monkeypatch.setattr(CpuBackend, "destroy_stream", destroy)
    CALLS[method](stream, other)
    ownership.drain()
    assert set(destroyed) >= there
