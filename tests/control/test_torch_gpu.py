"""Loops and branches that the device tests, with torch's work in their bodies, on a GPU."""

import functools

import pytest

import lanes

pytestmark = lanes.require("gpu", "torch")
torch = pytest.importorskip("torch")

import accelerator_graph as ag
from accelerator_graph._core import ownership
from accelerator_graph.backends import registry
from backends.cuda.bench import need_conditions

SIDE = 64


@pytest.fixture(autouse=True)
def on_a_stream():
    need_conditions(registry.get("cuda"))
    torch.manual_seed(0)
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        square = torch.ones(SIDE, SIDE, device="cuda")
        torch.mm(square, square)  # has cuBLAS begin, which no capture bears
        yield
    torch.cuda.synchronize()


class Counted:
    """A loop around a function, that runs as often as a number on the device says."""

    def __init__(self, function, start=None, **how):
        self.function, self.how = function, how
        self.x = torch.ones(SIDE, SIDE, device="cuda") if start is None else start
        self.start = self.x.clone()
        self.left = torch.zeros(1, dtype=torch.int32, device="cuda")

    def body(self, x):
        y = self.function(x)
        self.left.sub_(1)
        return y

    def __call__(self):
        return ag.while_(self.left, self.body, carry=self.x, **self.how)

    def after(self, runs, work):
        self.x.copy_(self.start)
        self.left.fill_(runs)
        work()
        torch.cuda.synchronize()
        return self.x.clone()


def attention(x):
    half = x.half()[None, None]
    return torch.nn.functional.scaled_dot_product_attention(half, half, half)[0, 0].float()


@functools.cache
def side():
    return torch.cuda.Stream()


def forked(x):
    here = torch.cuda.current_stream()
    side().wait_stream(here)
    with torch.cuda.stream(side()):
        y = x * 3
        z = y + 1
        del y
    here.wait_stream(side())
    return x - z


@functools.cache
def pinned():
    return torch.arange(SIDE * SIDE, dtype=torch.float32).reshape(SIDE, SIDE).pin_memory()


BODIES = {
    "elementwise": lambda x: (x * 2 + 1).sin(),
    "reductions": lambda x: x.softmax(1) + x.cumsum(0) / SIDE + x.sort(1).values,
    "matmul": lambda x: x @ x / SIDE,
    "attention": attention,
    "another stream": forked,
    "a copy from the host": lambda x: x + pinned().to("cuda", non_blocking=True),
    "a loop": lambda x: nested(x),
    "a branch": lambda x: branched(x),
}


def nested(x):
    """Memory of the outer body is last used, and freed, at the top of the inner one."""
    left, outer = torch.full((1,), 2, dtype=torch.int32, device="cuda"), [x * 3]
    y = x.clone()

    def inner(y):
        new = y + outer[0]
        if torch.cuda.is_current_stream_capturing():
            outer.clear()
        junk = torch.full_like(y, 7.0)
        left.sub_(1)
        return new + junk - 7

    ag.while_(left, inner, carry=y)
    return y / 10


def branched(x):
    y = torch.empty_like(x)
    ag.cond(x.sum() > 0, lambda: y.copy_(x - 1), lambda: y.copy_(x + 2))
    return y


def is_native(graph):
    return graph.raw_cuda_graph() != 0  # several graphs of the driver have none


@pytest.mark.parametrize("what", BODIES)
def test_bodies_equal_eager_runs(what):
    loop = Counted(BODIES[what])
    wanted = {runs: loop.after(runs, loop) for runs in (3, 0, 1, 5)}
    graph = ag.Graph(keep_graph=True)
    with graph:
        recorded = loop()
    assert is_native(graph)
    for runs, each in wanted.items():
        assert torch.equal(loop.after(runs, graph.replay), each)
        assert recorded.count == runs


def test_memory_of_the_graph_outlives_the_body_that_frees_it():
    x, first = torch.zeros(SIDE, device="cuda"), torch.ones(SIDE, device="cuda")
    left = torch.zeros(1, dtype=torch.int32, device="cuda")
    graph, places = ag.Graph(), {}

    def body(x):
        y = x + of_parent.pop() if of_parent else x
        for n in range(8):
            places[n] = torch.full_like(x, 100.0 + n).data_ptr()
        left.sub_(1)
        return y

    with graph:
        of_parent = [first + 4]
        freed = of_parent[0].data_ptr()
        ag.while_(left, body, carry=x)
        places["behind"] = (x + 0).data_ptr()
    assert freed == places["behind"]
    assert freed not in [places[n] for n in range(8)]
    for _ in range(3):
        x.zero_()
        left.fill_(5)
        graph.replay()
        assert x.tolist() == [25.0] * SIDE


