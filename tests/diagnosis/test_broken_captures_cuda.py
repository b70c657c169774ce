"""Which call breaks a capture: on the CUDA driver, through its binding, which returns codes."""

import ctypes
import inspect
import re
import sys
import threading
import time

import pytest

from lanes import require

pytestmark = [require("cuda"), pytest.mark.usefixtures("answered")]

from cuda.bindings import driver

import accelerator_graph as ag
from accelerator_graph import interop
from accelerator_graph.backends.cuda import CudaBackend
from accelerator_graph.diagnosis._tracing import observation
from accelerator_graph.interop.base import Inspectable
from accelerator_graph.testing.works.cuda import call, device
from diagnosis.native import starter
from diagnosis.planted import asked_while, broken_by, library, marked, named, named_after_work

with_names = sys.version_info >= (3, 12)
"""Before, the interpreter does not report calls that Cython makes, and names are read from the source."""


class Scene:
    """A blocking stream, memory, and a graph with its executable."""

    def __init__(self):
        self.context = device(0).context
        call(driver.cuCtxSetCurrent, self.context)
        self.stream = call(driver.cuStreamCreate, 0)
        self.other = call(driver.cuStreamCreate, 1)
        self.memory = call(driver.cuMemAlloc, 4096)
        self.event = call(driver.cuEventCreate, 2)
        call(driver.cuEventRecord, self.event, self.other)
        with ag.Graph(keep_graph=True, stream=int(self.other)) as self.graph:
            ag.current_stream().fill(int(self.memory), 1, 64)
        self.executable = call(driver.cuGraphInstantiate, driver.CUgraph(self.graph.raw_graph()), 0)
        self.graphs = [self.graph]


@pytest.fixture
def scene():
    scene = Scene()
    yield scene
    for graph in scene.graphs:
        graph.reset()  # while there are the streams
    driver.cuGraphExecDestroy(scene.executable)
    driver.cuMemFree(scene.memory)
    driver.cuEventDestroy(scene.event)
    for stream in (scene.stream, scene.other):
        call(driver.cuStreamDestroy, stream)


def waits(scene):
    driver.cuStreamSynchronize(scene.stream)  # breaks


def waits_for_the_device(scene):
    driver.cuCtxSynchronize()  # breaks


def waits_for_an_event(scene):
    driver.cuEventSynchronize(scene.event)  # breaks


def waits_for_another_stream(scene):
    driver.cuStreamSynchronize(scene.other)  # breaks


def asks_another_stream(scene):
    driver.cuStreamQuery(int(scene.other))  # breaks


def asks(scene):
    driver.cuStreamQuery(scene.stream)  # breaks


def asks_about_the_stream(scene):
    driver.cuStreamGetId(scene.stream)  # breaks


def allocates(scene):
    driver.cuMemAlloc(64)  # breaks


def frees(scene):
    driver.cuMemFree(scene.memory)  # breaks


def fills_at_once(scene):
    driver.cuMemsetD8(scene.memory, 1, 16)  # breaks


def uses_the_legacy_stream(scene):
    driver.cuMemsetD8Async(scene.memory, 1, 64, 0)  # breaks


def instantiates(scene):
    driver.cuGraphInstantiate(driver.CUgraph(scene.graph.raw_graph()), 0)  # breaks


def destroys(scene):
    driver.cuGraphExecDestroy(scene.executable)  # breaks


def launches(scene):
    driver.cuGraphLaunch(scene.executable, scene.stream)  # breaks


def waits_outside(scene):
    driver.cuStreamWaitEvent(scene.stream, scene.event, 0)  # breaks


def adds_a_callback(scene):
    driver.cuStreamAddCallback(scene.stream, CALLBACK, 0, 0)  # breaks


def ends_it(scene):
    driver.cuGraphDestroy(driver.cuStreamEndCapture(scene.stream)[1])  # breaks


CALLBACK = ctypes.cast(
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(lambda *_: None), ctypes.c_void_p
).value


def in_a_finalizer(scene):
    class Owner:
        def __del__(self):
            driver.cuMemFree(0x10)  # breaks

    owner = Owner()
    del owner
    driver.cuCtxGetCurrent()


