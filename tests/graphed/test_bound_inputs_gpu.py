"""`graphed` with inputs that are not copied, for models of torch, kernels of CuPy and Triton: on a GPU."""

from __future__ import annotations

import gc
import random
import re
import warnings
from itertools import pairwise

import pytest

import accelerator_graph as ag
import lanes

pytestmark = lanes.require("gpu", "torch")
torch = pytest.importorskip("torch")
functional = torch.nn.functional

MODES = ("node", "bind")
CALLS = 400
WARMUP = 2
OFFSETS = (0, 0, 0, 512, 128, 16, 1)
"""In elements."""


@pytest.fixture(autouse=True)
def initialised():
    torch.cuda.init()
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    yield
    torch.cuda.synchronize()


class Block(torch.nn.Module):
    """A layer of a transformer."""

    def __init__(self, width=256, heads=4):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width) for _ in range(2)])
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


def convolution(channels):
    return torch.nn.Conv2d(channels, channels, 3, padding=1)


class Residual(torch.nn.Module):
    """A block of a ResNet, in evaluation mode."""

    def __init__(self, channels=32):
        super().__init__()
        self.convs = torch.nn.ModuleList([convolution(channels) for _ in range(2)])
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(channels) for _ in range(2)])

    def forward(self, x):
        y = functional.relu(self.norms[0](self.convs[0](x)))
        return functional.relu(x + self.norms[1](self.convs[1](y)))


def bf16(module):
    return module.to(device="cuda", dtype=torch.bfloat16).eval()


def transformer():
    net = bf16(torch.nn.Sequential(Block(), Block()))
    return net, [((2, 64, 256), torch.bfloat16)]


def resnet():
    net = Residual().cuda().eval()
    return net, [((4, 32, 16, 16), torch.float32)]


def perceptron():
    layers = torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)
    net = torch.nn.Sequential(*layers).cuda()
    return (lambda x, y: net(x) + y), [((128, 512), torch.float32), ((128, 64), torch.float32)]


def large_product():
    weight = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    return (lambda x: x @ weight), [((2048, 2048), torch.bfloat16)]


def batched_product():
    return (lambda x, y: torch.bmm(x, y)), [((8, 64, 64), torch.bfloat16)] * 2


def embedding():
    table = torch.nn.Embedding(1000, 128).cuda()
    return (lambda index, x: table(index) * x), [((64,), torch.int64), ((64, 128), torch.float32)]


def scatter():
    def function(x, index):
        return torch.zeros(256, device="cuda").scatter_(0, index, x)

    return function, [((256,), torch.float32), ("permutation", torch.int64)]


def sort():
    return (lambda x: torch.sort(x)), [((5000,), torch.float32)]


def reductions():
    return (lambda x: (x.sum(), x.softmax(-1), x.cumsum(0), x.std(1))), [((64, 512), torch.float32)]


def cat_and_clone():
    return (lambda x, y: torch.cat([x.clone(), y[1:], x[:5]])), [((64, 32), torch.float32)] * 2


def foreach():
    weights = [torch.randn(33, device="cuda") for _ in range(64)]

    def function(*xs):
        return torch._foreach_add(torch._foreach_mul(list(xs), weights), 1.0)

    return function, [((33,), torch.float32)] * 64


def foreach_in_place():
    def function(*xs):
        torch._foreach_mul_(list(xs), 0.5)
        return xs[0].sum()

    return function, [((33,), torch.float32)] * 110


def in_place():
    def function(x, y):
        x.mul_(2).add_(y)
        y[0] = 0
        return x.sum(1)

    return function, [((64, 64), torch.float32), ((64, 64), torch.float32)]


