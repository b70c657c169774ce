"""Calls of a graphed function that C repeats, with torch on a GPU."""

import random

import pytest

import accelerator_graph as ag
import lanes

pytestmark = lanes.require("gpu", "torch")
torch = pytest.importorskip("torch")

from accelerator_graph._core.extension import fast
from accelerator_graph.interop import registry as interop
from graphed.functions import calls

if fast is None or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    pytest.skip("C sees no call that is like another one here", allow_module_level=True)


@pytest.fixture(autouse=True)
def no_grad():
    torch.cuda.init()
    torch.manual_seed(1)
    with torch.no_grad():
        yield
    torch.cuda.synchronize()


def step(a, b, c, d):
    x = a * b + c
    for _ in range(3):
        x = x * b + d
    return x


def tensors(n=4, size=64):
    return [torch.rand(size, size, device="cuda") for _ in range(n)]


@pytest.mark.parametrize("inputs", ["node", "bind"])
@pytest.mark.parametrize("own", [False, True], ids=["default", "torchs"])
def test_a_call_whose_tensors_have_not_moved_is_one_call_of_python(inputs, own):
    with torch.cuda.stream(torch.cuda.Stream() if own else torch.cuda.default_stream()):
        f, xs = ag.graphed(step, inputs=inputs, outputs="static"), tensors()
        for _ in range(6):
            f(*xs)
        assert [each.inputs for each in f.explain()] == [inputs]
        f(*xs)
        for _ in range(3):
            xs[0].add_(1)
            assert [name for name in calls(f, *xs)[1] if name != "capture_status"] == ["__call__"]
            assert torch.equal(f(*xs), step(*xs))


@pytest.mark.promise("torch-keeps-its-streams")
def test_which_streams_torch_keeps():
    [framework] = (each for name, each in interop.active_by_name("cuda").items() if name == "torch")
    for stream in (torch.cuda.Stream(), torch.cuda.Stream(priority=-1)):
        framework._kept.clear()
        assert not framework.keeps_stream(stream.cuda_stream, 0)  # it is not current
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.cuda_stream)):
            assert not framework.keeps_stream(stream.cuda_stream, 0)
        with torch.cuda.stream(stream):
            assert framework.keeps_stream(stream.cuda_stream, 0)
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.cuda_stream)):
            assert framework.keeps_stream(stream.cuda_stream, 0)
    with ag.Stream(backend="cuda") as ours:
        assert not framework.keeps_stream(ours.handle, 0)


@pytest.mark.promise("calls-through-python")
@pytest.mark.parametrize("inputs", ["copy", "node", "bind"])
def test_any_mixture_of_calls_equals_eager(inputs):
    choose = random.Random(inputs)
    sets = [tensors(), tensors(), tensors(size=32)]
    sets.append([sets[0][1], *sets[1][1:]])
    sets.append([sets[0][0]] * 2 + sets[1][2:])
    sets.append([x.t() for x in sets[0]])
    streams = [torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    f = ag.graphed(step, inputs=inputs, outputs="static", warmup=1)
    stream = streams[0]
    for i in range(1500):
        if choose.random() < 0.05:
            after, stream = stream, choose.choice(streams)
            stream.wait_stream(after)
        xs = choose.choice(sets[: choose.choice([1, 2, len(sets)])])
        with torch.cuda.stream(stream):
            if choose.random() < 0.2:
                choose.choice(xs).uniform_()
            if choose.random() < 0.1:
                xs = [x.clone() for x in xs]
            result = f(*xs)
            if i % 7 == 0 or choose.random() < 0.1:
                assert torch.equal(result, step(*xs))


def test_tensors_that_are_dropped_at_once_are_read_before_their_memory_is_used_again():
    f = ag.graphed(lambda x: x * 2 + 1, inputs="bind", outputs="static")
    side = torch.cuda.Stream()
    for i in range(200):
        x = torch.full((1 << 20,), float(i), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = f(x)
            if i % 2:
                y = f(x)
        if not f.cache_info().captures:
            side.synchronize()  # an eager run is torch's business
        del x
        torch.full((1 << 20,), -1.0, device="cuda")
        side.synchronize()
        assert y.eq(2 * i + 1).all()


def test_a_stream_that_torch_captures_gets_the_function_itself():
    f, xs = ag.graphed(step, inputs="bind", outputs="static"), tensors()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(6):
            f(*xs)
        replays = f.cache_info().replays
        f(*xs), f(*xs)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            result = f(*xs)
        assert f.cache_info().replays == replays + 2
        xs[0].add_(1)
        graph.replay()
        assert torch.equal(result, step(*xs))