def in_arguments(scene):
    return [len(str(driver.cuStreamQuery(scene.stream))), driver.cuCtxGetCurrent()]  # breaks


def through_ctypes(scene):
    ctypes.CDLL("libcuda.so.1").cuCtxSynchronize()  # breaks


FAULTS = {
    waits: "cuStreamSynchronize waits for work that is only being recorded; call it before the capture",
    waits_for_the_device: "cuCtxSynchronize waits for the whole device",
    waits_for_an_event: "cuEventSynchronize waits for an event, or asks for it, which the capture forbids",
    waits_for_another_stream: "cuStreamSynchronize waits for a stream that is not captured, which the thread",
    asks_another_stream: "cuStreamQuery asks about a stream that is not captured, which the thread",
    asks: "cuStreamQuery asks whether work is done",
    asks_about_the_stream: "cuStreamGetId asks about a stream that is being captured",
    allocates: "cuMemAlloc allocates memory from the driver; allocate before the capture",
    frees: "cuMemFree gives memory back to the driver",
    fills_at_once: "cuMemsetD8 goes to the legacy default stream",
    uses_the_legacy_stream: "cuMemsetD8Async goes to a stream that disturbs the capture",
    instantiates: "cuGraphInstantiate makes an executable",
    destroys: "cuGraphExecDestroy destroys an executable graph; keep it until",
    launches: "cuGraphLaunch replays a graph into the capture",
    waits_outside: "cuStreamWaitEvent waits for work outside of the capture",
    adds_a_callback: "cuStreamAddCallback adds a callback",
    ends_it: "cuStreamEndCapture ends a capture that this call did not begin",
    in_a_finalizer: "cuMemFree gives memory back",
    in_arguments: "cuStreamQuery asks",
    through_ctypes: "cuCtxSynchronize waits for the whole device",
}


def diagnosed(scene, stream=None):
    scene.graphs.append(ag.Graph(stream=int(stream or scene.stream), observe=ag.diagnose()))
    return scene.graphs[-1]


@pytest.mark.promise("diagnosis-names-the-call")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_named(fault, scene):
    named_after_work(fault, FAULTS[fault], diagnosed, scene)


def test_the_fork_that_is_not_joined_is_named(scene):
    def forks():
        stream = ag.current_stream()
        joined, side = ag.Stream(like=stream), ag.Stream(like=stream)
        joined.wait(stream)
        joined.fill(int(scene.memory), 1, 64)
        stream.wait(joined)
        side.wait(stream)  # breaks
        side.fill(int(scene.memory), 1, 64)

    error = named(forks, diagnosed(scene))
    assert error.reason == "unjoined"
    assert "let the captured stream wait for it after its last work" in str(error)


@pytest.mark.skipif(not with_names, reason="the interpreter does not report calls that Cython makes")
def test_a_fork_through_the_binding_is_named(scene):
    def forks():
        call(driver.cuEventRecord, scene.event, scene.stream)
        driver.cuStreamWaitEvent(scene.other, scene.event, 0)  # breaks
        driver.cuMemsetD8Async(scene.memory, 1, 64, scene.other)

    assert named(forks, diagnosed(scene)).reason == "unjoined"


def test_the_library_that_was_called_is_named_too(scene, tmp_path):
    source = "from cuda.bindings import driver\n\ndef helper():\n    return driver.cuMemAlloc(64)\n"
    helper = library(tmp_path, source)["helper"]

    def calls_a_library():
        helper()  # breaks

    [found] = named(calls_a_library, diagnosed(scene)).calls
    assert found.library[0].endswith("planted_library.py")
    assert found.library[1:] == (4, "helper")
    assert found.call.startswith("helper > ")


def test_another_thread_is_named(scene):
    def watchdog():
        driver.cuCtxSetCurrent(scene.context)
        driver.cuCtxSynchronize()  # breaks
        driver.cuCtxGetCurrent()

    named(watchdog, diagnosed(scene), thread="dog")


