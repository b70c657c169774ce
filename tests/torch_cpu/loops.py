"""Loops and branches of programs in torch, with its build for the CPU."""

from copy import deepcopy
from functools import partial

import pytest
import torch
from torch.nn.utils import parametrize

import accelerator_graph as ag

pytestmark = [pytest.mark.needs("torch"), pytest.mark.usefixtures("stream")]


def conjugate_gradient(a, b, tolerance=1e-3):
    """Solve ``a @ x = b``; return x and the number of iterations."""
    x, r, p = torch.zeros_like(b), b.clone(), b.clone()
    square = (r @ r).reshape(1)
    going = square > tolerance

    def body(x, r, p, square):
        image = a @ p
        step = square / (p @ image)
        x, r = x + step * p, r - step * image
        new = (r @ r).reshape(1)
        torch.gt(new, tolerance, out=going)
        return x, r, r + new / square * p, new

    loop = ag.while_(going, body, (x, r, p, square), limit=100)
    return x, loop


class Settling(torch.nn.Module):
    """Applies a layer until its result is small."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        state, going = x.clone(), torch.ones(1, dtype=torch.bool)

        def body(state):
            new = torch.tanh(self.layer(state)) * 0.9
            torch.gt(new.abs().max().reshape(1), 0.3, out=going)
            return new

        ag.while_(going, body, state, limit=50)
        return state * 2


def test_conjugate_gradient_has_the_bytes_of_its_eager_run(stream):
    root = torch.randn(32, 32)
    a, b = root @ root.T + 32 * torch.eye(32), torch.randn(32)
    graph, counts = ag.Graph(), []
    with graph:
        x, loop = conjugate_gradient(a, b)
    for scale in (1.0, 1e3, 0.0):
        b.copy_(torch.randn(32) * scale)
        graph.replay()
        stream.synchronize()
        expected, eager = conjugate_gradient(a, b)
        assert torch.equal(x, expected)
        assert loop.count == eager.count
        counts.append(loop.count)
    assert counts[2] == 0 < counts[0] < counts[1]


def test_a_module_with_a_loop(stream):
    net = Settling()
    with torch.no_grad():
        graphed = ag.graphed(net)
        for scale in (1.0, 0.01, 5.0, 1.0):
            x = torch.randn(4, 8) * scale
            assert torch.equal(graphed(x), net(x))
        assert ag.verify(net, x).verdict == "right"


def test_each_run_of_a_body_draws_new_random_numbers(stream):
    n, x = torch.tensor([3]), torch.ones(1000)

    def body(x):
        n.sub_(1)
        return torch.nn.functional.dropout(x, 0.5)

    with ag.Graph() as graph:
        ag.while_(n, body, x)
    left = []
    for _ in range(2):
        n.fill_(3)
        x.fill_(1)
        graph.replay()
        stream.synchronize()
        left.append(x.count_nonzero().item())
        assert x.max() == 8  # three times by two
    assert all(80 < each < 170 for each in left), left  # an eighth; one mask three times would leave half
    assert left[0] != left[1]


@pytest.mark.promise("control-casts")
@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("control", [ag.cond, ag.while_, None], ids=["cond", "while_", "none"])
@pytest.mark.parametrize("keeping", [partial(torch.autocast, "cpu", torch.bfloat16), parametrize.cached])
def test_what_torch_keeps_of_weights_stays_out_of_graphs_and_in_bodies(stream, control, breaks, keeping):
    layer, x, result = torch.nn.Linear(8, 8), torch.randn(2, 8), torch.zeros(2, 8)
    parametrize.register_parametrization(layer, "bias", torch.nn.Tanh())
    flag, graph = torch.zeros(1).bool(), ag.Graph()

    def body():
        result.copy_(layer(x))

    def change():
        for parameter in layer.parameters():
            parameter.normal_()

    with torch.no_grad(), keeping():
        layer(x)
        with ag.graph(graph, breaks=breaks):
            if control is not None:
                control(flag, body)
            body()
        change()
        assert torch.equal(layer(x), deepcopy(layer)(x))
        change()
    graph.replay()
    stream.synchronize()
    with torch.no_grad(), keeping():
        assert torch.equal(result, layer(x).float())


@pytest.mark.promise("control-gradients")
def test_no_gradients_pass_through_a_loop(stream):
    weight, n, x, graph = torch.ones(3, requires_grad=True), torch.tensor([2]), torch.ones(3), ag.Graph()

    def body(x):
        n.sub_(1)
        return x * weight

    for capture in (stream, graph):
        with (
            pytest.raises(
                ag.UnsupportedError,
                match=r"while_: result 0 of the body requires grad, and no gradients pass through a loop",
            ),
            capture,
        ):
            ag.while_(n, body, x)
    assert graph.state == "empty"
    with torch.no_grad(), graph:
        ag.while_(n, body, x)
    graph.replay()
