"""Calls of a graphed function that C repeats, on CUDA: when it does, and what it must not miss."""

import sys
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import accelerator_graph as ag
import lanes

pytestmark = lanes.require("cuda")

from accelerator_graph._core.extension import fast
from accelerator_graph.backends import registry
from accelerator_graph.interop import registry as interop
from core.fast_arrays import exchange
from graphed import cuda_arrays
from graphed.cuda_arrays import Tensor, current, plus
from graphed.functions import calls
from simulators.cuda.faults import Faults
from threads import in_threads

if fast is None:
    pytest.skip("the C extension is not there", allow_module_level=True)

CODES = {"f": 2, "i": 0, "u": 1}


def described(x):
    step, steps = 1, []
    for size in reversed(x.shape):
        steps.insert(0, step)
        step *= size
    dtype = CODES[x.dtype.kind], 8 * x.dtype.itemsize, 1, 0
    return x.address, x.shape, steps, (2, 0), dtype


class Following(cuda_arrays.Fake):
    """It tells its current stream in the fastest way."""

    def current_handle(self, device):
        return current.handle


modes = SimpleNamespace(grad=False, inference=False, autocast=False)


@pytest.fixture(autouse=True)
def arrays(monkeypatch):
    interop.register("fakeframe", Following)
    cuda_arrays.install(monkeypatch, registry.get("cuda"))
    monkeypatch.setattr(Tensor, "__dlpack_c_exchange_api__", exchange(described), raising=False)
    package = sys.modules["fakeframe"]
    package.is_grad_enabled = lambda: modes.grad
    package.is_inference_mode_enabled = lambda: modes.inference
    package.is_autocast_enabled = lambda kind: modes.autocast
    package.get_autocast_dtype = lambda kind: "half"
    package.accelerator = SimpleNamespace(current_stream=lambda device: "here")
    with ag.Stream(backend="cuda") as stream:
        yield
        stream.synchronize()
    vars(modes).update(grad=False, inference=False, autocast=False)
    interop.unregister("fakeframe")
    cuda_arrays.memory.free()


def tensor(*values, dtype="f8"):
    return cuda_arrays.tensor(*values, dtype=dtype)


def write(x, *values):
    data = np.array(values, x.dtype)
    ag.current_stream().synchronize()  # the copy is on another stream
    cuda_arrays.fill(x, data)


def graphed(inputs="bind", function=lambda x, y: x + y, **options):
    return ag.graphed(function, **{"warmup": 0, "outputs": "static", "inputs": inputs, **options})


def settled(f, *args, **kwargs):
    """Call a function until C repeats its calls."""
    for _ in range(3):
        f(*args, **kwargs)
    cuda_arrays.backend.synchronize(cuda_arrays.backend.as_stream(current.handle))


@pytest.mark.parametrize("inputs", ["node", "bind"])
def test_a_call_whose_arrays_have_not_moved_is_one_call_of_python(inputs):
    f, x, y = graphed(inputs), tensor(1, 2), tensor(10, 20)
    settled(f, x, y)
    for i in range(3):
        write(x, i, 5)
        result, ran = calls(f, x, y)
        assert ran == ["__call__"]
        assert result.tolist() == [10 + i, 25]
    assert f.cache_info()._replace(eager=0) == (6, 0, 1, 0, 1, 16)
    assert calls(f, x, y)[0] is result


@pytest.mark.parametrize("outputs", ["copy", "static"])
@pytest.mark.parametrize("inputs", ["node", "bind"])
def test_a_call_whose_arrays_have_moved_changes_nodes_in_c(inputs, outputs):
    f, x, y = graphed(inputs, outputs=outputs), tensor(1, 2), tensor(10, 20)
    settled(f, x, y)
    own = ["__call__"] if outputs == "static" else ["__call__", "for_call", "new_arrays"]
    for i in range(3):
        for pair in [(tensor(i, i), y), (tensor(i, i), tensor(7, 8)), (x, y)]:
            result, ran = calls(f, *pair)
            expected = [a + b for a, b in zip(*(each.tolist() for each in pair), strict=True)]
            assert ran[: len(own)] == own
            assert not {"copy_in", "read_from", "patch", "ready", "follow"} & set(ran)
            assert result.tolist() == expected
    assert f.cache_info().replays == 12


@pytest.mark.parametrize("inputs", ["copy", "node", "bind"])
def test_arrays_that_were_one_array_are_not_taken_for_it(inputs):
    f, x, y = graphed(inputs), tensor(1, 2), tensor(10, 20)
    settled(f, x, x)
    for pair, expected in [((x, y), [11, 22]), ((x, x), [2, 4]), ((y, x), [11, 22]), ((y, y), [20, 40])] * 3:
        assert f(*pair).tolist() == expected


SETS = {"node": "cuGraphExecMemcpyNodeSetParams", "bind": "cuGraphExecKernelNodeSetParams"}


