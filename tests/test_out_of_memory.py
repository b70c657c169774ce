"""An allocation of Python's that fails at any moment of a capture leaves no trace of it."""

from __future__ import annotations

import gc

import pytest

import accelerator_graph as ag
from accelerator_graph import _lifetime, streams

testcapi = pytest.importorskip("_testcapi", reason="this Python can't fail to allocate")


@pytest.mark.skipif(
    not hasattr(testcapi, "set_nomemory"), reason="this Python can't make its allocations fail"
)
@pytest.mark.parametrize("how_many", [1, 4])
def test_allocations_that_fail_leave_no_trace(how_many):
    stream, log = ag.Stream(backend="cpu"), []
    graph = ag.Graph(stream=stream)

    def capture():
        with graph:
            stream.launch(log.append, 1)

    capture()
    gc.disable()
    at, failed = 0, True
    try:
        while failed or at < 200:
            at += 1
            graph.reset()
            try:
                testcapi.set_nomemory(at, at + how_many)
                try:
                    capture()
                finally:
                    testcapi.remove_mem_hooks()
                failed = False
            except (MemoryError, RuntimeError):  # "can't allocate lock"
                failed = True
            where = f"allocation {at} failed"
            assert stream._backend.capture_status(stream.native) == "none", where
            assert not _lifetime.captures, where
            assert not _lifetime.thread.capturing, where
            assert not streams._thread.stack, where
            assert (graph.state == "ready") is not failed, where
    finally:
        gc.enable()
    graph.replay()
    stream.synchronize()
    assert log == [1]
