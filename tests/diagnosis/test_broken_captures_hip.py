"""Which call breaks a capture: on AMD's runtime, through its binding and without it."""

import pytest

from lanes import require

pytestmark = [require("amd"), pytest.mark.usefixtures("answered")]

from hip import hip

import accelerator_graph as ag
from accelerator_graph.backends.hip import HipBackend
from accelerator_graph.diagnosis._tracing import observation
from backends.hip.bench import answer, bare_stream
from diagnosis.planted import asked_while, broken_by, marked, named, named_after_work


class Scene:
    """A stream, one on the side with an event from before, and memory."""

    def __init__(self):
        self.stream, self.other = bare_stream(), bare_stream()
        self.memory = int(hip.hipMalloc(4096)[1])
        self.event = hip.hipEventCreateWithFlags(2)[1]
        hip.hipEventRecord(self.event, self.other)
        self.graphs = []


@pytest.fixture
def scene():
    scene = Scene()
    yield scene
    for graph in scene.graphs:
        graph.reset()  # while there is the stream
    hip.hipFree(scene.memory)
    hip.hipEventDestroy(scene.event)
    for stream in (scene.stream, scene.other):
        answer("hipStreamDestroy", stream)
    answer("hipGetLastError")


def waits(scene):
    hip.hipStreamSynchronize(scene.stream)  # breaks


def waits_for_the_device(scene):
    hip.hipDeviceSynchronize()  # breaks


def waits_for_an_event(scene):
    hip.hipEventSynchronize(scene.event)  # breaks


def waits_for_another_stream(scene):
    hip.hipStreamSynchronize(scene.other)  # breaks


def asks(scene):
    hip.hipStreamQuery(scene.stream)  # breaks


def allocates(scene):
    hip.hipMalloc(64)  # breaks


def allocates_pinned(scene):
    hip.hipHostMalloc(64, 0)  # breaks


def frees(scene):
    hip.hipFree(scene.memory)  # breaks


def fills_at_once(scene):
    hip.hipMemset(scene.memory, 1, 64)  # breaks


def copies_at_once(scene):
    hip.hipMemcpy(scene.memory, bytearray(16), 16, hip.hipMemcpyKind.hipMemcpyHostToDevice)  # breaks


def through_ctypes(scene):
    answer("hipStreamQuery", scene.stream)  # breaks


def with_our_stream(scene):
    ag.current_stream().synchronize()  # breaks


FAULTS = {
    waits: "hipStreamSynchronize waits for work that is only being recorded",
    waits_for_the_device: "hipDeviceSynchronize waits for the whole device",
    waits_for_an_event: "hipEventSynchronize waits for an event, or asks for it, which the capture forbids",
    waits_for_another_stream: "hipStreamSynchronize waits for a stream that is not captured, which the",
    asks: "hipStreamQuery asks whether work is done",
    allocates: "hipMalloc allocates memory from the driver",
    allocates_pinned: "hipHostMalloc allocates memory from the driver",
    frees: "hipFree gives memory back",
    fills_at_once: "hipMemset goes to the legacy default stream, and waits",
    copies_at_once: "hipMemcpy goes to the legacy default stream, and waits",
    with_our_stream: "waits for work that is only being recorded",
}


def diagnosed(scene):
    scene.graphs.append(ag.Graph(stream=scene.stream, backend="hip", observe=ag.diagnose()))
    return scene.graphs[-1]


@pytest.mark.promise("diagnosis-names-the-call")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_named(fault, scene):
    named_after_work(fault, FAULTS[fault], diagnosed, scene)


def test_a_call_in_a_helper_is_named_with_the_line_of_the_helper(scene):
    error = broken_by(through_ctypes, diagnosed(scene), scene)
    assert "bench.py" in error.calls[0].file
    assert "in through_ctypes" in error.calls[0].stack


def test_the_fork_that_is_not_joined_is_named(scene):
    def forks():
        side = ag.Stream(like=ag.current_stream())
        side.wait(ag.current_stream())  # breaks
        side.fill(scene.memory, 1, 64)

    assert named(forks, diagnosed(scene)).reason == "unjoined"


def test_another_thread_is_named(scene):
    def watchdog():
        hip.hipDeviceSynchronize()  # breaks
        hip.hipGetDevice()

    named(watchdog, diagnosed(scene), thread="dog")


def test_a_right_program_is_not_accused(scene):
    graph = diagnosed(scene)
    with graph:
        stream = ag.current_stream()
        side = ag.Stream(like=stream)
        side.wait(stream)
        side.fill(scene.memory, 1, 64)
        stream.wait(side)
        stream.fill(scene.memory, 2, 64)
        hip.hipMemGetInfo()
    assert graph.num_nodes == 2


def test_every_call_of_our_streams_is_named_in_one_run(scene):
    def body():
        stream = ag.current_stream()
        stream.fill(scene.memory, 7, 64)
        stream.synchronize()  # breaks
        asks_again(stream)
        stream.fill(scene.memory, 8, 64)

    def asks_again(stream):
        hip.hipMemGetInfo()
        stream.query()  # breaks

    scene.graphs.append(ag.Graph(stream=scene.stream, backend="hip"))
    with pytest.raises(ag.CaptureError) as raised, ag.diagnose(all=True), scene.graphs[-1]:
        body()
    assert [(each.file, each.line) for each in raised.value.calls] == [marked(body), marked(asks_again)]
    assert scene.graphs[-1].state == "empty"


# ---- what it costs -------------------------------------------------------------------------------


def test_python_is_asked_only_without_the_extension(scene, monkeypatch):
    asked = asked_while(HipBackend, diagnosed(scene), int(scene.memory), monkeypatch)
    assert (asked > 200) is (observation.fast is None), asked
    assert asked
