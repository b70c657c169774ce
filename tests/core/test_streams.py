"""What streams do by themselves, whatever the backend."""

import gc
import weakref

import accelerator_graph as ag
from accelerator_graph.backends.cpu import CpuBackend


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
