"""An allocation of Python's that fails at any moment of a capture leaves no trace of it.

In a process of its own: Python itself can leave a lock taken when ``with lock:`` runs out of memory.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

import accelerator_graph as ag
from accelerator_graph._core import capture_table, ownership, stream_stack
from processes import execute

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("how_many", [1, 4])
def test_allocations_that_fail_leave_no_trace(how_many):
    if sys.version_info >= (3, 12):
        pytest.skip("Python 3.12 itself crashes where it can't make a cell")
    testcapi = pytest.importorskip("_testcapi", reason="this Python can't make its allocations fail")
    if not hasattr(testcapi, "set_nomemory"):
        pytest.skip("this Python can't make its allocations fail")
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    done = execute([sys.executable, __file__, str(how_many)], env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) >= 300


def main(how_many: int) -> None:
    """Let so many allocations fail, the first one later at each turn; print how often."""
    import _testcapi

    stream, log = ag.Stream(backend="cpu"), []
    graph = ag.Graph(stream=stream)

    def capture():
        with graph:
            stream.launch(log.append, 1)

    capture()
    gc.disable()
    at, failed = 0, True
    while failed or at < 300:
        at += 1
        graph.reset()
        try:
            _testcapi.set_nomemory(at, at + how_many)
            try:
                capture()
            finally:
                _testcapi.remove_mem_hooks()
            failed = False
        except (MemoryError, RuntimeError, SystemError):  # "can't allocate lock"; of a frame
            failed = True
        where = f"allocation {at} failed"
        assert stream._backend.capture_status(stream.native) == "none", where
        assert not capture_table.live, where
        assert not capture_table.thread.graphs, where
        assert not stream_stack.thread.entries, where
        possible = {"ready"} if not failed else {"empty"} if how_many == 1 else {"empty", "ready"}
        assert graph.state in possible, where
        ownership.Callback(id, None)
        try:
            _testcapi.set_nomemory(at, at + 1)
            ownership.drain()
        finally:
            _testcapi.remove_mem_hooks()
    graph.replay()
    stream.synchronize()
    assert log == [1]
    print(at)


if __name__ == "__main__":
    main(int(sys.argv[1]))