@pytest.mark.promise("control-random")
@pytest.mark.parametrize("which", ["default", "given"])
def test_random_numbers_in_a_body(which):
    generator = torch.Generator("cuda") if which == "given" else None
    ours = generator or torch.cuda.default_generators[0]

    def draw(x):
        return x + torch.rand(SIDE, SIDE, device="cuda", generator=generator)

    loop, graph = Counted(draw), ag.Graph()
    if generator:
        graph.register_generator_state(generator)
    with pytest.raises(ag.CaptureError, match="draws random numbers of torch"), graph:
        loop()
    loop = Counted(draw, native=False)
    ours.manual_seed(3)
    wanted = [loop.after(runs, loop) for runs in (3, 0, 2)]
    ours.manual_seed(3)
    with graph:
        loop()
    assert all(
        torch.equal(loop.after(n, graph.replay), each) for n, each in zip((3, 0, 2), wanted, strict=True)
    )


def test_random_numbers_around_a_loop():
    loop, graph = Counted(lambda x: x + 1), ag.Graph()

    def work():
        first = torch.rand(SIDE, device="cuda")
        loop()
        return first, torch.rand(SIDE, device="cuda")

    with graph:
        results = work()
    seen = set()
    for _ in range(2):
        assert torch.equal(loop.after(2, graph.replay), loop.start + 2)
        seen.update(tuple(each.tolist()) for each in results)
    assert len(seen) == 4


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("what", ["item", "nonzero"])
def test_a_body_that_a_call_breaks_leaves_nothing(what, deep):
    """The driver would end the process at the end of such a graph."""
    breaks = {"item": lambda x: x * x.sum().item(), "nonzero": lambda x: x + x.nonzero().sum()}[what]
    loop = Counted(breaks)
    if deep:
        loop = Counted(lambda x: Counted(breaks, x)() and x)
    graph = ag.Graph()
    with pytest.raises(ag.CaptureError) as info, graph:
        loop()
    assert info.value.reason in ("illegal_call", "invalidated")
    assert len({*torch.rand(8, device="cuda").tolist()}) == 8  # eager calls draw as before
    graph.reset()
    loop = Counted(lambda x: x + torch.rand((), device="cuda") * 0 + 1, native=False)
    with graph:
        loop()
    assert torch.equal(loop.after(3, graph.replay), loop.start + 3)
    loop, other = Counted(lambda x: x * 2), ag.Graph()
    with other:
        loop()
    assert torch.equal(loop.after(3, other.replay), loop.start * 8)


def test_memory_of_bodies_comes_back():
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()

    def body(x):
        return x + torch.empty(1 << 26, device="cuda").fill_(1.0)[0]

    loop, graph = Counted(body), ag.Graph()
    with graph:
        loop()
    assert torch.equal(loop.after(2, graph.replay), loop.start + 2)
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() >= before + (256 << 20)
    graph.reset()
    ownership.drain()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before + (4 << 20)


def test_conjugate_gradient_stops_where_the_host_would_stop_it():
    n = 256
    draw = functools.partial(torch.randn, device="cuda", dtype=torch.float64)
    half, b = draw(n, n), draw(n)
    matrix = half @ half.T + n * torch.eye(n, device="cuda", dtype=torch.float64)
    going = torch.ones(1, dtype=torch.bool, device="cuda")
    state = [torch.empty_like(b) for _ in range(3)] + [torch.empty(1, device="cuda", dtype=torch.float64)]

    def body(x, r, p, square):
        product = matrix @ p
        step = square / (p @ product)
        r2 = r - step * product
        new = (r2 @ r2)[None]
        going.copy_(new > 1e-18)
        return x + step * p, r2, r2 + new / square * p, new

    def solve(**how):
        for each, start in zip(state, (torch.zeros_like(b), b, b, (b @ b)[None]), strict=True):
            each.copy_(start)
        going.fill_(True)
        return ag.while_(going, body, carry=tuple(state), limit=500, **how)

    found = []
    for how in ({}, {"native": False}):
        graph = ag.Graph()
        with graph:
            loop = solve(**how)
        graph.replay()
        torch.cuda.synchronize()
        found.append((loop.count, state[0].clone()))
    found.append((solve().count, state[0].clone()))
    assert len({count for count, _ in found}) == 1
    assert all(torch.equal(x, found[0][1]) for _, x in found)
    assert torch.allclose(matrix @ found[0][1], b)


def test_a_graphed_function_with_a_loop():
    @ag.graphed
    def power(x, left):
        y, left = x.clone(), left.clone()

        def body(y):
            left.sub_(1)
            return y * 2 + 1

        ag.while_(left, body, carry=y)
        return y

    x = torch.ones(SIDE, device="cuda")
    for runs in (3, 0, 7):
        found = power(x, torch.tensor([runs], device="cuda"))
        assert found.tolist() == [2.0 ** (runs + 1) - 1] * SIDE
