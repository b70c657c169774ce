"""The suites' shared code for a vendor: direct calls of the driver, and graphs of small nodes."""

from __future__ import annotations

import ctypes
from functools import cache

import _native
from _measure import loop

import accelerator_graph as ag

BIND = "accelerator_graph: bind()"
REPLAY = "accelerator_graph: replay()"
PTX = b"""
.version 6.4
.target sm_50
.address_size 64
.visible .entry nothing() { ret; }
"""


def burst(nodes):
    """Return how many launches can be enqueued without waiting, so that only the host is measured."""
    return 20 if nodes <= 100 else 10 if nodes <= 1000 else 2 if nodes <= 10_000 else 1


class Scene:
    """A vendor's driver."""

    backend: str
    bare: str  # the name of the binding's call

    def stream(self):
        return ag.Stream(backend=self.backend)

    def captured(self, nodes, stream, **how):
        """Return a graph of this library with a chain of so many nodes."""
        graph = ag.Graph(keep_graph=True, stream=stream, **how)
        with graph:
            self.enqueue(stream.handle, nodes)
        if graph.num_nodes != nodes:
            raise RuntimeError(f"{graph.num_nodes} nodes were captured instead of {nodes}")
        graph.instantiate()
        return graph

    def in_c(self, graph, stream):
        """Return a variant: the loop in C over the launch of a graph."""
        exe, handle = graph.raw_executable(), stream.handle
        return lambda calls: _native.run("loop", self.launch, exe, handle, calls)

    def in_c_synchronized(self, graph, stream):
        """Return a variant: the loop in C over launch and synchronise."""
        exe, handle = graph.raw_executable(), stream.handle
        return lambda calls: _native.run(
            "loop_synchronized", self.launch, self.synchronize, exe, handle, calls
        )

    def minimal(self, graph, stream):
        return _native.minimal(self.launch, graph.raw_executable(), stream.handle)


class Cuda(Scene):
    """CUDA, through cuda.bindings. The nodes are empty kernels."""

    backend = "cuda"
    bare = "cuda.bindings, typed handles"

    def __init__(self):
        from cuda.bindings import driver

        self.driver = driver
        self.call("cuInit", 0)
        self.device = self.call("cuDeviceGet", 0)
        self.context = self.call("cuDevicePrimaryCtxRetain", self.device)
        self.use()
        self.kernel = self.call("cuModuleGetFunction", self.call("cuModuleLoadData", PTX), b"nothing")
        self.launch = self._address(b"cuGraphLaunch")
        self.synchronize = self._address(b"cuStreamSynchronize")
        self.enqueue(0, 1)
        self.wait()

    def _address(self, name):
        return int(self.call("cuGetProcAddress", name, 12000, 0)[0])

    def call(self, function, *args):
        """Call a function of the driver and return its results."""
        code, *answer = getattr(self.driver, function)(*args)
        if int(code):
            raise RuntimeError(f"{function} answers {code.name}")
        return answer[0] if len(answer) == 1 else answer

    def use(self):
        """Make the device's context current on the calling thread."""
        self.call("cuCtxSetCurrent", self.context)

    def wait(self):
        """Wait for everything on the device."""
        self.call("cuCtxSynchronize")

    def enqueue(self, handle, nodes):
        """Launch so many empty kernels, and check the last launch. All variants do exactly this."""
        launch, kernel, stream = self.driver.cuLaunchKernel, self.kernel, self.driver.CUstream(handle)
        for _ in range(nodes):
            answer = launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)
        if int(answer[0]):
            raise RuntimeError(f"cuLaunchKernel answers {answer[0].name}")

    def typed(self, graph, stream):
        """Return the binding's launch function, and the handles in the form that it takes."""
        return self.driver.cuGraphLaunch, self.driver.CUgraphExec(graph.raw_executable()), stream.native

    def bare_synchronize(self, stream):
        function, native = self.driver.cuStreamSynchronize, stream.native
        return lambda: function(native)

    def begin(self, stream):
        mode = self.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self.call("cuStreamBeginCapture", stream, mode)

    def end(self, stream):
        return self.call("cuStreamEndCapture", stream)

    def instantiate(self, graph):
        flags = self.driver.CUgraphInstantiate_flags
        wanted = (
            flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
            | flags.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
        )
        return self.call("cuGraphInstantiate", graph, wanted)

    def destroy(self, graph, executable=None):
        if executable is not None:
            self.call("cuGraphExecDestroy", executable)
        self.call("cuGraphDestroy", graph)

    def free_memory(self):
        """Return how many bytes of the device are free."""
        self.wait()
        return self.call("cuMemGetInfo")[0]


class Hip(Scene):
    """HIP, through hip-python. The nodes are fills of 64 bytes."""

    backend = "hip"
    bare = "hip-python, typed handles"

    def __init__(self):
        from hip import hip

        self.hip = hip
        self.backend_of = ag.backends.get("hip")
        self.cell = self.call("hipMalloc", 64)
        function = self.backend_of.driver.function
        self.launch = ctypes.cast(function("hipGraphLaunch"), ctypes.c_void_p).value
        self.synchronize = ctypes.cast(function("hipStreamSynchronize"), ctypes.c_void_p).value

    def call(self, function, *args):
        code, *answer = getattr(self.hip, function)(*args)
        if int(code):
            raise RuntimeError(f"{function} answers {code.name}")
        return answer[0] if len(answer) == 1 else answer

    def use(self):
        """Do nothing: a thread has a device from the start."""

    def wait(self):
        self.call("hipDeviceSynchronize")

    def enqueue(self, handle, nodes):
        fill, cell, stream = self.hip.hipMemsetAsync, self.cell, self.hip.ihipStream_t.fromObj(handle)
        for _ in range(nodes):
            fill(cell, 1, 64, stream)

    def typed(self, graph, stream):
        exe = self.hip.hipGraphExec_t(graph.raw_executable())
        return self.hip.hipGraphLaunch, exe, stream.native

    def bare_synchronize(self, stream):
        function, native = self.hip.hipStreamSynchronize, stream.native
        return lambda: function(native)


@cache
def scene_of(backend):
    return {"cuda": Cuda, "hip": Hip}[backend]()


def replays(scene, graph, stream):
    """Return the variants of one launch that need no framework, the loop in C first."""
    launch, executable, native = scene.typed(graph, stream)
    return {
        "C loop": scene.in_c(graph, stream),
        BIND: loop(graph.bind(stream)),
        REPLAY: loop(graph.replay),
        scene.bare: loop(launch, executable, native),
    }


def in_c(call):
    """Return True if a callable of `bind` is the C extension's."""
    return type(call).__module__ == "accelerator_graph._core._fast"
