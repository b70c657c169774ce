"""Which call breaks a capture, and which work escapes it: with torch and CuPy, on a GPU."""

import contextlib
import inspect
import statistics
import time

import pytest

from lanes import require

pytestmark = require("gpu", "torch")

import torch
from cuda.bindings import driver

import accelerator_graph as ag
from diagnosis.planted import broken_by, marked, named

PTX = b".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry k(.param .u64 p){ ret; }\n\0"


class Scene:
    """Tensors on the device, a graph of torch's own, and a module."""

    def __init__(self):
        self.x = torch.randn(64, 64, device="cuda")
        self.w = torch.randn(64, 64, device="cuda", requires_grad=True)
        self.other = torch.cuda.Stream()
        self.stream = torch.cuda.Stream()
        self.loss = (self.w * self.x).sum()
        self.theirs = [torch.cuda.CUDAGraph()]
        with torch.cuda.graph(self.theirs[0], capture_error_mode="thread_local"):
            self.x + 1
        code, self.module = driver.cuModuleLoadData(PTX)
        assert code == 0
        torch.cuda.synchronize()


@pytest.fixture
def scene():
    scene = Scene()
    yield scene
    torch.cuda.synchronize()


def reads_a_number(scene):
    scene.x.sum().item()  # breaks


def decides(scene):
    if scene.x.sum() > 0:  # breaks
        scene.x.add_(1)


def prints(scene):
    return str(scene.x)  # breaks


def formats(scene):
    return f"the loss is {scene.x.sum()}"  # breaks


def indexes_by_a_mask(scene):
    return scene.x[scene.x > 0]  # breaks


def finds_what_is_not_zero(scene):
    return torch.nonzero(scene.x)  # breaks


def waits_for_the_device(scene):
    torch.cuda.synchronize()  # breaks


def waits_for_the_stream(scene):
    torch.cuda.current_stream().synchronize()  # breaks


def asks_an_event(scene):
    event = torch.cuda.Event()
    event.record()
    event.query()  # breaks


def asks_another_stream(scene):
    scene.other.query()  # breaks


def allocates(scene):
    driver.cuMemAlloc(1 << 20)  # breaks


def drops_a_graph(scene):
    scene.theirs.pop()  # breaks
    scene.x.add_(1)


def unloads_a_module(scene):
    driver.cuModuleUnload(scene.module)  # breaks


def swallows_the_error(scene):
    with contextlib.suppress(RuntimeError):
        scene.x.sum().item()  # breaks
    scene.w.detach()


def uses_a_stale_stream(scene):
    scene.loss.backward()  # breaks


FAULTS = (
    reads_a_number,
    decides,
    prints,
    formats,
    indexes_by_a_mask,
    finds_what_is_not_zero,
    waits_for_the_device,
    waits_for_the_stream,
    asks_an_event,
    asks_another_stream,
    allocates,
    drops_a_graph,
    unloads_a_module,
    swallows_the_error,
    uses_a_stale_stream,
)


def diagnosed(scene):
    return ag.Graph(stream=scene.stream, observe=ag.diagnose())


@pytest.mark.promise("diagnosis-names-the-call")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_named(fault, scene):
    error = broken_by(fault, diagnosed(scene), scene)
    print(error)
    assert [(each.file, each.line, each.thread) for each in error.calls] == [(*marked(fault), "")], error
    graph = diagnosed(scene)
    with graph:
        scene.x.mul_(1)
    assert graph.num_nodes == 1


def test_the_fork_that_is_not_joined_is_named(scene):
    def forks():
        current = torch.cuda.current_stream()
        joined = torch.cuda.Stream()
        joined.wait_stream(current)
        with torch.cuda.stream(joined):
            scene.x.add_(1)
        current.wait_stream(joined)
        scene.other.wait_stream(current)  # breaks
        with torch.cuda.stream(scene.other):
            scene.x.add_(1)

    error = broken_by(forks, diagnosed(scene))
    assert [(each.file, each.line) for each in error.calls] == [marked(forks)], error
    assert error.reason == "unjoined"


def test_a_graphed_function_is_captured_again_to_name_the_line(scene):
    @ag.graphed(warmup=1)
    def step(x):
        return x * x.sum().item()  # breaks

    with torch.cuda.stream(scene.stream):
        step(scene.x)
        with pytest.raises(ag.CaptureError) as raised:
            step(scene.x)
    assert [(each.file, each.line) for each in raised.value.calls] == [marked(step.__wrapped__)]