@pytest.mark.needs("software_cuda")
@pytest.mark.filterwarnings("ignore:.*copies its inputs:RuntimeWarning")
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("times", [1, 2, 3, 4])
@pytest.mark.parametrize("inputs", ["node", "bind"])
def test_whatever_the_driver_refuses_no_result_is_wrong(inputs, nth, times):
    """A call may raise the driver's error, and is not replayed then."""

    def function(x, y):
        return (x + y) + (y + x)

    f, pairs = graphed(inputs, function), [(tensor(1, 2), tensor(10, 20)), (tensor(3, 4), tensor(7, 8))]
    settled(f, *pairs[0])
    faults = Faults("libcuda.so.1")
    before = faults.calls()[SETS[inputs]]
    faults.fail(SETS[inputs], code=1, nth=nth, times=times)
    with suppress(ag.DriverError):
        assert f(*pairs[1]).tolist() == [20, 24]
    assert faults.calls()[SETS[inputs]] >= before + nth
    faults.reset()
    for pair, expected in zip(pairs * 2, [[22, 44], [20, 24]] * 2, strict=True):
        assert f(*pair).tolist() == expected
    assert calls(f, *pairs[0])[1][0] == "__call__"


@pytest.mark.parametrize("inputs", ["node", "bind"])
def test_without_a_current_context_nodes_are_changed_by_python(inputs):
    f, x, y, z = graphed(inputs), tensor(1, 2), tensor(10, 20), tensor(3, 4)
    settled(f, x, y)
    cuda_arrays.call(cuda_arrays.driver.cuCtxSetCurrent, 0)
    result, ran = calls(f, z, y)
    assert "copy_in" in ran
    cuda_arrays.call(cuda_arrays.driver.cuCtxSetCurrent, cuda_arrays.context())
    assert result.tolist() == [13, 24]


def test_arrays_that_have_moved_are_told_that_they_are_used():
    f, x, y, used = graphed(), tensor(1, 2), tensor(10, 20), tensor(3, 4)
    settled(f, x, y)
    for each in (x, y, used):
        each.used_on.clear()
    f(x, y), f(x, used), f(x, used), f(x, y)
    assert [each.used_on for each in (x, y, used)] == [[], ["here"], ["here"]]
    same = Tensor(x.address, x.shape, x.dtype)  # another array with the same memory
    f(same, y)
    assert same.used_on == ["here"]


@pytest.mark.parametrize("inputs", ["copy", "node", "bind"])
def test_a_call_with_other_arrays_reads_no_signature_again(inputs):
    f, x, y = graphed(inputs), tensor(1, 2), tensor(10, 20)
    settled(f, x, y)
    for i in range(3):
        result, ran = calls(f, tensor(i, i), tensor(7, 8))
        assert "read" not in ran
        assert result.tolist() == [7 + i, 8 + i]
    result, ran = calls(f, x, y)
    assert "read" not in ran
    assert result.tolist() == [11, 22]


@pytest.mark.promise("calls-through-python")
@pytest.mark.parametrize("inputs", ["copy", "node", "bind"])
def test_every_change_of_an_argument_is_seen(inputs):
    def function(x, y, factor=1):
        return x + y if factor == 1 else y + y

    f, x, y = graphed(inputs, function), tensor(1, 2), tensor(10, 20)
    settled(f, x, y, 1)
    assert f(x, y, 2).tolist() == [20, 40]
    settled(f, x, y, 1)
    assert f(x, x, 1).tolist() == [2, 4]
    settled(f, x, y, 1)
    assert f(tensor(1, 2, 3), tensor(4, 5, 6), 1).tolist() == [5, 7, 9]
    settled(f, x, y, 1)
    assert f(x, y, factor=2).tolist() == [20, 40]
    settled(f, x, y, 1)
    x.shape = (1, 2)
    y.shape = (1, 2)
    f(x, y, 1)
    assert f.cache_info().captures == 5
    x.shape = y.shape = (2,)
    settled(f, x, y, 1)
    x.requires_grad = True
    f(x, y, 1)
    assert f.cache_info().captures == 6


@pytest.mark.parametrize("mode", ["grad", "inference", "autocast"])
def test_a_mode_that_has_changed_is_seen(mode):
    f, x, y = graphed(), tensor(1, 2), tensor(10, 20)
    settled(f, x, y)
    setattr(modes, mode, True)
    f(x, y)
    assert f.cache_info().captures == 2


def test_another_stream_waits_for_the_calls_before():
    f, x, y = graphed(), tensor(1, 2), tensor(10, 20)
    settled(f, x, y)
    with ag.Stream(backend="cuda"):
        result, ran = calls(f, x, y)
        assert "move_to" in ran
        assert result.tolist() == [11, 22]
    result, ran = calls(f, x, y)
    assert "move_to" in ran
    assert calls(f, x, y)[1] == ["__call__"]


