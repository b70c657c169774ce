"""A CUDA driver of a few lines, for what none does on purpose: failing calls, old versions, interrupts."""

from enum import IntEnum
from types import SimpleNamespace

from accelerator_graph.backends._cuda.driver import Driver, Executable, Graph
from accelerator_graph.backends.cuda import CudaBackend
from backends.tools import MODES

PREFIX = "cu"
PLACE = 11
"""The context of the stream."""


class FakeApi:
    """One thread, one stream (9) of context 11, and the caller's context 7."""

    CUresult = IntEnum("CUresult", {"CUDA_SUCCESS": 0, "CUDA_ERROR_ILLEGAL_STATE": 401, "CUDA_ERROR_X": 1})
    CUstreamCaptureMode = IntEnum(
        "CUstreamCaptureMode",
        {f"CU_STREAM_CAPTURE_MODE_{mode.upper()}": i for i, mode in enumerate(MODES)},
        start=0,
    )
    CUstream = CUdeviceptr = int
    CUgraphInstantiate_flags = IntEnum(
        "CUgraphInstantiate_flags",
        {
            "CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH": 1,
            "CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY": 8,
        },
    )

    CUgraph = CUgraphExec = int
    CUgraphMem_attribute = SimpleNamespace(
        CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT=0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT=2
    )

    WITHOUT_VALUES = ("cuGraphLaunch", "cuStreamQuery", "cuGraphUpload")

    def __init__(self):
        self.context = 7
        self.mode = 0
        self.capturing = False
        self.graphs = 0
        self.graph = 21
        self.seen = []
        self.fail = ""

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def answered(*args):
            self.seen.append((name, self.context, int(self.mode)))
            if name == self.fail:
                return (self.CUresult.CUDA_ERROR_X, *[None] * (name not in self.WITHOUT_VALUES))
            return getattr(self, f"_{name}", lambda *args: (self.CUresult.CUDA_SUCCESS,))(*args)

        return answered

    def _cuDriverGetVersion(self):
        return self.CUresult.CUDA_SUCCESS, 12020

    def _cuDeviceGetCount(self):
        return self.CUresult.CUDA_SUCCESS, 0

    def _cuStreamIsCapturing(self, stream):
        return self.CUresult.CUDA_SUCCESS, int(self.capturing)

    def _cuCtxGetCurrent(self):
        return self.CUresult.CUDA_SUCCESS, self.context

    def _cuCtxSetCurrent(self, context):
        self.context = context
        return (self.CUresult.CUDA_SUCCESS,)

    def _cuStreamGetCtx(self, stream):
        return self.CUresult.CUDA_SUCCESS, 11

    def _cuStreamGetDevice(self, stream):
        return self.CUresult.CUDA_SUCCESS, 0

    def _cuCtxGetDevice(self):
        return self.CUresult.CUDA_SUCCESS, 0

    def _cuThreadExchangeStreamCaptureMode(self, mode):
        self.mode, before = mode, self.CUstreamCaptureMode(self.mode)
        return self.CUresult.CUDA_SUCCESS, before

    def _cuStreamBeginCapture(self, stream, mode):
        self.capturing = True
        return (self.CUresult.CUDA_SUCCESS,)

    def _cuStreamEndCapture(self, stream):
        if not self.capturing:
            return self.CUresult.CUDA_ERROR_ILLEGAL_STATE, None
        self.capturing = False
        self.graphs += bool(self.graph)
        return self.CUresult.CUDA_SUCCESS, self.graph

    def _cuGraphDestroy(self, graph):
        self.graphs -= 1
        return (self.CUresult.CUDA_SUCCESS,)

    def _cuGraphInstantiate(self, graph, flags):
        assert flags == 9
        return self.CUresult.CUDA_SUCCESS, 31


def untouched(api):
    assert (api.context, api.mode) == (7, 0)


def graph():
    return Graph(21, 11)


def executable():
    return Executable(31, 11)


def faked(monkeypatch):
    """A backend and the driver of a few lines that it calls."""
    api = FakeApi()
    monkeypatch.setattr("accelerator_graph.backends._cuda.driver.import_driver", lambda: api)
    backend = CudaBackend()
    backend.name = "cuda"
    backend.driver = Driver("cuda")
    api.seen.clear()
    return backend, api
