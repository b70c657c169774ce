"""What the first capture of a process imports, and what its first replay asks the driver for."""

from backends.tools import python
from lanes import require
from test_imports import not_on_demand

pytestmark = require("cuda")

CAPTURE = """
import sys
from cuda.bindings import driver
before = set(sys.modules)
from accelerator_graph import Graph, Stream

stream = Stream(backend="cuda")
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
_, memory = driver.cuMemAlloc(64)
with Graph(stream=stream) as g:
    driver.cuMemsetD8Async(memory, 1, 64, stream.native)
captured = set(sys.modules)
g.replay()
stream.synchronize()
"""


def test_a_first_capture_imports_nothing_that_only_other_operations_use():
    loaded = python(f"{CAPTURE}print(*sorted(set(sys.modules) - before))").split()
    assert "accelerator_graph.backends.cuda" in loaded
    assert not_on_demand(loaded) == []


def test_a_first_replay_imports_nothing():
    assert python(f"{CAPTURE}print(*sorted(set(sys.modules) - captured))") == ""
