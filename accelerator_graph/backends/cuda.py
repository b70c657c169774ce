"""CUDA, through ``cuda.bindings`` of cuda-python.

A stream is any ``CUstream``, ours or a framework's. Graphs, executables, events and captures remember the
context that they belong to, so that any thread can use and release them.

This module and `hip` mirror each other: they have the same methods in the same order.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from . import base
from ._cuda import capture as _capture
from ._cuda.capture import Capture
from ._cuda.driver import Driver, Event, Executable, Graph, Handle
from ._cuda.launch import launch_function, launcher
from ._cuda.probe import probe
from ._shared import (
    ACTIVE,
    CAPTURE_MODES,
    CAPTURE_STATUSES,
    LEGACY_STREAMS,
    NOT_READY,
    PER_THREAD_STREAM,
    SPECIAL_STREAMS,
    clamped,
    is_handle,
    open_driver,
    refuse_legacy,
)
from .base import (
    Availability,
    Capability,
    CaptureInfo,
    CaptureMode,
    CaptureStatus,
    LaunchFunction,
    NativeCalls,
    StatusFunction,
)
from .mixins import (
    ChangesGraphs,
    ExternalEvents,
    Lends,
    MarksProgress,
    ProfilesGraphs,
    RecordsReplays,
    TimesGraphs,
    UpdatesGraphs,
)


class CudaBackend(
    Lends,
    ExternalEvents,
    MarksProgress,
    TimesGraphs,
    ProfilesGraphs,
    RecordsReplays,
    ChangesGraphs,
    UpdatesGraphs,
):
    """NVIDIA GPUs.

    ``launch(kernel, *args, grid, block, shared_bytes=0)`` takes a ``CUfunction``, a ``CUkernel``, a handle
    as `int` or an object that has one as `handle`. Arguments are ctypes scalars and structures, NumPy
    scalars, ``CUdeviceptr`` and objects with ``__cuda_array_interface__``, for which their pointer is passed.
    """

    __slots__ = ("_driver",)

    api_version: ClassVar[int] = 1
    capture_modes: ClassVar[tuple[CaptureMode, ...]] = CAPTURE_MODES
    stream_modules: ClassVar[frozenset[str]] = frozenset(("cuda",))
    cuda_like: ClassVar[bool] = True
    serialises_replays: ClassVar[bool] = True
    records_graphs: ClassVar[bool] = True

    # ---- being there -----------------------------------------------------------------------------

    _usable: ClassVar[Availability | None] = None
    """The last answer of `probe`, if it was usable: `open` does not probe again."""

    @classmethod
    def probe(cls) -> Availability:
        """Look for cuda-python, the driver and a device. Initialises nothing and never raises."""
        found = probe()
        cls._usable = found if found.usable else None
        return found

    def open(self) -> None:
        """Initialise the driver. A device's context is made on the first use of the device."""
        self._driver = open_driver(
            self.name, self._usable or self.probe(), Driver, "driver", "CUDA_VISIBLE_DEVICES"
        )

    def capabilities(self, device: int) -> Set[str]:
        """Return all capabilities, but for updates by a driver before CUDA 12.3."""
        return self.inherited if self._driver.edges_address else self.inherited - {Capability.UPDATE}

    def device_count(self) -> int:
        """Return how many devices there are."""
        return self._driver.device_count

    # ---- streams ---------------------------------------------------------------------------------

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Any:
        """Make a non-blocking stream in the primary context of `device`, or in the context of `like`."""
        driver = self._driver
        context = driver.primary_context(device) if like is None else driver.context_of(like)
        with driver.relaxed(context):
            priority = clamped(priority, driver.call("cuCtxGetStreamPriorityRange"))
            flags = driver.api.CUstream_flags.CU_STREAM_NON_BLOCKING
            return driver.call("cuStreamCreateWithPriority", flags, priority)

    def destroy_stream(self, stream: Any) -> None:
        """Release a stream that `create_stream` made."""
        self._driver.destroy_stream(stream)

    def device_of(self, stream: Any) -> int:
        """Return the ordinal of a stream's device: the current device for the special streams."""
        return self._driver.device_of(stream)

    def context_id(self, stream: Any) -> int:
        """Return the driver's number for the stream's context."""
        driver = self._driver
        return driver.ask_context(
            (int(stream) in SPECIAL_STREAMS and driver.ask_current()) or driver.context_of(stream)
        )

    def synchronize(self, stream: Any) -> None:
        """Wait until all work on the stream is done."""
        driver = self._driver
        context = driver.context_of(stream)
        if driver.ask_current() == int(context):
            driver.wait(stream)
        else:
            with driver.current(context):
                driver.wait(stream)

    def as_stream(self, obj: object) -> Any | None:
        """Recognise handles and the stream objects of cuda.bindings' driver and runtime."""
        stream_type = self._driver.stream_type
        if type(obj) is stream_type:
            return obj
        if isinstance(obj, stream_type) or is_handle(obj):
            return stream_type(int(obj))
        return None

    # ---- capability: events ----------------------------------------------------------------------

    def record_event(self, stream: Any, *, timed: bool = False) -> Event:
        """Mark the present end of the stream's work."""
        context = self._driver.context_of(stream)
        with self._driver.current(context):
            return Event(self._driver.new_event(stream, timed=timed), context)

    def wait_event(self, stream: Any, event: Event) -> None:
        """Let later work on `stream` wait for the event."""
        with self._driver.current_for(stream):
            self._driver.call("cuStreamWaitEvent", stream, event.handle, 0)

    def destroy_event(self, event: Event) -> None:
        """Release an event."""
        self._driver.destroy("cuEventDestroy", event)

    def query(self, stream: Any) -> bool:
        """Return True if all work on the stream is done."""
        with self._driver.current_for(stream):
            return self._driver.is_done("cuStreamQuery", stream)

    # ---- capability: external events -------------------------------------------------------------

    def external_event(self, stream: Any, *, timed: bool = False) -> Event:
        """Make an event that marks nothing yet."""
        driver, context = self._driver, self._driver.context_of(stream)
        flags = driver.api.CUevent_flags
        wanted = flags.CU_EVENT_DEFAULT if timed else flags.CU_EVENT_DISABLE_TIMING
        return Event(driver.call_in(context, "cuEventCreate", wanted), context)

    def record_external(self, stream: Any, event: Event) -> None:
        """Record an event; in a capture as a node, for which there is a flag that is permitted only there."""
        driver = self._driver
        captured = self.capture_status(stream) is not CaptureStatus.NONE
        with driver.current_for(stream):
            driver.call("cuEventRecordWithFlags", event.handle, stream, int(captured))
            event.capture, event.nodes = _capture.position(driver, stream) if captured else (0, ())

    def wait_external(self, stream: Any, event: Event) -> None:
        """Wait for an event; in a capture by a node, or behind the node that has recorded it there."""
        driver = self._driver
        captured = self.capture_status(stream) is not CaptureStatus.NONE
        with driver.current_for(stream):
            if captured and event.capture and _capture.position(driver, stream)[0] == event.capture:
                _capture.follow(driver, stream, event.nodes, others=True)
            else:
                driver.call("cuStreamWaitEvent", stream, event.handle, int(captured))

    # ---- capability: timing ----------------------------------------------------------------------

    def query_event(self, event: Event) -> bool:
        """Return True if the work before the event is done."""
        with self._driver.current(event.context):
            return self._driver.is_done("cuEventQuery", event.handle)

    def synchronize_event(self, event: Event) -> None:
        """Wait until the work before the event is done."""
        with self._driver.current(event.context):
            self._driver.call("cuEventSynchronize", event.handle)

    def elapsed_time(self, start: Event, end: Event) -> float | None:
        """Return the milliseconds between two events; None if one of them is not done."""
        with self._driver.current(start.context):
            answer = self._driver.answer("cuEventElapsedTime", start.handle, end.handle)
        return None if answer[0] == NOT_READY else float(self._driver.checked("cuEventElapsedTime", answer))

    # ---- capability: enqueue ---------------------------------------------------------------------

    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        """Set `nbytes` bytes at `dst` to `value`."""
        from .memory import memory_of

        target = memory_of(self._address(dst), nbytes, writable=True, device=True)
        if target.nbytes:
            with self._driver.current_for(stream):
                self._driver.call("cuMemsetD8Async", target.address, value, target.nbytes, stream)

    def copy(self, stream: Any, dst: Any, src: Any, nbytes: int | None) -> None:
        """Copy `nbytes` bytes between any two memories of the host and its devices."""
        from .memory import memory_of

        source = memory_of(self._address(src), nbytes, writable=False, device=True)
        target = memory_of(self._address(dst), source.nbytes, writable=True, device=True)
        if source.nbytes:
            with self._driver.current_for(stream):
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
        from ._shared.kernels import Arguments, geometry, kernel_handle

        driver = self._driver
        kernel = driver.api.CUfunction(kernel_handle(work))
        shape = geometry(grid, block, shared_bytes)
        arguments = Arguments(args, driver.pointer_type)
        with driver.current_for(stream):
            driver.call("cuLaunchKernel", kernel, *shape, stream, arguments.pointer, 0)

    def host_memory(self, stream: Any, nbytes: int) -> int:
        """Return the address of pinned memory that all contexts can write."""
        driver = self._driver
        with driver.relaxed_for(stream):
            address = int(driver.call("cuMemHostAlloc", nbytes, driver.api.CU_MEMHOSTALLOC_PORTABLE))
        ctypes.memset(address, 0, nbytes)
        return address

    def _address(self, obj: Any) -> Any:
        return int(obj) if isinstance(obj, self._driver.pointer_type) else obj

    # ---- capture ---------------------------------------------------------------------------------

    def capture_status(self, stream: Any) -> CaptureStatus:
        """Return whether the stream is capturing. The legacy stream never is; asking it may answer 906."""
        driver, handle = self._driver, int(stream)
        if handle in LEGACY_STREAMS:
            return CaptureStatus.NONE
        if handle != PER_THREAD_STREAM:  # any other stream has its own context
            return CAPTURE_STATUSES[driver.ask_status(stream)]
        with driver.current_for(stream):
            return CAPTURE_STATUSES[driver.ask_status(stream)]

    def capture_info(self, stream: Any) -> CaptureInfo | None:
        """Return the driver's number of the capture of the stream, and how many nodes it has recorded."""
        driver = self._driver
        if int(stream) in LEGACY_STREAMS:
            return None
        if driver.capture_info is not None and driver.ask_current() == int(driver.context_of(stream)):
            found = driver.capture_info(stream)
        else:
            with driver.current_for(stream):
                found = _capture.info(driver, stream)
        return None if found is None else CaptureInfo(*found)

    def capture_front(self, stream: Any) -> tuple[int, ...]:
        """Return the handles of the nodes that the stream's next one will follow."""
        with self._driver.current_for(stream):
            return tuple(map(int, _capture.position(self._driver, stream)[1]))

    def native_calls(self, stream: Any) -> NativeCalls:
        """Return calls of the driver itself."""
        return _CudaCalls(self._driver, stream)

    def relaxed(self, stream: Any) -> AbstractContextManager[None]:
        """Return a context in which this thread disturbs no capture on the device of a stream or a graph."""
        driver = self._driver
        return driver.relaxed(stream.context if isinstance(stream, Handle) else driver.context_of(stream))

    def capture_begin(self, stream: Any, mode: CaptureMode) -> Capture:
        """Begin a capture on an idle stream."""
        refuse_legacy(stream)
        return _capture.begin(self._driver, stream, mode)

    def capture_end(self, token: Capture) -> Graph:
        """End the capture and return the graph."""
        return _capture.end(self._driver, token)

    def capture_abandon(self, token: Capture) -> None:
        """End the capture and throw away what was recorded."""
        _capture.abandon(self._driver, token)

    # ---- graphs and executables ------------------------------------------------------------------

    def instantiate(self, graph: Graph) -> Executable:
        """Make an executable."""
        driver = self._driver
        call = "cuGraphInstantiate", graph.handle, driver.instantiate_flags
        return Executable(driver.relaxed(graph.context).run(driver.call, *call), graph.context)

    def single_executable(self, graph: Graph) -> bool:
        """Return True if the graph has nodes with which the driver allows it one executable at a time."""
        from ._cuda.update import single_executable

        return single_executable(self._driver, int(graph.handle))

    def replay(self, executable: Executable, stream: Any) -> None:
        """Enqueue one run of the executable on the stream."""
        launcher(self._driver, executable, stream)()

    def record_graph(self, stream: Any, graph: Graph) -> None:
        """Record a run of the graph on a capturing stream, as a child graph."""
        with self._driver.current_for(stream):
            _capture.record_graph(self._driver, stream, graph.handle)

    def node_setter(self, graph: Graph, executable: Executable, node: int) -> base.NodeSetter | None:
        """Return a callable that changes parameters of a kernel, a copy, a fill or a child graph."""
        from ._cuda.node import node_setter

        with self._driver.current(graph.context):
            return node_setter(self._driver, graph, executable, node)

    def update(self, executable: Executable, former: Graph, graph: Graph) -> base.Misfit | None:
        """Update the executable in place, unless kernels differ or run in clusters."""
        if not self._driver.edges_address:
            raise base.unsupported(self, Capability.UPDATE)
        from ._cuda.update import update

        return update(self._driver, executable, former, graph)

    def destroy_graph(self, graph: Graph) -> None:
        """Release a graph."""
        self._driver.destroy("cuGraphDestroy", graph, disturbs=False)

    def destroy_executable(self, executable: Executable) -> None:
        """Release an executable."""
        self._driver.destroy("cuGraphExecDestroy", executable)

    # ---- looking into a graph --------------------------------------------------------------------

    def nodes(self, graph: Graph) -> base.GraphContents:
        """List the nodes, with their parameters, and the dependencies."""
        from ._cuda.node import list_nodes

        with self._driver.current(graph.context):
            return list_nodes(self._driver, graph.handle)

    def instantiate_timed(
        self, graph: Graph, before: Sequence[int], after: Sequence[int]
    ) -> tuple[Executable, Sequence[Event]]:
        """Make an executable of a copy that has nodes which record events."""
        from ._cuda.timing import instantiate_timed

        return instantiate_timed(self, self._driver, graph, before, after)

    def time_nodes(self, graph: Graph, stream: Any, runs: int) -> Sequence[Mapping[int, tuple[float, float]]]:
        """Run a copy under CUPTI, which ``cupti-python`` binds."""
        from ._cuda.profiler import time_nodes

        return time_nodes(self, graph, stream, runs)

    def parameters(self, graph: Graph) -> Sequence[base.NodeParameters]:
        """Return the parameters of the nodes."""
        from ._cuda.node import parameters

        with self._driver.current(graph.context):
            return parameters(self._driver, graph.handle)

    def profiler_ids(self, graph: Graph, executable: Executable | None) -> Sequence[int]:
        """Return the ids that CUPTI reports, from CUDA 13.1 on; before, there is no asking."""
        from ._cuda.node import profiler_ids

        with self._driver.current(graph.context):
            return profiler_ids(self._driver, graph.handle, executable and executable.handle)

    def device_memory(self, obj: Graph | Executable) -> base.DeviceMemory:
        """Return what the driver reports about the memory of the device. These calls disturb no capture."""
        driver, kinds = self._driver, self._driver.api.CUgraphMem_attribute
        wanted = (kinds.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, kinds.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
        with driver.current(obj.context):
            device = driver.call("cuCtxGetDevice")
            used, reserved = (
                int(driver.call("cuDeviceGetGraphMemAttribute", device, each)) for each in wanted
            )
            free, total = driver.call("cuMemGetInfo")
        return base.DeviceMemory(int(free), int(total), used, reserved)

    def dump(self, graph: Graph, path: str, verbose: bool) -> bool:
        """Let the driver write the graph to `path` in the DOT language."""
        flags = self._driver.api.CUgraphDebugDot_flags
        wanted = flags.CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE if verbose else 0
        with self._driver.current(graph.context):
            self._driver.call("cuGraphDebugDotPrint", graph.handle, os.fsencode(path), wanted)
        return True

    def handle_int(self, obj: Any) -> int:
        """Return the driver's handle of a stream, a graph or an executable."""
        return int(obj.handle if isinstance(obj, Handle) else obj)

    # ---- captures that a framework records -------------------------------------------------------

    def borrow_graph(self, handle: int, stream: Any) -> Graph:
        """Return a graph that its owner has recorded on this stream."""
        return Graph(self._driver.api.CUgraph(handle), self._driver.context_of(stream))

    def borrow_executable(self, handle: int, graph: Graph) -> Executable:
        """Return an executable that stays its owner's."""
        return Executable(self._driver.api.CUgraphExec(handle), graph.context)


class _CudaCalls(NativeCalls):
    """Calls of the driver for one stream."""

    __slots__ = ("_driver", "_stream")

    def __init__(self, driver: Driver, stream: Any) -> None:
        self._driver = driver
        self._stream = stream

    def bind(self, executable: Executable) -> Callable[[], None]:
        """Return the launch of an executable as a callable."""
        return launcher(self._driver, executable, self._stream)

    def launch_function(self, executable: Executable) -> LaunchFunction | None:
        """Return ``cuGraphLaunch``; for a special stream, on condition that the right context is current."""
        return launch_function(self._driver, executable, self._stream)

    def status_function(self) -> StatusFunction | None:
        """Return ``cuStreamIsCapturing``, for streams that have their own context."""
        address = 0 if int(self._stream) in SPECIAL_STREAMS else self._driver.status_address
        return StatusFunction(address, ACTIVE) if address else None

    def upload(self, executable: Executable) -> None:
        """Move an executable to the device, in stream order, without running it."""
        driver = self._driver
        driver.relaxed_for(self._stream).run(driver.call, "cuGraphUpload", executable.handle, self._stream)
