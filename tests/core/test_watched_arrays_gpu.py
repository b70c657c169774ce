"""Replays that would use freed memory of torch's or CuPy's are refused: on a GPU."""

import gc
import warnings

import pytest

import accelerator_graph as ag
import lanes
from accelerator_graph._core.extension import fast

pytestmark = lanes.require("gpu", "torch")
torch = pytest.importorskip("torch")

SIZE = 1 << 16
VARIABLE = "ACCELERATOR_GRAPH_CHECK"


@pytest.fixture(autouse=True)
def initialised(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    torch.cuda.init()
    torch.manual_seed(1)
    for _ in range(2):  # what is compiled or allocated at first use
        x = torch.ones(SIZE, device="cuda", requires_grad=True)
        ((x * 2 + 1) ** 2).sum().backward()
    torch.cuda.synchronize()
    yield
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    torch.cuda.synchronize()


def captured(work, **options):
    g = ag.Graph(**{"observe": ag.ownership(), **options})
    with ag.graph(g):
        y = work()
    return g, y


def ones(n=SIZE):
    return torch.ones(n, device="cuda")


def line(text):
    with open(__file__) as file:
        [number] = [i for i, each in enumerate(file, 1) if each.rstrip().endswith(text)]
    return f"{__file__}:{number}"


def refused(g, y, bound=None):
    """What is said, by every way to replay; and nothing runs."""
    y.zero_()
    said = set()
    for replay in (g.replay, bound or g.bind(), lambda: g.replay(torch.cuda.Stream())):
        with pytest.raises(ag.GraphStateError) as info:
            replay()
        said.add(str(info.value))
    torch.cuda.synchronize()
    assert y.eq(0).all()
    [message] = said
    return message


def runs_well(g, y, expected):
    for replay in (g.replay, g.bind(), lambda: g.replay(torch.cuda.current_stream())):
        y.zero_()
        replay()
        torch.cuda.synchronize()
        assert y.eq(expected).all()


@pytest.mark.promise("freed-input-is-refused")
def test_a_freed_input_is_refused_and_named():
    arrays = [ones(), ones()]
    g, y = captured(lambda: arrays[0] * 2 + arrays[1])  # the place
    bound = g.bind()
    runs_well(g, y, 3)
    address = arrays[1].data_ptr()
    del arrays[1]
    message = refused(g, y, bound)
    assert message.startswith("An array that the graph uses is gone")
    assert (
        f"torch.Tensor of shape ({SIZE},), torch.float32, on cuda:0, at {address:#x}, first used at "
        f"{line('# the place')}, freed at {__file__}:"
    ) in message


def test_a_retained_input_is_fine():
    arrays = [ones()]
    g, y = captured(lambda: arrays[0] + 1)
    g.retain(arrays.pop())
    runs_well(g, y, 2)


def test_a_view_keeps_the_memory():
    arrays = [ones()]
    g, y = captured(lambda: arrays[0] + 1)
    arrays[0] = arrays[0][5:6]
    runs_well(g, y, 2)
    arrays.clear()
    refused(g, y)


def test_outputs_and_what_was_made_in_the_capture_may_go():
    x = ones()

    def work():
        made = x + 1
        made.add_(torch.zeros(SIZE, device="cuda"))
        return (made * 2).add_(made)

    g, y = captured(work)
    runs_well(g, y, 6)
    out = y.detach()
    del y
    gc.collect()
    runs_well(g, out, 6)


FACTORS = []


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * FACTORS[0]


def test_a_captured_backward_pass():
    FACTORS[:] = [torch.full((SIZE,), 3.0, device="cuda")]
    x = ones().requires_grad_()

    def work():
        [grad] = torch.autograd.grad(Scaled.apply(x).sum(), x)
        return grad

    g, y = captured(work)
    runs_well(g, y, 3)
    FACTORS.clear()
    message = refused(g, y)
    assert message.startswith("An array")
    assert f"first used at {__file__}:" in message


def test_a_captured_backward_pass_of_torchs_own():
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).cuda()
    inputs = [torch.randn(8, 64, device="cuda")]
    for _ in range(3):
        net.zero_grad()
        net(inputs[0]).sum().backward()
    net.zero_grad(set_to_none=True)

    def work():
        net(inputs[0]).sum().backward()
        return net[0].weight.grad

    g, y = captured(work)
    torch.cuda.synchronize()
    g.replay()
    torch.cuda.synchronize()
    expected = y.clone()
    gc.collect()
    runs_well(g, y, expected)
    inputs.clear()
    gc.collect()
    assert "shape (8, 64)" in refused(g, y)