def test_another_thread_is_named(scene):
    def watchdog():
        with pytest.raises(RuntimeError):
            torch.cuda.synchronize()  # breaks

    named(watchdog, diagnosed(scene), thread="dog")


class ReadsFiveNumbers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Linear(64, 64, device="cuda") for _ in range(2))
        self.seen = []

    def forward(self, x):
        x = self.first(x).relu()
        scale = x.abs().mean().item()  # 1
        x = self.second(x / scale)
        if x.isnan().any():  # 2
            raise ValueError
        low = x.min().item()  # 3
        high = float(x.detach().max())  # 4
        x = (x - low) / (high - low)
        self.seen += scale, low, high, len(torch.nonzero(x > 2))  # 5
        return x


def test_every_call_of_a_model_is_named_in_one_run(scene):
    model = ReadsFiveNumbers()
    model(scene.x)
    torch.cuda.synchronize()
    eager, model.seen = model.seen, []
    graph = ag.Graph(stream=scene.stream)
    with pytest.raises(ag.CaptureError) as raised, ag.diagnose(all=True), graph:
        model(scene.x)
    lines, first = inspect.getsourcelines(ReadsFiveNumbers)
    marks = [number for number, line in enumerate(lines, first) if "# " in line]
    assert [each.line for each in raised.value.calls] == marks, raised.value
    assert "5 calls of its code can't be captured" in str(raised.value)
    assert model.seen == pytest.approx(eager)
    assert graph.state == "empty"
    with graph:
        scene.x.mul_(1)
    assert graph.num_nodes == 1


# ---- work that escapes ---------------------------------------------------------------------------


def escaped(body, graph):
    """Capture and return the lines that warnings name."""
    with pytest.warns(ag.EscapedWorkWarning) as seen, graph:
        body()
    return [str(each.message) for each in seen if each.category is ag.EscapedWorkWarning]


@pytest.mark.promise("escaped-work-is-named")
def test_work_on_the_default_stream_is_named(scene):
    def body():
        scene.x.add_(1)
        with torch.cuda.stream(torch.cuda.default_stream()):
            view = scene.x.view(-1)
            view.mul_(2)  # breaks

    [message] = escaped(body, diagnosed(scene))
    assert "does not have aten.mul_" in message
    assert f"test_broken_captures_gpu.py:{marked(body)[1]} in " in message
    assert "its work went to stream 0x0 of device 0" in message


def test_work_of_cupy_on_its_null_stream_is_named(scene):
    cupy = pytest.importorskip("cupy")
    array = cupy.ones(64, dtype="f4")
    cupy.add(array, 1, out=array)
    torch.cuda.synchronize()

    def body():
        scene.x.add_(1)
        with cupy.cuda.Stream.null:
            cupy.add(array, 1, out=array)  # breaks

    [message] = escaped(body, diagnosed(scene))
    assert "add at " in message
    assert f"test_broken_captures_gpu.py:{marked(body)[1]} in " in message


# ---- what is right -------------------------------------------------------------------------------


def training_step():
    model = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, device="cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    x = torch.randn(4, 16, 128, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    return step


def warmed(step):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    return side


def test_a_training_step_is_not_accused():
    step = training_step()
    graph = ag.Graph(stream=warmed(step), observe=ag.diagnose())
    with graph:
        step()
    assert graph.num_nodes > 50
    graph.replay()
    torch.cuda.synchronize()


def test_what_a_capture_permits_is_not_accused(scene):
    graph = diagnosed(scene)
    with graph:
        y = scene.x @ scene.x
        scene.other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(scene.other):
            z = torch.nn.functional.dropout(y, 0.5)
        torch.cuda.current_stream().wait_stream(scene.other)
        torch.cuda.mem_get_info()
        torch.ones(1000).pin_memory()
        y + z
    assert graph.num_nodes > 2


def test_it_costs_at_most_five_times_a_capture():
    step = training_step()
    side = warmed(step)

    def seconds(diagnose):
        graph = ag.Graph(stream=side, observe=ag.diagnose() if diagnose else ())
        graph.capture_begin()
        begin = time.perf_counter()
        step()
        taken = time.perf_counter() - begin
        graph.capture_end()
        graph.reset()
        return taken

    times = [(seconds(False), seconds(True)) for _ in range(15)]
    plain, diagnosed = (statistics.median(each) for each in zip(*times, strict=True))
    print(f"a step: {plain * 1e3:.2f} ms, diagnosed {diagnosed * 1e3:.2f} ms, {diagnosed / plain:.2f} times")
    assert diagnosed < 5 * plain
