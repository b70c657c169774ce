"""Changes of nodes of graphs that torch records: stand-ins on the software driver (see tests/simulators)."""

import lanes

pytestmark = lanes.require("software_cuda")

import accelerator_graph as ag
from interop.scene import Array, captured, clean_fixture, torch_fixture, value  # noqa: F401


def test_a_node_that_torch_recorded_is_changed(torch):
    x = Array()
    graph = captured(ag.Graph(keep_graph=True), lambda: torch.fill(x, 5))
    bound = graph.bind()
    graph.replay()
    for number in (6, 7):  # through torch, and around it
        graph.set_node(0, value=number)
        bound()
        assert value(x) == number
        graph.replay()
        assert value(x) == number
    assert graph.describe().nodes[0].changed == ("value",)
    graph.instantiate()
    graph.replay()
    assert value(x) == 5
