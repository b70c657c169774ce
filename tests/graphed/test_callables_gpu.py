"""`make_graphed_callables` on a GPU: equal to eager, and beside torch's own."""

import copy
import gc
import re
import warnings

import pytest

import accelerator_graph as ag
import lanes
from graphed.functions import microseconds

pytestmark = [
    lanes.require("gpu", "torch"),
    # torch's own, in the threads of its own that compute gradients
    pytest.mark.filterwarnings("ignore:The AccumulateGrad"),
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),
]
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("torch has no GPU", allow_module_level=True)

inputs = "copy"


def make(*args, **options):
    return ag.make_graphed_callables(*args, **{"inputs": inputs, **options})


@pytest.fixture(autouse=True, params=["copy", "node"])
def ways(request, monkeypatch):
    monkeypatch.setitem(globals(), "inputs", request.param)


@pytest.fixture(autouse=True)
def initialised():
    torch.cuda.init()
    torch.manual_seed(1)
    before = torch.cuda.current_stream().cuda_stream
    yield
    assert torch.cuda.current_stream().cuda_stream == before
    assert not torch.cuda.is_current_stream_capturing()
    torch.cuda.synchronize()
    gc.collect()


def net(*more):
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 64), torch.nn.ReLU(), *more, torch.nn.Linear(64, 8)
    return torch.nn.Sequential(*layers).cuda()


def x_of(n=32, grad=False):
    return torch.randn(n, 64, device="cuda", requires_grad=grad)


def close(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def grads(module):
    return [p.grad for p in module.parameters()]


def train(modules, optimizers, steps=6, accumulate=1, to_none=True):
    for _ in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=to_none)
        for _ in range(accumulate):
            x, y, losses = x_of(), torch.randn(32, 8, device="cuda"), []
            for module in modules:
                losses.append(torch.nn.functional.mse_loss(module(x), y))
                losses[-1].backward()
            close(losses[:1], losses[1:])
        close(*map(grads, modules))
        for optimizer in optimizers:
            optimizer.step()
    close(*(list(module.parameters()) for module in modules))


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("where", ["default", "torch", "ours"])
def test_training_is_equal_to_eager(accumulate, to_none, where):
    stream = {
        "default": torch.cuda.default_stream,
        "torch": torch.cuda.Stream,
        "ours": lambda: ag.Stream(backend="cuda"),
    }[where]()
    theirs = net(torch.nn.LayerNorm(64))
    ours = copy.deepcopy(theirs)
    torch.cuda.synchronize()
    with stream if where == "ours" else torch.cuda.stream(stream):
        make(ours, (x_of(),))
        optimizers = [torch.optim.Adam(module.parameters()) for module in (ours, theirs)]
        train((ours, theirs), optimizers, accumulate=accumulate, to_none=to_none)


def test_it_runs_on_the_stream_that_is_current():
    theirs = net()
    ours = make(copy.deepcopy(theirs), (x_of(),))
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (ours, theirs)]
    for stream in (torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(3))):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            train((ours, theirs), optimizers, steps=2)
        torch.cuda.current_stream().wait_stream(stream)


def test_calls_on_two_streams_wait_for_each_other():
    n = 1 << 22
    f = make(lambda x: x.sin().cos().mul(2).sin(), (torch.zeros(n, device="cuda"),))
    streams = [torch.cuda.Stream() for _ in range(2)]
    xs = [torch.full((n,), float(i), device="cuda") for i in range(8)]
    want = [x.sin().cos().mul(2).sin() for x in xs]
    torch.cuda.synchronize()
    found = []
    with torch.no_grad():
        for i, x in enumerate(xs):
            with torch.cuda.stream(streams[i % 2]):
                found.append(f(x).clone())  # read before the next call, which is on the other stream
            streams[(i + 1) % 2].wait_stream(streams[i % 2])
    torch.cuda.synchronize()
    close(found, want)