@pytest.mark.parametrize("waits", [True, False])
def test_a_thread_that_ran_before_is_named(scene, waits):
    go, went = threading.Event(), threading.Event()

    def watchdog():
        driver.cuCtxSetCurrent(scene.context)
        while not go.wait(0.01):
            pass
        driver.cuCtxSynchronize()  # breaks
        went.set()

    def body():
        go.set()
        while not waits and not went.is_set():
            pass
        assert went.wait(120)

    thread = threading.Thread(target=watchdog, name="dog")
    thread.start()
    try:
        error = broken_by(body, diagnosed(scene))
    finally:
        go.set()
        thread.join()
    if with_names:
        assert [(each.file, each.line, each.thread) for each in error.calls] == [(*marked(watchdog), "dog")]
    else:  # its stack is seen if it is still in the call, else only that it has run
        assert "thread 'dog'" in str(error)


def test_a_thread_without_python_is_told_from_the_calls_of_python(scene, tmp_path):
    start, over = starter(tmp_path)
    cuda = ctypes.CDLL("libcuda.so.1")

    def body():
        assert start(cuda.cuStreamSynchronize, int(scene.stream), 100_000) == 0
        while not over.value:
            time.sleep(0.01)

    error = broken_by(body, diagnosed(scene))
    assert error.calls == ()
    assert "in test_a_thread_without_python" in str(error)
    assert "and nobody saw the call that broke it; look at threads that run no Python code" in str(error)


def test_a_loop_is_not_accused_of_what_a_thread_does(scene, tmp_path):
    start, over = starter(tmp_path)
    cuda = ctypes.CDLL("libcuda.so.1")

    def body():
        assert start(cuda.cuStreamSynchronize, int(scene.stream), 100_000) == 0
        rounds = 0
        while rounds < 10_000_000 and not over.value:
            rounds += 1
            rounds *= 1

    error = broken_by(body, diagnosed(scene))
    assert "tests a value" not in str(error)
    assert re.search("threads? that runs? no Python code", str(error)), error


def test_a_right_program_is_not_accused(scene):
    """What a capture permits, with errors of its own that break nothing."""
    graph = diagnosed(scene, scene.other)
    with graph:
        stream = ag.current_stream()
        side = ag.Stream(like=stream)
        side.wait(stream)
        side.fill(int(scene.memory), 1, 64)
        stream.wait(side)
        stream.fill(int(scene.memory), 2, 64)
        assert int(driver.cuCtxGetDevice()[0]) == 0
        assert int(driver.cuMemGetInfo()[0]) == 0
        assert int(driver.cuStreamBeginCapture(scene.other, driver.CUstreamCaptureMode(0))[0]) == 401
        with pytest.raises(ValueError, match="0 to 255"):
            stream.fill(int(scene.memory), 300, 64)
    assert graph.num_nodes == 2


# ---- every call ----------------------------------------------------------------------------------


def makes_many_calls(scene, found):
    stream = ag.current_stream()
    stream.fill(int(scene.memory), 7, 64)
    stream.synchronize()  # 0
    found.append(contents_of(scene))
    stream.fill(int(scene.memory), 8, 64)
    _, memory = driver.cuMemAlloc(64)  # 1
    driver.cuMemFree(memory)  # 2
    driver.cuStreamSynchronize(scene.stream)  # 3
    found.append(contents_of(scene))
    driver.cuStreamQuery(scene.other)  # 4
    driver.cuMemsetD8Async(scene.memory, 9, 64, scene.stream)
    driver.cuCtxSynchronize()  # 5


def contents_of(scene):
    """Read the memory, as it can be done in a capture, too."""
    contents = (ctypes.c_ubyte * 64)()
    ctypes.CDLL("libcuda.so.1").cuMemcpyDtoH_v2(contents, ctypes.c_uint64(int(scene.memory)), 64)
    return set(contents)


def diagnosed_at_once(scene, stream):
    scene.graphs.append(ag.Graph(stream=int(stream)))
    return ag.diagnose(all=True), scene.graphs[-1]


