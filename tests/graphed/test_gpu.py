"""`graphed` over arrays of torch and CuPy, with results equal to eager ones: on a GPU, with what is there."""

from __future__ import annotations

import contextlib
import functools
import gc
import warnings
from dataclasses import dataclass

import pytest

import accelerator_graph as ag
import lanes
from graphed.functions import microseconds
from threads import in_threads

pytestmark = lanes.require("gpu", "torch")
torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def initialised():
    torch.cuda.init()
    torch.manual_seed(1)
    before = torch.cuda.current_stream().cuda_stream
    yield
    assert torch.cuda.current_stream().cuda_stream == before
    torch.cuda.synchronize()


def contexts():
    """The streams that a call may find current."""
    yield contextlib.nullcontext()
    yield torch.cuda.stream(torch.cuda.Stream())
    yield ag.Stream(backend="cuda")


def model(*more):
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 64), torch.nn.ReLU(), *more, torch.nn.Linear(64, 8)
    return torch.nn.Sequential(*layers).cuda()


@pytest.mark.parametrize("outputs", ["copy", "static"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_model_is_equal_to_eager(outputs, which):
    net = model()
    f = ag.graphed(lambda x: net(x), outputs=outputs)
    context = list(contexts())[which]
    with context, torch.no_grad():
        for _ in range(8):
            x = torch.randn(32, 64, device="cuda")
            before = x.clone()
            y = f(x)
            assert torch.equal(y, net(x))
            assert torch.equal(x, before)
    assert f.cache_info() == ag.CacheInfo(5, 3, 1, 0, 1, 16)


def test_a_model_with_gradients_enabled_returns_detached():
    net = model()
    f = ag.graphed(net, warmup=1)
    x = torch.randn(32, 64, device="cuda")
    for i in range(3):
        y = f(x)
        assert y.requires_grad is (i == 0)  # the warm-up is the function as it is
        assert torch.equal(y, net(x))
    x.requires_grad_()
    with pytest.raises(ValueError, match="requires grad"):
        f(x)


def test_every_stream_in_turn():
    f = ag.graphed(lambda x: x * 2 + 1, warmup=1, outputs="static")
    for i in range(12):
        with list(contexts())[i % 3]:
            y = f(torch.full((1 << 16,), float(i), device="cuda"))
            assert y.eq(2 * i + 1).all()
    assert f.cache_info().captures == 1


def test_dropout_masks_differ():
    f = ag.graphed(lambda x: torch.nn.functional.dropout(x), warmup=1)
    x = torch.ones(1000, device="cuda")
    masks = [f(x) for _ in range(6)]
    for i, mask in enumerate(masks):
        assert set(mask.tolist()) == {0.0, 2.0}
        assert not any(torch.equal(mask, other) for other in masks[:i])


def test_a_training_step():
    def make():
        net = model()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad(set_to_none=False)
            loss = torch.nn.functional.mse_loss(net(x), y)
            loss.backward()
            opt.step()
            return loss

        return net, step

    (ours, step), (theirs, eager) = make(), make()
    step = ag.graphed(step, warmup=2)
    for _ in range(8):
        x, y = torch.randn(32, 64, device="cuda"), torch.randn(32, 8, device="cuda")
        torch.testing.assert_close(step(x, y), eager(x, y).detach(), check_device=True, rtol=1e-4, atol=1e-5)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@dataclass
class Batch:
    x: object
    more: dict


def test_nested_arguments_and_results():
    def f(batch, scale, *, flags=()):
        a, b = batch.more["ab"]
        return {"sum": batch.x + a * scale, "parts": (b, [b.t() + 1, None, 3]), "flags": flags}

    graphed = ag.graphed(f, warmup=1)
    for i in range(5):
        tensors = [torch.randn(4, 4, device="cuda") for _ in range(3)]
        batch = Batch(tensors[0], {"ab": tensors[1:]})
        got, want = graphed(batch, 2.0, flags=("x",)), f(batch, 2.0, flags=("x",))
        assert torch.equal(got["sum"], want["sum"]), i
        assert got["parts"][0] is tensors[2]
        assert torch.equal(got["parts"][1][0], want["parts"][1][0])
        assert got["parts"][1][1:] == [None, 3]
        assert got["flags"] == ("x",)
    assert graphed.cache_info().captures == 1


def test_shapes_strides_types_and_expanded_tensors():
    f = ag.graphed(lambda x: x * 2, warmup=0)
    base = torch.randn(8, 8, device="cuda")
    inputs = [base, base.t(), base[::2], base.half(), base[0].expand(8, 8), base.to(torch.complex64).conj()]
    for _ in range(2):
        for x in inputs:
            assert torch.equal(f(x), x * 2)
    assert f.cache_info().captures == 6


@pytest.mark.promise("modes-in-the-signature")
def test_autocast_is_part_of_the_signature():
    net = model()
    f = ag.graphed(net, warmup=0)
    x = torch.randn(32, 64, device="cuda")
    with torch.no_grad():
        for _ in range(2):
            assert f(x).dtype == torch.float32
            for dtype in (torch.float16, torch.bfloat16):
                with torch.autocast("cuda", dtype=dtype):
                    assert f(x).dtype == dtype
    with torch.inference_mode():
        for _ in range(2):
            f(x)
    assert f.cache_info().captures == 4


def test_a_weight_that_autocast_has_cast_is_cast_again_by_every_replay():
    weight = torch.nn.Parameter(torch.randn(256, 256, device="cuda"))
    x = torch.randn(32, 256, device="cuda")

    def cast(cache):
        return torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=cache)

    def eager():
        with torch.no_grad(), cast(False):
            return torch.nn.functional.linear(x, weight)

    f = ag.graphed(lambda x: torch.nn.functional.linear(x, weight), warmup=2)
    with torch.no_grad(), cast(True):
        for _ in range(2):
            f(x)
        f(x)
        assert torch.equal(torch.nn.functional.linear(x, weight), eager())
    assert f.cache_info().captures == 1
    taken = [torch.full((256, 256), float("nan"), device="cuda", dtype=torch.bfloat16) for _ in range(32)]
    for _ in range(3):
        with torch.no_grad():
            weight.normal_()
        with torch.no_grad(), cast(True):
            assert torch.equal(f(x), eager())
    assert f.cache_info().captures == 1
    assert all(each.isnan().all() for each in taken)


@pytest.mark.parametrize("mode", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
def test_one_tensor_given_twice_and_written(mode):
    @ag.graphed(warmup=1)
    def f(x, y):
        x.add_(1)
        y.mul_(2)

    with mode():
        for _ in range(5):
            x, y = torch.zeros(4, device="cuda"), torch.ones(4, device="cuda")
            f(x, x)
            f(x, y)
            assert (x.tolist(), y.tolist()) == ([3.0] * 4, [2.0] * 4)
    assert f.cache_info().captures == 2


def test_a_function_that_goes_while_it_runs_on_another_stream():
    for _ in range(20):
        f = ag.graphed(lambda x: (x @ x) @ x, warmup=0)
        x = torch.randn(1024, 1024, device="cuda")
        f(x)
        y = x * 2
        expected = (y @ y) @ y
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            f(y)
            torch.cuda._sleep(10_000_000)
            result = f(y)
        del f
        gc.collect()
        ag.Stream(backend="cuda").close()  # any call destroys what is due
        taken = [torch.full((1024, 1024), float("nan"), device="cuda") for _ in range(4)]
        side.synchronize()
        torch.testing.assert_close(result, expected)
        del taken


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_sparse_tensor_is_refused():
    f = ag.graphed(lambda x: x, warmup=0)
    for sparse in (torch.eye(4, device="cuda").to_sparse(), torch.eye(4, device="cuda").to_sparse_csr()):
        with pytest.raises(TypeError, match=r"argument x is no(t a)? strided array"):
            f(sparse)


def test_what_the_function_writes_to_its_arguments():
    @ag.graphed(warmup=1)
    def f(x, y):
        x.add_(y)

    x, y = torch.zeros(4, device="cuda"), torch.ones(4, device="cuda")
    for i in range(5):
        f(x, y)
        assert x.tolist() == [i + 1.0] * 4


def test_an_argument_on_the_host():
    f = ag.graphed(lambda x, y: x + y.cuda(), warmup=0)
    with pytest.raises(TypeError, match="argument y is in host memory"):
        f(torch.ones(3, device="cuda"), torch.ones(3))


def test_what_can_not_be_captured():
    f = ag.graphed(lambda x: x * x.sum().item(), warmup=1, on_capture_error="eager")
    x = torch.ones(4, device="cuda")
    f(x)
    with pytest.warns(RuntimeWarning, match="eagerly from now on"):
        assert f(x).tolist() == [4.0] * 4
    assert f(x).tolist() == [4.0] * 4
    assert not torch.cuda.is_current_stream_capturing()
    with pytest.raises(ag.CaptureError):
        ag.graphed(lambda x: x * x.sum().item(), warmup=0)(x)


@pytest.mark.promise("graphed-in-a-capture")
def test_in_a_capture_of_torchs():
    f = ag.graphed(lambda x: x * 2, warmup=0)
    x = torch.ones(4, device="cuda")
    f(x)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = f(x)
    x.fill_(3)
    g.replay()
    assert y.tolist() == [6.0] * 4
    assert f(x).tolist() == [6.0] * 4


def test_graphs_that_are_dropped():
    f = ag.graphed(lambda x: (x * 2).sum(0), warmup=0, max_graphs=2)
    for _ in range(2):
        for n in range(1, 6):
            x = torch.randn(n, 1000, device="cuda")
            torch.testing.assert_close(f(x), (x * 2).sum(0))
    assert f.cache_info().evictions == 8
    f.cache_clear()
    del f
    gc.collect()


def test_threads():
    f = ag.graphed(lambda x: x * 2 + 1, warmup=2)
    wrong = []

    def work(n):
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(100):
                y = f(torch.full((1 << 14,), float(n * i), device="cuda"))
                if not y.eq(2 * n * i + 1).all():
                    wrong.append((n, i))

    in_threads(*[functools.partial(work, n) for n in range(1, 5)])
    assert wrong == []


class Layer(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(float(factor)))

    @ag.graphed(warmup=1)
    def forward(self, x):
        return x * self.factor


def test_a_method_of_a_module():
    two, three = Layer(2).cuda(), Layer(3).cuda()
    x = torch.ones(4, device="cuda")
    with torch.no_grad():
        for _ in range(4):
            assert two(x).tolist() == [2.0] * 4
            assert three(x).tolist() == [3.0] * 4
        two.factor.fill_(5)
        assert two(x).tolist() == [5.0] * 4


def test_torch_and_cupy_together():
    cupy = pytest.importorskip("cupy")

    def f(t, c):
        return torch.relu(t) + 1, c * 2 + cupy.asarray(t)

    graphed = ag.graphed(f, warmup=1)
    for context in contexts():
        with context:
            for _ in range(3):
                t, c = torch.randn(64, device="cuda"), cupy.random.rand(64).astype(cupy.float32)
                torch.cuda.synchronize()  # two frameworks, maybe on two streams: before the eager oracle
                cupy.cuda.Device().synchronize()
                got = graphed(t, c)
                torch.cuda.synchronize()
                cupy.cuda.Device().synchronize()
                want = f(t, c)
                assert torch.equal(got[0], want[0])
                cupy.testing.assert_allclose(got[1], want[1])
    assert graphed.cache_info().captures == 1


def test_memory_that_can_not_be_copied():
    class Block:
        def __init__(self, tensor):
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__
            self.tensor = tensor

    f = ag.graphed(lambda block: torch.as_tensor(block, device="cuda") * 2, warmup=0)
    x = torch.ones(4, device="cuda")
    for i in range(3):
        x.fill_(i)
        assert f(Block(x)).tolist() == [2.0 * i] * 4
    assert f.cache_info().captures == 1
    assert f(Block(torch.full((4,), 7.0, device="cuda"))).tolist() == [14.0] * 4
    assert f.cache_info().captures == 2


def test_host_time_beside_torchs_own(capsys):
    def twenty(a, b, c, d):
        for _ in range(5):
            a = a * b + c - d
            a = a.relu()
        return a

    inputs = tuple(torch.randn(16, device="cuda") for _ in range(4))
    others = tuple(x.clone() for x in inputs)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        static = ag.graphed(twenty, outputs="static")
        copied = ag.graphed(twenty)
        for _ in range(5):
            static(*inputs)
            copied(*inputs)
        theirs = torch.cuda.make_graphed_callables(twenty, inputs)
        figures = {
            "eager": microseconds(lambda: twenty(*others), 500),
            "torch.cuda.make_graphed_callables": microseconds(lambda: theirs(*others), 2000),
            "graphed, static outputs": microseconds(lambda: static(*others), 2000),
            "graphed, copied outputs": microseconds(lambda: copied(*others), 2000),
        }
    with capsys.disabled():
        for name, value in figures.items():
            print(f"\n  {name}: {value:.2f} us", end="")
        print()
    limit = figures["torch.cuda.make_graphed_callables"] + 2
    assert figures["graphed, static outputs"] <= limit, figures
    assert figures["graphed, static outputs"] <= figures["eager"] / 3, figures
