"""Why nodes are not changed on HIP: what AMD's runtime does with the bare calls."""

from ctypes import byref
from pathlib import Path

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership
from accelerator_graph.backends._hip.node import _FillParameters
from backends.hip.bench import call, nodes_of

pytest_plugins = ["backends.hip.fixtures"]
pytestmark = pytest.mark.usefixtures("no_error_left")

CHANGES = 20_000


class Fill:
    """A graph of one fill, kept, with an executable; and the fill's parameters."""

    def __init__(self, stream, block):
        self.stream = ag.Stream(backend="hip", like=stream)
        self.graph = ag.Graph(keep_graph=True, stream=self.stream)
        with self.graph:
            self.stream.fill(block, 1)
        self.graph.instantiate()
        (self.node,) = nodes_of(self.graph.raw_graph())
        self.params = _FillParameters()
        call("hipGraphMemsetNodeGetParams", self.node, byref(self.params))

    def change(self, value):
        self.params.value = value
        executable = self.graph.raw_executable()
        call("hipGraphExecMemsetNodeSetParams", executable, self.node, byref(self.params))


@pytest.fixture
def fill(runtime, stream, block):
    fill = Fill(stream, block)
    yield fill
    fill.graph.reset()
    fill.stream.close()


def resident():
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


@pytest.mark.promise("no-node-changes-on-hip")
def test_nodes_are_not_changed(fill):
    (node,) = fill.graph.describe().nodes
    assert node.settable == ()
    with pytest.raises(ag.UnsupportedError, match="backend 'hip' can't change nodes of an executable"):
        fill.graph.set_node(0, value=2)


def test_a_run_that_is_under_way_is_right(fill, block, gate):
    for value in range(50):
        fill.change(value)
        gate.close(fill.stream.native)
        fill.graph.replay()
        fill.change(255)
        gate.open()
        fill.stream.synchronize()
        assert block.read()[0] == value


def test_every_change_takes_memory_until_the_executable_goes(fill):
    """Once this fails since nothing is taken, nodes can be changed on HIP: see docs/decisions/replays.md."""
    fill.change(1)
    before = resident()
    for value in range(CHANGES):
        fill.change(value % 256)
    taken = resident() - before
    assert taken > CHANGES * 100
    fill.graph.reset()
    ownership.drain()
    assert resident() < before + taken / 2