@pytest.mark.skipif(not with_names, reason="the interpreter does not report calls that Cython makes")
def test_every_call_is_named_in_one_run(scene):
    switch, graph = diagnosed_at_once(scene, scene.other)
    scene.stream, scene.other = scene.other, scene.stream
    found = []
    with pytest.raises(ag.CaptureError) as raised, switch, graph:
        makes_many_calls(scene, found)
    lines, first = inspect.getsourcelines(makes_many_calls)
    marks = [number for number, line in enumerate(lines, first) if re.search(r"# \d$", line.rstrip())]
    assert [each.line for each in raised.value.calls] == marks, raised.value
    assert "6 calls of its code can't be captured" in str(raised.value)
    assert found == [{7}, {8}]
    assert graph.state == "empty"
    assert driver.cuStreamIsCapturing(scene.stream)[1] == 0


def test_a_call_that_can_not_be_foreseen_ends_the_list(scene):
    def body():
        ag.current_stream().synchronize()  # breaks
        driver.cuStreamAddCallback(scene.stream, CALLBACK, 0, 0)
        driver.cuCtxGetCurrent()

    switch, graph = diagnosed_at_once(scene, scene.stream)
    with pytest.raises(ag.CaptureError) as raised, switch, graph:
        body()
    first = marked(body)[1]
    assert [each.line for each in raised.value.calls] == [first, first + 1]
    assert "The list ends here, since the rest of the code could not be captured: " in str(raised.value)


# ---- work that escapes ---------------------------------------------------------------------------


class Reports(Inspectable):
    """A framework that reports its operations: each name that is given to `report`, on the stream given."""

    api_version = 1
    report = None

    def backend(self):
        return "cuda"

    def operations(self, seen):
        Reports.report = seen
        return lambda: setattr(Reports, "report", None)


class IsAsked(Inspectable):
    """A framework whose operations are the calls of `abs`, on its current stream."""

    api_version = 1
    current = 0, 0

    def backend(self):
        return "cuda"

    def current_stream(self, device=None):
        return self.current

    def use_stream(self, handle, device):
        return lambda: None

    def enqueues(self, function, first):
        return function is abs


@pytest.fixture
def framework(request, monkeypatch):
    name = f"planted_{request.param.__name__.lower()}"
    monkeypatch.setitem(sys.modules, name, object())
    interop.register(name, request.param)
    yield request.param
    interop.unregister(name)


@pytest.mark.promise("escaped-work-is-named")
@pytest.mark.parametrize("framework", [Reports], indirect=True)
def test_operations_on_streams_that_are_not_captured_are_named(framework, scene):
    def body():
        stream = ag.current_stream()
        side = ag.Stream(like=stream)
        side.wait(stream)
        for handle in (stream.handle, side.handle):
            framework.report("right", handle, 0)
        for _ in range(3):
            framework.report("wrong", int(scene.other), 0)  # breaks
        side.fill(int(scene.memory), 1, 64)
        stream.wait(side)

    with pytest.warns(ag.EscapedWorkWarning) as seen, diagnosed(scene):
        body()
    [warning] = seen
    message = str(warning.message)
    assert f"does not have wrong at {__file__}:{marked(body)[1]} in {body.__qualname__}: " in message
    assert f"its work went to stream {int(scene.other):#x} of device 0, which is not captured" in message
    assert warning.filename == __file__
    assert framework.report is None
    error = broken_by(waits, diagnosed(scene), scene)
    assert error.calls
    assert framework.report is None


@pytest.mark.parametrize("framework", [IsAsked], indirect=True)
def test_a_framework_is_asked_after_its_own_calls(framework, scene, monkeypatch):
    def body():
        ag.current_stream().fill(int(scene.memory), 1, 64)
        abs(-1)  # breaks
        round(1.0)

    monkeypatch.setattr(framework, "current", (int(scene.other), 0))
    with pytest.warns(ag.EscapedWorkWarning, match=f":{marked(body)[1]} in ") as seen, diagnosed(scene):
        body()
    assert len(seen) == 1
    monkeypatch.setattr(framework, "current", (int(scene.stream), 0))
    with diagnosed(scene):
        body()


# ---- what it costs -------------------------------------------------------------------------------


def test_python_is_asked_only_without_the_extension(scene, monkeypatch):
    asked = asked_while(CudaBackend, diagnosed(scene), int(scene.memory), monkeypatch)
    assert (asked > 200) is (observation.fast is None), asked
    assert asked