def autocast():
    net = torch.nn.Linear(256, 256).cuda()

    def function(x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return net(x)

    return function, [((64, 256), torch.float32)]


def fft():
    return (lambda x: torch.fft.rfft(x).abs()), [((16, 1024), torch.float32)]


MODELS = [
    *(transformer, resnet, perceptron, large_product, batched_product, embedding, scatter, sort, reductions),
    *(cat_and_clone, foreach, foreach_in_place, in_place, autocast, fft),
]
UNBOUND = {
    "fft": "its kernels may have descriptors that no parameter shows",
    "foreach": "its tables have bytes that nobody has set",
    "foreach_in_place": "its tables have bytes that nobody has set",
}
"""Models of which it is not said that nothing is copied."""


def fresh(draw, shape, dtype, offsets):
    """Return a tensor with other contents, some elements behind the beginning of its memory."""
    if shape == "permutation":
        return torch.randperm(256, device="cuda")
    if dtype is torch.int64:
        return torch.randint(1, 1000, shape, device="cuda")
    size = torch.Size(shape).numel()
    offset = draw.choice(offsets)
    return torch.randn(size + offset, device="cuda").to(dtype)[offset:].view(shape)


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [each for part in value for each in tensors_in(part)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_a_model_is_equal_to_eager(make, mode):
    function, inputs = make()
    unbound = make.__name__ in UNBOUND
    draw = random.Random(f"{make.__name__} {mode}")
    f = ag.graphed(function, warmup=WARMUP, inputs=mode, outputs=draw.choice(["copy", "static"]))
    noise, given = [], []
    with torch.no_grad(), warnings.catch_warnings():
        if unbound:
            warnings.simplefilter("ignore", RuntimeWarning)
        for i in range(CALLS):
            if i % 7 == 0:  # so that allocations lie elsewhere
                sizes = [draw.randrange(1, 9000) for _ in range(4)]
                noise = [torch.full((size,), float("nan"), device="cuda") for size in sizes]
            if i % 5 != 4:
                offsets = OFFSETS if i >= WARMUP else (0,)  # torch takes other kernels for odd addresses
                given = [fresh(draw, *each, offsets) for each in inputs]
            other = [x.clone() for x in given]
            want = [x.clone() for x in tensors_in(function(*other))]
            got = tensors_in(f(*given))
            for x, y in zip([*got, *given], [*want, *other], strict=True):
                assert torch.equal(x, y), i
    assert f.cache_info().captures == 1
    (explained,) = f.explain()
    if mode != "node" and not unbound:
        assert (explained.inputs, explained.why) == ("bind", "")
    del noise


@pytest.mark.promise("proof-restores-the-state")
@pytest.mark.parametrize("mode", MODES)
def test_dropout_draws_the_numbers_of_eager_runs(mode):
    f = ag.graphed(lambda x: functional.dropout(x) * 2, warmup=1, inputs=mode)
    masks = []
    for _ in range(50):
        x = torch.ones(1000, device="cuda")
        masks.append(f(x))
        assert set(masks[-1].tolist()) == {0.0, 4.0}
    assert not any(torch.equal(one, other) for one, other in pairwise(masks))


@pytest.mark.parametrize("mode", MODES)
def test_a_training_step(mode):
    def make():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
        opt = torch.optim.SGD(net.parameters(), lr=0.05)

        def step(x, y):
            opt.zero_grad(set_to_none=False)
            loss = functional.mse_loss(net(x), y)
            loss.backward()
            opt.step()
            return loss

        return net, step

    (ours, step), (theirs, eager) = make(), make()
    step = ag.graphed(step, warmup=2, inputs=mode)
    for _ in range(60):
        x, y = torch.randn(32, 64, device="cuda"), torch.randn(32, 8, device="cuda")
        torch.testing.assert_close(step(x, y), eager(x, y).detach(), rtol=1e-4, atol=1e-5)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.filterwarnings("ignore:.*the function keeps a part of every dense argument:RuntimeWarning")
def test_recurrent_layers_draw_the_dropout_of_eager_runs(mode):
    """Its state is on the device, and torch makes another one after each change of the generator."""

    def make():
        torch.manual_seed(0)
        net = torch.nn.LSTM(8, 16, num_layers=2, dropout=0.3).cuda()

        def step(x):
            net.zero_grad(set_to_none=True)
            loss = net(x)[0].square().mean()
            loss.backward()
            return loss.detach()

        return net, step

    def losses(step):
        torch.manual_seed(5)
        return [step(torch.full((5, 3, 8), 0.1 * i, device="cuda")) for i in range(8)]

    wanted = losses(make()[1])
    assert torch.equal(torch.stack(losses(ag.graphed(make()[1], inputs=mode))), torch.stack(wanted))


def rate():
    return torch.tensor(0.1, device="cuda")


OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, foreach=True),
    "adam": lambda params: torch.optim.Adam(params, lr=rate(), foreach=True, capturable=True),
    "fused adam": lambda params: torch.optim.Adam(params, lr=rate(), fused=True, capturable=True),
    "adamw": lambda params: torch.optim.AdamW(params, lr=rate(), foreach=True, capturable=True),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.filterwarnings("ignore:.*copies its inputs:RuntimeWarning")
def test_steps_of_optimizers(name, mode):
    def make():
        torch.manual_seed(0)
        params = [torch.nn.Parameter(torch.randn(33, device="cuda")) for _ in range(40)]
        opt = OPTIMIZERS[name](params)

        def step(*grads):
            for param, grad in zip(params, grads, strict=True):
                param.grad = grad
            opt.step()

        return params, step

    (ours, step), (theirs, eager) = make(), make()
    step = ag.graphed(step, warmup=2, inputs=mode)
    for _ in range(12):
        grads = [torch.randn(33, device="cuda") for _ in range(40)]
        step(*grads)
        eager(*grads)
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one, other)
            assert torch.equal(one.grad, other.grad)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_that_are_used_between_calls(mode):
    """Each run of the Python code gives the parameters other gradients: those of the graph have to stay."""

    def make():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
        opt = torch.optim.SGD(net.parameters(), lr=0.05)

        def backward(x, y):
            opt.zero_grad(set_to_none=True)
            loss = functional.mse_loss(net(x), y)
            loss.backward()
            return loss

        return net, opt, backward

    (ours, our_opt, backward), (theirs, their_opt, eager) = make(), make()
    backward = ag.graphed(backward, warmup=2, inputs=mode)
    for _ in range(40):
        x, y = torch.randn(32, 64, device="cuda"), torch.randn(32, 8, device="cuda")
        torch.testing.assert_close(backward(x, y), eager(x, y).detach(), rtol=1e-4, atol=1e-5)
        our_opt.step(), their_opt.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert backward.explain()[0].inputs == mode


