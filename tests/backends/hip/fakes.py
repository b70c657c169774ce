"""A HIP runtime of a few lines, for what none does on purpose: failing calls, old versions, interrupts."""

from enum import IntEnum
from types import SimpleNamespace

from accelerator_graph.backends._hip import driver
from accelerator_graph.backends._hip.launch import Executable
from accelerator_graph.backends._hip.library import _SIGNATURES, _TEXTS
from accelerator_graph.backends.hip import HipBackend

PREFIX = "hip"
PLACE = 3
"""The device of the stream."""


class FakeRuntime:
    """One thread, one stream (9) of device 3, and the caller's device 5. Graph 21 has one node, 41."""

    path = "libfake.so"

    def __init__(self):
        self.device = 5
        self.mode = 0
        self.capturing = 0
        self.graphs = 0
        self.graph = 21
        self.end_code = 0
        self.seen = []
        self.fail = ""
        self.missing = set()
        self.last_error = 0

    def function(self, name):
        if name in self.missing:
            raise AttributeError(name)

        def answered(*args):
            self.seen.append((name, self.device, self.mode))
            if name == "hipGetLastError":
                code, self.last_error = self.last_error, 0
                return code
            if name == self.fail:
                self.last_error = 1
                return 1
            code = getattr(self, f"_{name}", lambda *args: 0)(*args)
            if name not in _TEXTS and code:
                self.last_error = code
            return code

        answered.argtypes = {**_SIGNATURES, **_TEXTS}[name]
        return answered

    def _hipGetErrorString(self, code):
        return b"some error"

    def _hipGetDeviceCount(self, count):
        count._obj.value = 6
        return 0

    def _hipGetDevice(self, device):
        device._obj.value = self.device
        return 0

    def _hipSetDevice(self, device):
        self.device = device
        return 0

    def _hipStreamGetDevice(self, stream, device):
        device._obj.value = 3
        return 0

    def _hipThreadExchangeStreamCaptureMode(self, mode):
        self.mode, mode._obj.value = mode._obj.value, self.mode
        return 0

    def _hipStreamIsCapturing(self, stream, status):
        status._obj.value = self.capturing
        return 0

    def _hipStreamBeginCapture(self, stream, mode):
        self.capturing = 1
        return 0

    def _hipStreamQuery(self, stream):
        if self.capturing:
            self.capturing = 2
            return 900
        return 0

    def _hipStreamEndCapture(self, stream, graph):
        if not self.capturing:
            graph._obj.value = 0xBAD
            return 401
        if self.end_code or self.capturing == 2:  # both leave the stream as it is: see `_reset_stream`
            code, self.end_code = self.end_code or 901, 0
            graph._obj.value = 0xBAD
            return code
        self.capturing = 0
        self.graphs += bool(self.graph)
        graph._obj.value = self.graph
        return 0

    def _hipGraphDestroy(self, graph):
        assert graph == self.graph, "there is no such graph"
        self.graphs -= 1
        return 0

    def _hipGraphGetRootNodes(self, graph, nodes, count):
        count._obj.value = 1
        return 0

    def _hipGraphGetNodes(self, graph, nodes, count):
        count._obj.value = 1
        if nodes is not None:
            nodes[0] = 41
        return 0

    def _hipGraphGetEdges(self, graph, sources, targets, count):
        count._obj.value = 0
        return 0

    def _hipGraphNodeGetType(self, node, kind):
        kind._obj.value = 99
        return 0

    def _hipGraphInstantiateWithFlags(self, executable, graph, flags):
        assert flags == 1
        executable._obj.value = 31
        return 0

    def _hipStreamCreateWithPriority(self, stream, flags, priority):
        stream._obj.value = 61
        return 0

    def _hipEventCreateWithFlags(self, event, flags):
        event._obj.value = 51
        return 0


API = SimpleNamespace(
    hipError_t=IntEnum("hipError_t", {"hipErrorX": 1, "hipErrorIllegalState": 401, "hipErrorUnjoined": 904}),
    ihipStream_t=type("ihipStream_t", (type("Pointer", (), {}),), {}),
    hipStreamNonBlocking=1,
    hipMemcpyKind=IntEnum("kinds", {"hipMemcpyDefault": 4}),
    hipEventDisableTiming=2,
    hipGraphDebugDotFlags=IntEnum("dot", {"hipGraphDebugDotFlagsVerbose": 1}),
    hipGraphInstantiateFlags=IntEnum("flags", {"hipGraphInstantiateFlagAutoFreeOnLaunch": 1}),
)


def untouched(runtime):
    assert (runtime.device, runtime.mode, runtime.last_error) == (5, 0, 0)


def graph():
    return driver.Graph(21, 3)


def executable():
    return Executable(31, 3)


def faked(monkeypatch):
    """A backend and the runtime of a few lines that it calls."""
    runtime = FakeRuntime()
    monkeypatch.setattr(driver, "import_hip", lambda: API)
    monkeypatch.setattr(driver, "Library", lambda: runtime)
    backend = HipBackend()
    backend.name = "hip"
    backend.driver = driver.Driver("hip")
    backend.driver.stream_type, backend.driver.pointer_type = int, bytes
    runtime.seen.clear()
    return backend, runtime
