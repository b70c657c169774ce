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


def decoder():
    """Greedy decoding with a cache of keys, which is written at an index, until a token or the end."""
    embed, key, head = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 20)

    def decode(start):
        tokens, keys = torch.zeros(16, dtype=torch.long), torch.zeros(16, 8)
        tokens[:1] = start
        at, going = torch.zeros(1, dtype=torch.long), torch.ones(1, dtype=torch.bool)

        def step():
            x = embed(tokens.index_select(0, at))
            keys.index_copy_(0, at, key(x))
            seen = (x @ keys.T).masked_fill(torch.arange(16) > at, -torch.inf)
            token = head(seen.softmax(1) @ keys).argmax(1)
            at.add_(1)
            tokens.index_copy_(0, at, token)
            torch.logical_and(token != 3, at < 15, out=going)

        ag.while_(going, step)
        return tokens, at

    return decode, [(torch.tensor([token]),) for token in (1, 7, 12)]


def adaptive_steps():
    """Steps of an oscillator that are accepted or tried again, shorter."""

    def solve(y, end):
        y, time, step, taken = (
            y.clone(),
            torch.zeros(()),
            torch.full((), 0.5),
            torch.zeros((), dtype=torch.long),
        )
        going = time < end

        def try_one():
            size = torch.minimum(step, end - time)
            slope = torch.stack((y[1], 5 * (1 - y[0] ** 2) * y[1] - y[0]))
            there = y + size * slope
            error = (size / 2 * (torch.stack((there[1], -there[0])) - slope)).norm() / 0.05

            def accept():
                y.copy_(there)
                time.add_(size)
                taken.add_(1)

            ag.cond(error < 1, accept, lambda: step.mul_(0.5))
            step.mul_(1.1)
            torch.lt(time, end - 1e-6, out=going)

        ag.while_(going, try_one, limit=500)
        return y, taken, step

    return solve, [(torch.tensor([2.0, 0.0]), torch.tensor(end)) for end in (0.3, 1.0, 0.0)]


def scaled_training():
    """A step of training that is left out if a gradient is not finite."""
    net, scale = torch.nn.Linear(4, 2), torch.full((), 4.0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for each in net.parameters():
        each.grad, optimizer.state[each]["momentum_buffer"] = torch.zeros_like(each), torch.zeros_like(each)

    def train(x):
        optimizer.zero_grad(set_to_none=False)
        with torch.enable_grad():
            (net(x).square().sum() * scale).backward()
        grads = [each.grad for each in net.parameters()]
        torch._foreach_div_(grads, scale)

        def step():
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            scale.mul_(2)

        ag.cond(torch.stack([each.isfinite().all() for each in grads]).all(), step, lambda: scale.mul_(0.5))
        return net.weight.detach().clone(), scale.clone()

    return train, [(torch.randn(3, 4) * factor,) for factor in (1, torch.inf, 2)]


@pytest.mark.parametrize("program", [decoder, adaptive_steps, scaled_training])
def test_whole_programs(stream, program):
    found = []
    for form in (lambda function: function, partial(ag.graphed, warmup=0)):
        torch.manual_seed(5)
        function, inputs = program()
        with torch.no_grad():
            called = form(function)
            results = [called(*given) for given in inputs * 2]
        stream.synchronize()
        found.append(torch.utils._pytree.tree_map(torch.clone, results))
    assert all(map(torch.equal, *map(torch.utils._pytree.tree_leaves, found)))
    with torch.no_grad():
        assert ag.verify(function, *inputs[0]).verdict == "right"


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
