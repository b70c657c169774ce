"""Frameworks in one capture, with results equal to eager ones: on a GPU, with what is installed there."""

from __future__ import annotations

import gc
import warnings

import pytest

import accelerator_graph as ag
import lanes

pytestmark = [
    lanes.require("gpu", "torch"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad"),  # of torch, about its own streams
]
torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def initialised():
    torch.cuda.init()
    torch.manual_seed(1)
    before = torch.cuda.current_stream().cuda_stream
    yield
    assert torch.cuda.current_stream().cuda_stream == before
    assert float(torch.rand(3, device="cuda").sum()) > 0  # the generators work
    torch.cuda.synchronize()


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()


def warmed(function):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()


def test_a_model_on_a_stream_of_torch():
    net, x = model(), torch.randn(32, 64, device="cuda")
    warmed(lambda: net(x))
    g = ag.Graph()
    with torch.cuda.stream(torch.cuda.Stream()), g:
        y = net(x)
    assert g.backend == "cuda"
    for _ in range(3):
        x.normal_()
        g.replay()
        assert torch.equal(y, net(x))


def test_a_side_stream():
    net, x = model(), torch.randn(32, 64, device="cuda")
    warmed(lambda: net(x))
    g = ag.Graph()
    with ag.graph(g):
        y = net(x)
    for _ in range(3):
        x.normal_()
        g.replay()
        assert torch.equal(y, net(x))


def test_a_stream_of_ours():
    x = torch.zeros(8, device="cuda")
    torch.cuda.synchronize()
    g = ag.Graph()
    with ag.Stream(backend="cuda") as s, g:
        assert torch.cuda.current_stream().cuda_stream == s.handle
        x += 1
    for _ in range(3):
        g.replay()
    s.synchronize()
    assert x.tolist() == [3.0] * 8


def dropout_by(graph, context):
    """Five masks of a captured dropout, from one seed."""
    x = torch.ones(1000, device="cuda")
    torch.nn.functional.dropout(x)
    torch.cuda.synchronize()
    torch.cuda.manual_seed(7)
    with context(graph):
        y = torch.nn.functional.dropout(x)
    masks = []
    for _ in range(5):
        graph.replay()
        masks.append(y.clone())
    return masks


def test_random_numbers_are_torchs_own():
    ours = dropout_by(ag.Graph(), ag.graph)
    theirs = dropout_by(torch.cuda.CUDAGraph(), torch.cuda.graph)
    assert all(map(torch.equal, ours, theirs))
    assert not any(torch.equal(ours[0], mask) for mask in ours[1:])


def test_a_graph_without_random_numbers_takes_the_short_way():
    x = torch.zeros(8, device="cuda")
    g = ag.Graph()
    with ag.graph(g):
        x += 1
    g.replay()
    executable = g._runner.executable.value
    assert executable.needs_torch is False
    g._runner.executable.recorder.torch_graph.replay = None
    for _ in range(4):
        g.replay()
    torch.cuda.synchronize()
    assert x.tolist() == [5.0] * 8


def test_autograd_and_an_optimizer():
    def step(net, opt, x, y):
        opt.zero_grad(set_to_none=False)
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        return loss

    x, y = torch.randn(32, 64, device="cuda"), torch.randn(32, 8, device="cuda")
    nets = [model(), model()]
    opts = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    for net, opt in zip(nets, opts, strict=True):
        warmed(lambda net=net, opt=opt: step(net, opt, x, y))
    g = ag.Graph()
    with ag.graph(g):
        step(nets[0], opts[0], x, y)
    for _ in range(5):
        g.replay()
        step(nets[1], opts[1], x, y)
    torch.cuda.synchronize()
    for ours, theirs in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_an_error_in_the_body_leaves_no_trace():
    x = torch.ones(8, device="cuda")
    g = ag.Graph()
    for _ in range(2):
        with pytest.raises(KeyError, match="boom"), ag.graph(g):  # noqa: PT012
            x * 2
            raise KeyError("boom")
        assert g.state == "empty"
    with pytest.raises(ag.CaptureError) as info, ag.graph(g):  # noqa: PT012
        torch.rand(4, device="cuda")
        x.sum().item()
    assert "not permitted" in str(info.value.__cause__)
    assert not torch.cuda.is_current_stream_capturing()
    with ag.graph(g):
        y = torch.rand(4, device="cuda") + x[:4]
    g.replay()
    first = y.clone()
    g.replay()
    assert not torch.equal(first, y)


def refused_step():
    param = torch.nn.Parameter(torch.ones(4, device="cuda"))
    param.grad = torch.ones_like(param)
    optimizer = torch.optim.Adam([param])
    optimizer.step()
    return lambda x: optimizer.step() or x


def in_backward(x):
    class Copies(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad.cpu().cuda()

    x = x.detach().requires_grad_()
    Copies.apply(x).sum().backward()
    return x.grad


REFUSED = {
    "a copy to the host": lambda: lambda x: x.cpu().cuda(),
    "a new tensor": lambda: lambda x: x + torch.tensor([1.0], device="cuda"),
    "bincount": lambda: lambda x: torch.bincount(x.long().clamp(0, 3)),
    "an optimizer": refused_step,
    "a new generator": lambda: lambda x: torch.Generator("cuda") and x + 1,
    "in backward": lambda: in_backward,
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_torch_refuses_is_the_cause(name):
    run, x, g = REFUSED[name](), torch.ones(8, device="cuda"), ag.Graph()
    run(x)
    with pytest.raises(ag.CaptureError) as caught, ag.graph(g):
        run(x)
    assert (caught.value.reason, type(caught.value.__cause__)) == ("illegal_call", RuntimeError)
    eager = ag.graphed(run, warmup=1, on_capture_error="eager")
    with pytest.warns(RuntimeWarning, match="runs eagerly from now on"):
        results = [eager(x) for _ in range(3)]
    assert all(torch.equal(results[0], each) for each in results)
    with ag.graph(g):
        y = x + 1
    g.replay()
    assert y.tolist() == [2.0] * 8


def test_unjoined_work_is_said():
    x = torch.ones(8, device="cuda")
    g = ag.Graph()
    side = torch.cuda.Stream()
    with pytest.raises(ag.CaptureError) as info, ag.graph(g):  # noqa: PT012
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x * 2
    assert info.value.reason == "unjoined"


def test_a_nested_capture_is_refused():
    x = torch.ones(8, device="cuda")
    g, inner = ag.Graph(), ag.Graph()
    with ag.graph(g):
        x += 1
        with pytest.raises(ag.CaptureError, match="already"), ag.graph(inner):
            x += 1
        x += 1
    g.replay()
    torch.cuda.synchronize()
    assert x.tolist() == [3.0] * 8


def test_another_torch_graph_that_is_collected_meanwhile():
    x = torch.ones(8, device="cuda")
    old = ag.Graph()
    with ag.graph(old):
        x += 1
    old.replay()
    g = ag.Graph()
    with ag.graph(g):
        x += 1
        del old
        gc.collect()
        x += 1
    g.replay()
    torch.cuda.synchronize()
    assert x.tolist() == [4.0] * 8


def test_pools_are_torchs():
    a, b = ag.Graph(), ag.Graph()
    x = torch.ones(1 << 20, device="cuda")
    with ag.graph(a, pool=torch.cuda.graph_pool_handle()):
        y = x * 2
    with ag.graph(b, pool=a.pool()):
        z = x * 3
    a.replay()
    b.replay()
    assert (y[0].item(), z[0].item()) == (2.0, 3.0)
    theirs = torch.cuda.CUDAGraph()
    with torch.cuda.graph(theirs, pool=a.pool()):
        x * 4


def test_no_warning_of_torch_for_an_empty_graph():
    g = ag.Graph()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with ag.graph(g):
            pass
    assert [each.category for each in found] == [ag.EmptyGraphWarning]


def test_torch_cupy_and_triton_in_one_graph():
    cupy = pytest.importorskip("cupy")
    triton = pytest.importorskip("triton")
    tl = pytest.importorskip("triton.language")

    @triton.jit
    def triple(pointer, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(pointer + at, 3 * tl.load(pointer + at, mask=at < n), mask=at < n)

    x = torch.ones(64, device="cuda")
    view = cupy.from_dlpack(x)

    def work():
        nonlocal view
        x.mul_(2)
        view += 1
        triple[(1,)](x, 64, BLOCK=64)
        return torch.nn.functional.dropout(x)

    warmed_x = x.clone()
    work()
    torch.cuda.synchronize()
    x.copy_(warmed_x)
    g = ag.Graph(keep_graph=True)
    with ag.graph(g):
        y = work()
    g.instantiate()
    want = 1.0
    for _ in range(3):
        g.replay()
        want = (want * 2 + 1) * 3
    torch.cuda.synchronize()
    assert x.tolist() == [want] * 64
    assert set(y.tolist()) == {0.0, 2 * want}
    assert g.num_nodes >= 4