def test_freed_pinned_memory():
    arrays = [torch.ones(SIZE).pin_memory()]
    g, y = captured(lambda: arrays[0].to("cuda", non_blocking=True))
    runs_well(g, y, 1)
    arrays.clear()
    assert "on cpu" in refused(g, y)


def test_a_scalar_on_the_host_is_no_input():
    x = ones()
    g, y = captured(lambda: x * torch.tensor(2.0))
    gc.collect()
    runs_well(g, y, 2)


def test_another_graphs_output_in_the_same_pool_is_no_input():
    x = ones()
    a, y = captured(lambda: x + 1)
    outputs = [y]
    del y
    b, z = captured(lambda: outputs[0] + 1, pool=a.pool())
    outputs.clear()
    a.replay()
    runs_well(b, z, 3)


def test_compiled_code():
    pytest.importorskip("triton")
    weights = torch.full((64, 64), 0.5, device="cuda")
    x = torch.ones(64, 64, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f = torch.compile(lambda x: torch.relu(x @ weights) @ weights + 1)
        expected = f(x).clone()
        torch.cuda.synchronize()
        g, y = captured(lambda: f(x))
    gc.collect()
    runs_well(g, y, expected)


def test_reset_and_capture_again():
    arrays = [ones()]
    g, y = captured(lambda: arrays[0] + 1)
    arrays[0] = ones()
    refused(g, y)
    g.reset()
    with ag.graph(g):
        z = arrays[0] + 2
    runs_well(g, z, 3)


@pytest.mark.parametrize("when", ["in", "after"])
def test_watch(when):
    arrays = [ones()]

    def work():
        if when == "in":
            g.watch(arrays[0])
        return arrays[0] + 1

    g = ag.Graph()
    with ag.graph(g):
        y = work()
    bound = g.bind()
    if when == "after":
        bound()
        g.watch(arrays[0])
    runs_well(g, y, 2)
    arrays.clear()
    assert f"watched at {__file__}" in refused(g, y, bound)


def test_cupys_memory_is_watched():
    cupy = pytest.importorskip("cupy")
    x = cupy.ones(SIZE, dtype="f4")
    _ = x * 2
    g = ag.Graph()
    with ag.graph(g):
        y = torch.from_dlpack(x * 2)
    g.watch(x)
    known = hasattr(x.data.mem, "__dict__")  # else a view is told by its base alone
    view = cupy.lib.stride_tricks.as_strided(x, (SIZE - 1,), (4,)) if known else x[1:]
    del x
    runs_well(g, y, 2)
    del view
    message = refused(g, y)
    assert f"cupy.ndarray of shape ({SIZE},), float32, on <CUDA Device 0>, at 0x" in message


def test_a_foreign_array_in_torchs_hands_is_let_be():
    cupy = pytest.importorskip("cupy")
    x = cupy.ones(SIZE, dtype="f4")
    g, y = captured(lambda: torch.from_dlpack(x) + 1)  # the tensor goes at once, the array stays
    gc.collect()
    runs_well(g, y, 2)


def test_graphed_is_not_disturbed(monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
    f = ag.graphed(lambda x: net(x))
    with torch.no_grad():
        for _ in range(8):
            x = torch.randn(32, 64, device="cuda")
            assert torch.equal(f(x), net(x))
        assert f.cache_info().captures == 1
        net[0].weight.data = net[0].weight.clone()
        with pytest.raises(ag.GraphStateError, match="gone"):
            f(x)
        f.cache_clear()
        for _ in range(5):
            assert torch.equal(f(x), net(x))


@pytest.mark.skipif(fast is None, reason="the C extension is not there")
def test_the_later_replays_cost_nothing_more_with_it():
    x = ones(1)
    graphs = {on: captured(lambda: x + 1, observe=ag.ownership() if on else ())[0] for on in (False, True)}
    for g in graphs.values():
        g.replay()  # once through torch, to see whether it draws random numbers
    launches = {on: g.bind() for on, g in graphs.items()}
    for launch in launches.values():
        launch()  # the first launch decides in Python what launches the later ones
    assert all(launch.target is not None for launch in launches.values())  # C launches them, without a check
