"""What streams do by themselves, whatever the backend."""

import gc
import weakref

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership
from accelerator_graph.backends.cpu import CpuBackend
from threads import in_thread


class Memory:
    """Something that can be referenced weakly."""


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