def test_nothing_is_copied():
    f = ag.graphed(lambda x, y: x * 2 + y, warmup=1, inputs="bind", outputs="static")
    given = [[torch.randn(1 << 24, device="cuda") for _ in range(2)] for _ in range(3)]
    f(*given[0]), f(*given[0])
    assert f.explain()[0].inputs == "bind"
    cuda = torch.profiler.ProfilerActivity.CUDA
    with torch.profiler.profile(activities=[cuda], acc_events=True) as profile:
        for pair in given:
            f(*pair)
        torch.cuda.synchronize()
    assert not [each.key for each in profile.key_averages() if re.search("copy|cpy", each.key, re.I)]


@pytest.mark.promise("dropped-arrays-outlive-runs")
def test_arrays_that_are_dropped_while_the_run_waits():
    """Each array is made on another stream than the run, so its memory would be used again at once."""
    side = torch.cuda.Stream()
    f = ag.graphed(lambda x: x * 2, warmup=1, inputs="bind", outputs="copy")
    f(torch.ones(1 << 16, device="cuda")), f(torch.ones(1 << 16, device="cuda"))
    results = []
    for i in range(50):
        with torch.cuda.stream(side):
            x = torch.full((1 << 16,), float(i), device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda._sleep(1_000_000)
        results.append(f(x))
        del x
        with torch.cuda.stream(side):
            taken = torch.full((1 << 16,), float("nan"), device="cuda")
    assert [set(each.tolist()) for each in results] == [{2.0 * i} for i in range(50)]
    del taken


def test_static_results_as_arguments():
    f = ag.graphed(lambda x: x.flip(0) + 1, warmup=1, inputs="bind", outputs="static")
    x = torch.arange(1000.0, device="cuda")
    f(x), f(x)
    want = y = x
    for _ in range(20):
        want, y = want.flip(0) + 1, f(y)
        assert torch.equal(y, want)


@pytest.mark.parametrize("start", [0, 8])
def test_a_kept_argument(start):
    kept = []

    def function(x, y):
        kept[:] = kept or [x[start:]]
        return kept[0] + y[start:]

    f = ag.graphed(function, warmup=0, inputs="bind")
    with pytest.warns(RuntimeWarning, match="copies its inputs for arguments like these"):
        f(torch.ones(512, device="cuda"), torch.ones(512, device="cuda"))
    assert f.explain()[0].inputs == "node"


def test_kernels_of_cupy():
    cupy = pytest.importorskip("cupy")
    kernel = cupy.RawKernel(
        'extern "C" __global__ void f(const double *x, double *y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }',
        "f",
    )

    def function(x):
        y = cupy.empty_like(x)
        kernel((1,), (x.size,), (x, y))
        return y + x.sum()

    with ag.Stream(backend="cuda"):
        f = ag.graphed(function, warmup=1, inputs="node")
        for i in range(100):
            x = cupy.arange(256.0) * i
            assert cupy.array_equal(f(x), function(x))
            del x
        assert f.explain()[0].inputs == "node"


@pytest.mark.parametrize("mode", ["copy", *MODES])
def test_arrays_of_two_libraries_that_share_memory(mode):
    cupy = pytest.importorskip("cupy")

    def function(x, y):
        return x * 2, cupy.sin(y) + 1

    with ag.Stream(backend="cuda"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        f = ag.graphed(function, warmup=1, inputs=mode)
        for i in range(40):
            memory = torch.randn(4096, device="cuda")
            x = memory[:1024]
            start = 0 if i % 3 == 1 else 512 if i % 3 == 2 else 2048
            y = cupy.from_dlpack(memory)[start : start + 1024]
            want = function(x, y)
            got = f(x, y)
            assert torch.equal(got[0], want[0])
            assert cupy.array_equal(got[1], want[1])
            del memory, x, y


def test_kernels_of_triton():
    triton = pytest.importorskip("triton")
    import triton.language as tl

    @triton.jit
    def double(x, y, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(y + offsets, 2 * value, mask=offsets < n)

    def function(x):
        y = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
        return y

    f = ag.graphed(function, warmup=1, inputs="bind")
    for _ in range(100):
        x = torch.randn(1000, device="cuda")
        assert torch.equal(f(x), 2 * x)
    assert f.explain()[0].inputs == "bind"


def test_ten_thousand_patches_take_no_memory():
    f = ag.graphed(lambda x, y: x @ y, warmup=1, inputs="bind", outputs="static")
    given = [torch.randn(64, 64, device="cuda") for _ in range(4)]
    for i in range(100):
        f(given[i % 4], given[(i + 1) % 4])
    torch.cuda.synchronize()
    gc.collect()
    free = torch.cuda.mem_get_info()[0]
    for i in range(10_000):
        f(given[i % 4], given[(i + 1) % 4])
    torch.cuda.synchronize()
    assert free - torch.cuda.mem_get_info()[0] < 4 << 20
