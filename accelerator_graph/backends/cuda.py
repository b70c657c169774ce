"""CUDA, through ``cuda.bindings`` of cuda-python.

A stream is a ``CUstream``, ours or anyone's. Graphs, executables, events and captures remember the
context that they belong to, so that they can be used and released from any thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Set
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar, Literal

from ..errors import BackendUnavailableError, capture_error
from ._cuda import capture as _capture
from ._cuda import nodes as _nodes
from ._cuda.capture import Capture
from ._cuda.driver import PER_THREAD_STREAM, SPECIAL_STREAMS, Driver, Event, Executable, Graph, Handle
from ._cuda.probe import probe
from ._shared.kernels import Arguments, extent, kernel_handle, shared_size
from .base import (
    Availability,
    Capability,
    CaptureInfo,
    CaptureStatus,
    GraphEdge,
    GraphNode,
    LaunchFunction,
    Lends,
    SameContext,
)
from .memory import memory_of

_LEGACY_STREAMS = (0, 1)
_NOT_READY = 600
_STATUSES = (CaptureStatus.NONE, CaptureStatus.ACTIVE, CaptureStatus.INVALIDATED)
_CAPABILITIES = frozenset(
    (
        Capability.EVENTS,
        Capability.ENQUEUE,
        Capability.HANDLES,
        Capability.NODES,
        Capability.UPLOAD,
    )
)


class CudaBackend(Lends):
    """NVIDIA GPUs.

    ``launch(kernel, *args, grid, block, shared_bytes=0)`` takes a ``CUfunction``, a ``CUkernel``, a handle
    as `int` or an object that has one as `handle`. Arguments are ctypes scalars and structures, NumPy
    scalars, ``CUdeviceptr`` and objects with ``__cuda_array_interface__``, for which their pointer is passed.
    """

    __slots__ = ("_driver",)

    api_version: ClassVar[int] = 1
    recording: ClassVar[Literal["stream", "explicit"]] = "stream"
    capture_modes: ClassVar[tuple[str, ...]] = ("thread_local", "global", "relaxed")
    stream_modules: ClassVar[frozenset[str]] = frozenset(("cuda",))
    cuda_like: ClassVar[bool] = True
    serialises_replays: ClassVar[bool] = True

    # ---- being there ---------------------------------------------------------------------------

    @classmethod
    def probe(cls) -> Availability:
        """Look for cuda-python, the driver and a device. Initialises nothing and never raises."""
        return probe()

    def open(self) -> None:
        """Initialise the driver. Contexts are made later, on the first use of a device."""
        reason = self.probe().reason
        cause = None
        if not reason:
            try:
                self._driver = Driver(self.name)
                if self._driver.device_count == 0:
                    reason = "the driver finds no device. Attach one, or correct CUDA_VISIBLE_DEVICES"
            except Exception as error:
                reason, cause = f"the driver can't be initialised: {str(error).rstrip('.')}", error
        if reason:
            raise BackendUnavailableError(
                f"backend {self.name!r} is not available: {reason}.", reasons={self.name: reason}
            ) from cause

    def capabilities(self, device: int) -> Set[str]:
        """Return the capabilities, the same on every device."""
        return _CAPABILITIES

    def device_count(self) -> int:
        """Return how many devices there are."""
        return self._driver.device_count

    # ---- streams -------------------------------------------------------------------------------

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Any:
        """Make a non-blocking stream in the primary context of `device`, or in the context of `like`."""
        driver = self._driver
        context = driver.primary_context(device) if like is None else driver.context_of(like)
        with driver.relaxed(context):
            least, greatest = driver.call("cuCtxGetStreamPriorityRange")
            priority = min(max(priority, greatest), least)
            flags = driver.api.CUstream_flags.CU_STREAM_NON_BLOCKING
            return driver.call("cuStreamCreateWithPriority", flags, priority)

    def destroy_stream(self, stream: Any) -> None:
        """Release a stream of ours."""
        self._driver.destroy_stream(stream)

    def device_of(self, stream: Any) -> int:
        """Return the ordinal of a stream's device: the current one for the default streams."""
        return self._driver.device_of(stream)

    def context_id(self, stream: Any) -> int:
        """Return the driver's number for the stream's context."""
        return int(self._driver.call("cuCtxGetId", self._driver.context_of(stream)))

    def synchronize(self, stream: Any) -> None:
        """Wait until all work on the stream is done."""
        with self._driver.current(self._driver.context_of(stream)):
            self._driver.call("cuStreamSynchronize", stream)

    def as_stream(self, obj: object) -> Any | None:
        """Recognise handles and the stream objects of cuda.bindings, those of its runtime included."""
        stream_type = self._driver.api.CUstream
        if type(obj) is stream_type:
            return obj
        if isinstance(obj, stream_type):
            return stream_type(int(obj))
        if isinstance(obj, int) and not isinstance(obj, bool) and 0 <= obj < 1 << 64:
            return stream_type(obj)
        return None

    # ---- capability: events --------------------------------------------------------------------

    def record_event(self, stream: Any) -> Event:
        """Mark the present end of the stream's work with an event that measures no time."""
        driver = self._driver
        context = driver.context_of(stream)
        with driver.current(context):
            flags = driver.api.CUevent_flags.CU_EVENT_DISABLE_TIMING
            event = Event(driver.call("cuEventCreate", flags), context)
            try:
                driver.call("cuEventRecord", event.handle, stream)
            except BaseException:
                driver.answer("cuEventDestroy", event.handle)
                raise
        return event

    def wait_event(self, stream: Any, event: Event) -> None:
        """Let later work on `stream` wait for the event."""
        with self._driver.current(self._driver.context_of(stream)):
            self._driver.call("cuStreamWaitEvent", stream, event.handle, 0)

    def destroy_event(self, event: Event) -> None:
        """Release an event."""
        self._driver.destroy("cuEventDestroy", event)

    def query(self, stream: Any) -> bool:
        """Say whether all work on the stream is done."""
        driver = self._driver
        with driver.current(driver.context_of(stream)):
            answer = driver.answer("cuStreamQuery", stream)
        if answer[0] == _NOT_READY:
            return False
        driver.checked("cuStreamQuery", answer)
        return True

    # ---- capability: enqueue -------------------------------------------------------------------

    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        """Set `nbytes` bytes at `dst` to `value`."""
        target = memory_of(self._address(dst), nbytes, writable=True, device=True)
        if target.nbytes:
            with self._driver.current(self._driver.context_of(stream)):
                self._driver.call("cuMemsetD8Async", target.address, value, target.nbytes, stream)

    def copy(self, stream: Any, dst: Any, src: Any, nbytes: int | None) -> None:
        """Copy `nbytes` bytes between any two memories of the host and its devices."""
        source = memory_of(self._address(src), nbytes, writable=False, device=True)
        target = memory_of(self._address(dst), source.nbytes, writable=True, device=True)
        if source.nbytes:
            with self._driver.current(self._driver.context_of(stream)):
                self._driver.call("cuMemcpyAsync", target.address, source.address, source.nbytes, stream)

    def launch(
        self,
        stream: Any,
        work: Any,
        /,
        *args: Any,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        shared_bytes: int = 0,
    ) -> None:
        """Enqueue a kernel. The values of its arguments are copied before this returns."""
        driver = self._driver
        kernel = driver.api.CUfunction(kernel_handle(work))
        shape = (*extent(grid, "grid"), *extent(block, "block"), shared_size(shared_bytes))
        arguments = Arguments(args, driver.api.CUdeviceptr)
        with driver.current(driver.context_of(stream)):
            driver.call("cuLaunchKernel", kernel, *shape, stream, arguments.pointer, 0)

    def _address(self, obj: Any) -> Any:
        return int(obj) if isinstance(obj, self._driver.api.CUdeviceptr) else obj

    # ---- capture -------------------------------------------------------------------------------

    def capture_status(self, stream: Any) -> CaptureStatus:
        """Say whether the stream is capturing. The legacy stream never is; asking it could answer 906."""
        driver = self._driver
        handle = int(stream)
        if handle in _LEGACY_STREAMS:
            return CaptureStatus.NONE
        if handle != PER_THREAD_STREAM:  # any other stream has its own context
            return _STATUSES[driver.call("cuStreamIsCapturing", stream)]
        with driver.current(driver.context_of(stream)):
            return _STATUSES[driver.call("cuStreamIsCapturing", stream)]

    def capture_info(self, stream: Any) -> CaptureInfo | None:
        """Return the driver's number of the capture that the stream takes part in."""
        if int(stream) in _LEGACY_STREAMS:
            return None
        with self._driver.current(self._driver.context_of(stream)):
            _, number, *_ = self._driver.call("cuStreamGetCaptureInfo", stream)
        return CaptureInfo(int(number)) if int(number) else None

    def capture_begin(self, stream: Any, mode: str) -> Capture:
        """Begin a capture on an idle stream."""
        _refuse_legacy(stream)
        return _capture.begin(self._driver, stream, mode)

    def capture_end(self, token: Capture) -> Graph:
        """End the capture and return the graph."""
        return _capture.end(self._driver, token)

    def capture_abandon(self, token: Capture) -> None:
        """End the capture and throw away what was recorded."""
        _capture.abandon(self._driver, token)

    # ---- graphs and executables ----------------------------------------------------------------

    def instantiate(self, graph: Graph) -> Executable:
        """Make an executable, with the flags that torch uses: unfreed memory is freed at each replay."""
        driver = self._driver
        flags = driver.api.CUgraphInstantiate_flags
        wanted = (
            flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
            | flags.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
        )
        with driver.relaxed(graph.context):
            handle = driver.call("cuGraphInstantiate", graph.handle, wanted)
        return Executable(handle, graph.context)

    def single_executable(self, graph: Graph) -> bool:
        """Say whether the graph allocates or frees memory: the driver allows it one executable then."""
        return any(
            _nodes.kind_of(self._driver, node) in ("mem_alloc", "mem_free")
            for node in _nodes.node_handles(self._driver, graph.handle)
        )

    def replay(self, executable: Executable, stream: Any) -> None:
        """Enqueue one run of the executable on the stream."""
        self.bind(executable, stream)()

    def _replay_in_context(self, executable: Executable, stream: Any) -> None:
        with self._driver.current(executable.context):
            self._driver.call("cuGraphLaunch", executable.handle, stream)

    def bind(self, executable: Executable, stream: Any) -> Callable[[], None]:
        """Return the launch of the executable on the stream as a callable.

        The default streams are those of the context that is current, so it has to be the right one.
        """
        if int(stream) in SPECIAL_STREAMS:
            return partial(self._replay_in_context, executable, stream)
        launch = self._driver.api.cuGraphLaunch
        success = self._driver.success
        failed, broke = self._driver.launch_failed, self._driver.launch_broke
        handle = executable.handle

        def replay() -> None:
            try:
                (code,) = launch(handle, stream)
            except (RuntimeError, ValueError) as error:
                broke(error)
            else:
                if code is not success:
                    failed(code)

        return replay

    def launch_function(self, executable: Executable, stream: Any) -> LaunchFunction | None:
        """Return ``cuGraphLaunch``; for the default streams, which are those of the current context."""
        driver = self._driver
        found = LaunchFunction(driver.launch_address, driver.launch_answered)
        if int(stream) in SPECIAL_STREAMS:
            guard = SameContext(driver.current_address, int(executable.context))
            return found._replace(guard=guard) if found.address and guard.address else None
        return found if found.address else None

    def upload(self, executable: Executable, stream: Any) -> None:
        """Move the executable to the device, in stream order, without running it."""
        with self._driver.relaxed(self._driver.context_of(stream)):
            self._driver.call("cuGraphUpload", executable.handle, stream)

    def destroy_graph(self, graph: Graph) -> None:
        """Release a graph."""
        self._driver.destroy("cuGraphDestroy", graph)

    def destroy_executable(self, executable: Executable) -> None:
        """Release an executable."""
        self._driver.destroy("cuGraphExecDestroy", executable)

    # ---- looking into a graph ------------------------------------------------------------------

    def is_empty(self, graph: Graph) -> bool:
        """Say whether the graph has no root: unlike counting, that takes the driver no walk."""
        _, roots = self._driver.call("cuGraphGetRootNodes", graph.handle, 0)
        return int(roots) == 0

    def node_count(self, graph: Graph) -> int:
        """Return the number of nodes."""
        return _nodes.node_count(self._driver, graph.handle)

    def nodes(self, graph: Graph) -> tuple[list[GraphNode], list[GraphEdge]]:
        """List the nodes, with the names of kernels, and the dependencies."""
        with self._driver.current(graph.context):
            return _nodes.list_nodes(self._driver, graph.handle)

    def dump(self, graph: Graph, path: str, verbose: bool) -> None:
        """Let the driver write the graph to `path` in the DOT language."""
        flags = self._driver.api.CUgraphDebugDot_flags
        wanted = flags.CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE if verbose else 0
        with self._driver.current(graph.context):
            self._driver.call("cuGraphDebugDotPrint", graph.handle, os.fsencode(path), wanted)

    # ---- capability: borrow --------------------------------------------------------------------

    def borrow_graph(self, handle: int, stream: Any) -> Graph:
        """Return somebody else's graph, recorded on this stream."""
        return Graph(self._driver.api.CUgraph(handle), self._driver.context_of(stream))

    def borrow_executable(self, handle: int, stream: Any) -> Executable:
        """Return somebody else's executable."""
        return Executable(self._driver.api.CUgraphExec(handle), self._driver.context_of(stream))

    def relaxed(self, stream: Any) -> AbstractContextManager[None]:
        """Return a context in which this thread disturbs no capture on the stream's device."""
        return self._driver.relaxed(self._driver.context_of(stream))

    def handle_int(self, obj: Any) -> int:
        """Return the driver's handle of a stream, a graph or an executable."""
        return int(obj.handle if isinstance(obj, Handle) else obj)


def _refuse_legacy(stream: Any) -> None:
    if int(stream) in _LEGACY_STREAMS:
        raise capture_error("a capture on the legacy stream can't begin", reason="default_stream")
