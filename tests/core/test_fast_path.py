"""The fast path in the library: taken where it can be, and never missed where it can't."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from lanes import lack
from processes import execute
from simulators.cuda.build import environment

TIMEOUT = 120
SWITCH = "ACCELERATOR_GRAPH_PURE_PYTHON"

SCRIPT = """
import ctypes
import accelerator_graph as ag

stream = ag.Stream(backend="cuda")
memory = (ctypes.c_ubyte * 4)()
graph = ag.Graph(keep_graph=True)
with stream, graph:
    stream.fill(memory, 1)
bound = graph.bind(stream)
for replay in (bound, graph.replay):
    memory[:] = bytes(4)
    replay()
    stream.synchronize()
    assert bytes(memory) == b"\\1" * 4
print(type(bound).__name__, getattr(bound, "target", None) is not None)
graph.instantiate()
bound()
print(getattr(bound, "target", None) is not None)

class Array:
    pass

array = graph.watch(Array())
bound()
stream.synchronize()
del array
memory[:] = bytes(4)
for replay in (bound, graph.replay, graph.bind(stream)):
    try:
        replay()
    except ag.GraphStateError as error:
        assert "gone" in str(error)
    else:
        raise AssertionError("a replay used memory that is gone")
stream.synchronize()
assert bytes(memory) == bytes(4)
graph.reset()
print(getattr(bound, "target", None) is not None)
try:
    bound()
except ag.GraphStateError as error:
    print(error)
"""


@pytest.mark.parametrize("pure", ["", "1"], ids=["in C", "in Python"])
def test_bound_replays(software_driver: Path, pure: str) -> None:
    if not pure and importlib.util.find_spec("accelerator_graph._core._fast") is None:
        lack("the fast path was not built")
    done = execute(
        [sys.executable, "-c", SCRIPT], env={**environment(software_driver), SWITCH: pure}, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    first, made_anew, after_reset, refused = done.stdout.splitlines()
    assert first == ("method False" if pure else "Launcher True")
    assert made_anew == str(not pure)
    assert after_reset == "False"
    assert "was reset" in refused