def test_a_chain_of_callables_and_an_unused_output():
    theirs = [net(), torch.nn.LSTM(8, 64).cuda(), torch.nn.Linear(64, 8).cuda()]
    ours = [copy.deepcopy(each) for each in theirs]
    samples = (x_of(),), (torch.randn(32, 8, device="cuda", requires_grad=True),), (x_of(grad=True),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of cuDNN's about the copied weights
        make(tuple(ours), samples)
        for _ in range(3):
            x = x_of()
            for first, middle, last in (ours, theirs):
                last(middle(first(x))[0]).square().mean().backward()
            for one, other in zip(ours, theirs, strict=True):
                close(grads(one), grads(other))


def test_dropout_draws_anew_and_backward_has_the_same_mask():
    f = make(torch.nn.functional.dropout, (torch.ones(1000, device="cuda", requires_grad=True),))
    masks = []
    for _ in range(6):
        x = torch.ones(1000, device="cuda", requires_grad=True)
        y = f(x)
        y.backward(torch.ones_like(y))
        assert torch.equal(x.grad, y)
        masks.append(y.detach().clone())
    assert not any(torch.equal(a, b) for i, a in enumerate(masks) for b in masks[:i])


def test_attention_with_dropout():
    def f(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    shape = (2, 4, 64, 64)
    sample = [torch.randn(shape, device="cuda", dtype=torch.half, requires_grad=True) for _ in range(3)]
    g = make(f, tuple(sample))
    found = []
    for _ in range(4):
        tensors = [x.detach().clone().requires_grad_() for x in sample]
        y = g(*tensors)
        y.sum().backward()
        assert all(x.grad.isfinite().all() for x in tensors)
        found.append(y.detach().clone())
    assert not any(torch.equal(a, b) for i, a in enumerate(found) for b in found[:i])


def test_the_random_numbers_are_torchs_own():
    """The random numbers are those of torch's graphs with the same seed."""
    found = []
    for maker in (make, torch.cuda.make_graphed_callables):
        f = maker(torch.nn.functional.dropout, (torch.ones(1000, device="cuda", requires_grad=True),))
        torch.manual_seed(7)
        found.append(
            [f(torch.ones(1000, device="cuda", requires_grad=True)).detach().clone() for _ in range(3)]
        )
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_autocast():
    module = net()
    with torch.autocast("cuda"), pytest.raises(RuntimeError, match="cache_enabled=False"):
        make(module, (x_of(),))
    with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
        make(module, (x_of(),))
        y = module(x_of())
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()


def test_what_can_not_be_captured_leaves_no_trace():
    def f(x):
        return x * x.sum().item()

    modules = net(), f
    before = torch.cuda.memory_allocated()
    with pytest.raises(ag.CaptureError) as raised:
        make(modules, ((x_of(),), (x_of(grad=True),)))
    assert any(
        re.search(r"callable 1 \(.*f\): this was the capture", note) for note in raised.value.__notes__
    )
    del raised
    gc.collect()
    assert "forward" not in vars(modules[0])
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before + (64 << 20)  # of cuBLAS
    make(net(), (x_of(),))(x_of()).sum().backward()


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        (lambda: (torch.randn(3),), TypeError, "argument 0 is in host memory"),
        (lambda: (1.0,), TypeError, "sample argument 0"),
    ],
)
def test_what_is_refused(args, error, words):
    with pytest.raises(error, match=words):
        make(lambda x: x * 2, args())
    with pytest.raises(TypeError, match=r"parameter '0\.weight' is in host memory"):
        make(net().cpu(), (x_of(),))


def test_in_somebodys_capture():
    f = make(net(), (x_of(),))
    x, g = x_of(), ag.Graph()
    with pytest.raises(ag.CaptureError), torch.no_grad(), ag.graph(g):
        f(x)
    with torch.no_grad():
        f(x)


def test_the_graphs_go_with_the_callable():
    torch.cuda.synchronize()

    def once():
        module = make(net(), (x_of(1 << 16),))
        module(x_of(1 << 16)).sum().backward()

    once()
    sizes = []
    for _ in range(3):
        gc.collect()
        ag.Stream(backend="cuda").synchronize()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        sizes.append(torch.cuda.memory_reserved())
        once()
    assert sizes[2] <= sizes[1], sizes


class Block(torch.nn.Module):
    """Layers so small that only the host's time counts."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(8))

    def forward(self, x, y):
        for layer in self.layers:
            x = torch.relu(layer(x)) + y
        return x


def test_host_time_beside_torchs_own(capsys):
    blocks = {"eager": Block().cuda()}
    sample = [torch.randn(16, 16, device="cuda") for _ in range(4)]
    blocks["torch.cuda"] = torch.cuda.make_graphed_callables(
        copy.deepcopy(blocks["eager"]), tuple(sample[:2])
    )
    blocks["ours"] = make(copy.deepcopy(blocks["eager"]), tuple(sample[2:]))
    x, y = torch.randn(16, 16, device="cuda"), torch.randn(16, 16, device="cuda")
    ones = torch.ones(16, 16, device="cuda")
    figures = {}
    for name, block in blocks.items():
        figures[name, "forward"] = microseconds(lambda block=block: block(x, y), 200)

        def both(block=block):
            block(x, y).backward(ones)
            for p in block.parameters():
                p.grad = None

        figures[name, "forward and backward"] = microseconds(both, 100)
        with torch.no_grad():
            figures[name, "forward, no_grad"] = microseconds(lambda block=block: block(x, y), 500)
    with capsys.disabled():
        for (name, what), value in figures.items():
            print(f"\n  {name}, {what}: {value:.2f} us", end="")
        print()
    for what in ("forward", "forward, no_grad"):
        assert figures["ours", what] <= figures["torch.cuda", what] + 2, figures
    assert figures["ours", "forward"] <= figures["eager", "forward"] / 3, figures