def test_a_stream_that_somebody_captures_gets_the_function_itself():
    f, x, y = graphed(), tensor(1, 2), tensor(10, 20)
    settled(f, x, y)
    stream = ag.current_stream()
    mode = cuda_arrays.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    cuda_arrays.call(cuda_arrays.driver.cuStreamBeginCapture, stream.native, mode)
    before = f.cache_info()
    f(x, y)
    graph = cuda_arrays.call(cuda_arrays.driver.cuStreamEndCapture, stream.native)
    count = cuda_arrays.driver.cuGraphGetNodes(graph, 0)[2]
    cuda_arrays.call(cuda_arrays.driver.cuGraphDestroy, graph)
    assert count == 1  # its kernel, and no graph in a graph
    assert f.cache_info().replays == before.replays


def test_what_is_captured_by_this_library_is_not_replayed():
    f, x, y, g = graphed(), tensor(1, 2), tensor(10, 20), ag.Graph()
    settled(f, x, y)
    with ag.graph(g):
        result = f(x, y)
    before = f.cache_info()
    write(x, 5, 6)
    g.replay()
    assert result.tolist() == [15, 26]
    assert f.cache_info() == before


def test_arrays_that_another_call_has_used_are_patched_again():
    f, x, y, z = graphed(), tensor(1, 2), tensor(10, 20), tensor(100, 200)
    for _ in range(3):
        assert f(x, y).tolist() == [11, 22]
        assert f(z, y).tolist() == [110, 220]
        assert f(z, y).tolist() == [110, 220]
        assert f(y, x).tolist() == [11, 22]


def test_two_functions_and_two_signatures_take_turns():
    f, other = graphed(), graphed("node")
    pairs = [(tensor(*range(n)), tensor(*range(n))) for n in (2, 3)]
    for _ in range(4):
        for pair in pairs:
            expected = [2 * i for i in range(len(pair[0].tolist()))]
            assert f(*pair).tolist() == f(*pair).tolist() == other(*pair).tolist() == expected
    assert f.cache_info().replays == 16
    assert other.cache_info().replays == 8


def test_a_graph_that_was_used_by_c_is_not_the_oldest():
    f, pairs = graphed(max_graphs=2), [(tensor(*range(n)), tensor(*range(n))) for n in (2, 3, 4)]
    settled(f, *pairs[1])
    settled(f, *pairs[0])
    for _ in range(3):
        assert calls(f, *pairs[0])[1] == ["__call__"]
    f(*pairs[2])
    assert f.cache_info().evictions == 1
    f(*pairs[0])
    assert f.cache_info().captures == 3


def test_nothing_is_replayed_once_the_cache_was_cleared():
    f, x, y = graphed(), tensor(1, 2), tensor(10, 20)
    settled(f, x, y)
    f.cache_clear()
    assert f(x, y).tolist() == [11, 22]
    assert f.cache_info() == (1, 0, 1, 0, 1, 16)


@pytest.mark.parametrize("returned", [True, False])
@pytest.mark.parametrize("inputs", ["copy", "node", "bind"])
def test_arguments_that_are_written_are_written_in_the_callers_array(inputs, returned):
    def function(x, y):
        x.copy_(plus("plus", x, y))
        return x if returned else plus("plus", y, y)

    f, x, y = graphed(inputs, function), tensor(1, 2), tensor(10, 20)
    for i in range(5):
        write(x, i, i)
        f(x, y)
        assert x.tolist() == [10 + i, 20 + i]


def test_copies_are_returned_where_they_were_asked_for():
    f, x, y = graphed(outputs="copy"), tensor(1, 2), tensor(10, 20)
    settled(f, x, y)
    first = f(x, y)
    write(x, 5, 6)
    assert f(x, y).tolist() == [15, 26]
    assert first.tolist() == [11, 22]


def test_a_method_has_its_instance_looked_at():
    class Model:
        def __init__(self, y):
            self.y = y

        @ag.graphed(warmup=0, outputs="static", inputs="bind")
        def forward(self, x, scale=1):
            return x + self.y

    one, two, x = Model(tensor(10, 20)), Model(tensor(30, 40)), tensor(1, 2)
    settled(one.forward, x)
    settled(two.forward, x)
    assert calls(one.forward, x)[1] == ["__call__"]
    for _ in range(3):
        assert one.forward(x).tolist() == [11, 22]
        assert two.forward(x).tolist() == [31, 42]


def test_arguments_by_name_are_alike_in_any_order():
    f, x, y = graphed(), tensor(1, 2), tensor(10, 20)
    settled(f, y=y, x=x)
    result, ran = calls(f, x=x, y=y)
    assert ran == ["__call__"]
    assert result.tolist() == [11, 22]


def test_threads_that_share_a_function():
    f = graphed("node")

    def work(i):
        x, y = tensor(i, 2 * i), tensor(1, 1)
        with ag.Stream(backend="cuda") as stream:
            for _ in range(60):
                f(x, y)
            stream.synchronize()

    with ag.Stream(backend="cuda"):
        settled(f, tensor(1, 2), tensor(3, 4))
    in_threads(*(partial(work, i) for i in range(3)))
    assert f.cache_info().replays == 3 * 60 + 3
