"""ROCm, through AMD's HIP runtime and hip-python.

A stream is any ``ihipStream_t``, ours or a framework's. Graphs, executables, events and captures remember the
device that they belong to, so that any thread can use and release them.

This module and `cuda` mirror each other: they have the same methods in the same order.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar

from . import base
from ._hip import capture as _capture
from ._hip import events as _events
from ._hip.capture import Capture
from ._hip.driver import Driver, Graph, Handle, plain
from ._hip.events import Event
from ._hip.launch import Executable, has_runs, launch_function, launcher, settle
from ._hip.nodes import one_root
from ._hip.probe import probe
from ._shared import (
    ACTIVE,
    CAPTURE_MODES,
    CAPTURE_STATUSES,
    INVALIDATED,
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
from .mixins import Lends, MarksProgress, TimesGraphs, UpdatesGraphs

_LEGACY = 1
_FILLS_OF_HOST_MEMORY = 70_200_000
"""The version from which replays do them: 6.4 does them once, when the graph is instantiated."""
_PORTABLE_AND_COHERENT = 0x4000_0001
_UPDATES_TESTED = (6_04, 7_02)
"""The runtimes on which tests have shown that an update changes what runs. Others have answered success and
launched the former packets (rocm-systems#10021)."""


class HipBackend(Lends, MarksProgress, TimesGraphs, UpdatesGraphs):
    """AMD GPUs.

    ``launch(kernel, *args, grid, block, shared_bytes=0)`` takes an ``ihipModuleSymbol_t``, a handle as `int`
    or an object that has one as `handle`. Arguments are ctypes scalars and structures, NumPy scalars,
    hip-python's pointers and objects with ``__cuda_array_interface__``, for which their pointer is passed.
    """

    __slots__ = ("_driver",)

    api_version: ClassVar[int] = 1
    capture_modes: ClassVar[tuple[CaptureMode, ...]] = CAPTURE_MODES
    stream_modules: ClassVar[frozenset[str]] = frozenset(("hip", "rocm"))
    cuda_like: ClassVar[bool] = True
    replay_ignores_captures: ClassVar[bool] = True

    # ---- being there -----------------------------------------------------------------------------

    _usable: ClassVar[Availability | None] = None
    """The last answer of `probe`, if it was usable: `open` does not probe again."""

    @classmethod
    def probe(cls) -> Availability:
        """Look for hip-python, the runtime and a device. Initialises nothing and never raises."""
        found = probe()
        cls._usable = found if found.usable else None
        return found

    def open(self) -> None:
        """Initialise the runtime."""
        self._driver = open_driver(
            self.name, self._usable or self.probe(), Driver, "runtime", "HIP_VISIBLE_DEVICES"
        )

    def capabilities(self, device: int) -> Set[str]:
        """Return the capabilities of the runtime's version, the same on every device."""
        version, lacks = self._driver.version, set[Capability]()
        if version < _FILLS_OF_HOST_MEMORY:
            lacks.add(Capability.PROGRESS)
        if version // 1_00000 not in _UPDATES_TESTED:
            lacks.add(Capability.UPDATE)
        return self.inherited - lacks

    def device_count(self) -> int:
        """Return how many devices there are."""
        return self._driver.device_count

    # ---- streams ---------------------------------------------------------------------------------

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Any:
        """Make a non-blocking stream on `device`, which is also the device of `like`."""
        driver = self._driver
        with driver.relaxed(device):
            priority = clamped(priority, driver.call("hipDeviceGetStreamPriorityRange"))
            flags = int(driver.api.hipStreamNonBlocking)
            return driver.stream_type(driver.call("hipStreamCreateWithPriority", flags, priority))

    def destroy_stream(self, stream: Any) -> None:
        """Release a stream that `create_stream` made."""
        self._driver.destroy_stream(stream)

    def device_of(self, stream: Any) -> int:
        """Return the ordinal of a stream's device: the current device for the special streams."""
        return self._driver.device_of(stream)

    def synchronize(self, stream: Any) -> None:
        """Wait until all work on the stream is done."""
        with self._driver.current_for(stream):
            self._driver.call("hipStreamSynchronize", int(stream))

    def as_stream(self, obj: object) -> Any | None:
        """Recognise handles and the stream objects of hip-python.

        Raises
        ------
        ValueError
            There is no such stream in this process; using it would crash.
        """
        stream_type = self._driver.stream_type
        if not isinstance(obj, stream_type) and not is_handle(obj):
            return None
        handle = int(obj)
        if handle == _LEGACY:  # the same stream as 0, but several calls crash on it (rocm-systems#11011)
            handle = 0
        if handle not in SPECIAL_STREAMS and not self._driver.has_stream(handle):
            raise ValueError(
                f"{handle:#x} is not the handle of a stream; pass one that has not been destroyed."
            )
        return stream_type(handle)

    # ---- capability: events ----------------------------------------------------------------------

    def record_event(self, stream: Any, *, timed: bool = False) -> Event:
        """Mark the present end of the stream's work."""
        device = self._driver.device_of(stream)
        with self._driver.current(device):
            return _events.record(self._driver, int(stream), device, timed=timed)

    def wait_event(self, stream: Any, event: Event) -> None:
        """Let later work on `stream` wait for the event."""
        with self._driver.current_for(stream):
            if event.capture:
                _events.refuse_other_device(self._driver, stream, event)
            _events.wait(self._driver, int(stream), event)

    def destroy_event(self, event: Event) -> None:
        """Release an event."""
        self._driver.destroy("hipEventDestroy", event)

    def query(self, stream: Any) -> bool:
        """Return True if all work on the stream is done."""
        with self._driver.current_for(stream):
            return self._driver.is_done("hipStreamQuery", int(stream))

    # ---- capability: timing ----------------------------------------------------------------------

    def query_event(self, event: Event) -> bool:
        """Return True if the work before the event is done."""
        with self._driver.current(event.device):
            return self._driver.is_done("hipEventQuery", event.handle)

    def synchronize_event(self, event: Event) -> None:
        """Wait until the work before the event is done."""
        with self._driver.current(event.device):
            self._driver.call("hipEventSynchronize", event.handle)

    def elapsed_time(self, start: Event, end: Event) -> float | None:
        """Return the milliseconds between two events; None if one of them is not done."""
        with self._driver.current(start.device):
            answer = self._driver.answer("hipEventElapsedTime", start.handle, end.handle)
        return None if answer[0] == NOT_READY else float(self._driver.checked("hipEventElapsedTime", answer))

    # ---- capability: enqueue ---------------------------------------------------------------------

    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        """Set `nbytes` bytes at `dst` to `value`."""
        from .memory import memory_of

        target = memory_of(plain(dst, self._driver.pointer_type), nbytes, writable=True, device=True)
        if target.nbytes:
            with self._driver.current_for(stream):
                self._driver.call("hipMemsetAsync", target.address, value, target.nbytes, int(stream))

    def copy(self, stream: Any, dst: Any, src: Any, nbytes: int | None) -> None:
        """Copy `nbytes` bytes between any two memories of the host and its devices."""
        from .memory import memory_of

        source = memory_of(plain(src, self._driver.pointer_type), nbytes, writable=False, device=True)
        target = memory_of(plain(dst, self._driver.pointer_type), source.nbytes, writable=True, device=True)
        if source.nbytes:
            kind = int(self._driver.api.hipMemcpyKind.hipMemcpyDefault)
            with self._driver.current_for(stream):
                self._driver.call(
                    "hipMemcpyAsync", target.address, source.address, source.nbytes, kind, int(stream)
                )

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
        kernel = kernel_handle(work)
        shape = geometry(grid, block, shared_bytes)
        arguments = Arguments(args, driver.pointer_type)
        with driver.current_for(stream):
            driver.call("hipModuleLaunchKernel", kernel, *shape, int(stream), arguments.pointer, None)

    def host_memory(self, stream: Any, nbytes: int) -> int:
        """Return the address of pinned memory."""
        driver = self._driver
        if driver.version < _FILLS_OF_HOST_MEMORY:
            raise base.unsupported(self, Capability.PROGRESS)
        with driver.relaxed_for(stream):
            address = int(driver.call("hipHostMalloc", nbytes, _PORTABLE_AND_COHERENT))
        ctypes.memset(address, 0, nbytes)
        return address

    # ---- capture ---------------------------------------------------------------------------------

    def capture_status(self, stream: Any) -> CaptureStatus:
        """Return whether the stream is capturing. The legacy stream never is.

        For a stream that has been destroyed, ``hipStreamIsCapturing`` would answer garbage.
        """
        driver, handle = self._driver, int(stream)
        if handle in LEGACY_STREAMS:
            return CaptureStatus.NONE
        if handle != PER_THREAD_STREAM:
            code, _ = driver.answer("hipStreamGetDevice", handle)
            if code not in (0, INVALIDATED):  # 901: a HIP on top of CUDA answers any call so
                driver.failed("hipStreamGetDevice", code)
        return CAPTURE_STATUSES[driver.call("hipStreamIsCapturing", handle)]

    def capture_info(self, stream: Any) -> CaptureInfo | None:
        """Return the runtime's number of the capture of the stream, and how many nodes it has recorded."""
        if int(stream) in LEGACY_STREAMS:
            return None
        with self._driver.current_for(stream):
            found = _capture.info(self._driver, int(stream))
        return None if found is None else CaptureInfo(*found)

    def native_calls(self, stream: Any) -> NativeCalls:
        """Return calls of the runtime itself."""
        return _HipCalls(self._driver, stream)

    def relaxed(self, stream: Any) -> AbstractContextManager[None]:
        """Return a context in which this thread disturbs no capture on the device of a stream or a graph."""
        driver = self._driver
        return driver.relaxed(stream.device if isinstance(stream, Handle) else driver.device_of(stream))

    def capture_begin(self, stream: Any, mode: CaptureMode) -> Capture:
        """Begin a capture on an idle stream."""
        refuse_legacy(stream)
        if has_runs(int(stream)):
            with self.relaxed(stream):
                settle(int(stream), partial(self._driver.is_done, "hipStreamQuery", int(stream)))
        return _capture.begin(self._driver, stream, mode)

    def capture_end(self, token: Capture) -> Graph:
        """End the capture and return the graph."""
        return _capture.end(self._driver, token)

    def capture_abandon(self, token: Capture) -> None:
        """End the capture and throw away what was recorded."""
        _capture.abandon(self._driver, token)

    # ---- graphs and executables ------------------------------------------------------------------

    def instantiate(self, graph: Graph) -> Executable:
        """Make an executable: each replay frees what the last one left.

        CUDA's flag for the priorities of nodes is left out, since the runtime refuses both flags together.
        """
        driver = self._driver
        wanted = driver.api.hipGraphInstantiateFlags.hipGraphInstantiateFlagAutoFreeOnLaunch
        with driver.relaxed(graph.device), one_root(driver, graph.handle):
            handle = driver.call("hipGraphInstantiateWithFlags", graph.handle, int(wanted))
        return Executable(handle, graph.device)

    def replay(self, executable: Executable, stream: Any) -> None:
        """Enqueue one run of the executable on the stream."""
        launcher(self._driver, executable, int(stream))()

    def update(self, executable: Executable, former: Graph, graph: Graph) -> base.Misfit | None:
        """Update the executable in place, unless kernels differ."""
        if self._driver.version // 1_00000 not in _UPDATES_TESTED:
            raise base.unsupported(self, Capability.UPDATE)
        from ._hip.update import update

        return update(self._driver, executable, former, graph)

    def destroy_graph(self, graph: Graph) -> None:
        """Release a graph."""
        self._driver.destroy("hipGraphDestroy", graph)

    def destroy_executable(self, executable: Executable) -> None:
        """Release an executable."""
        executable.move(None)
        event, executable.event = executable.event, 0
        if event:
            with self._driver.relaxed(executable.device):
                self._driver.answer("hipEventDestroy", event)
        self._driver.destroy("hipGraphExecDestroy", executable)

    # ---- looking into a graph --------------------------------------------------------------------

    def nodes(self, graph: Graph) -> base.GraphContents:
        """List the nodes, with their parameters, and the dependencies."""
        from ._hip.node import list_nodes

        with self._driver.current(graph.device):
            return list_nodes(self._driver, graph.handle)

    def instantiate_timed(
        self, graph: Graph, before: Sequence[int], after: Sequence[int]
    ) -> tuple[Executable, Sequence[Event]]:
        """Make an executable of a copy that has nodes which record events."""
        from ._hip.timing import instantiate_timed

        return instantiate_timed(self, self._driver, graph, before, after)

    def device_memory(self, obj: Graph | Executable) -> base.DeviceMemory:
        """Return what the runtime reports about the memory of the device. These calls disturb no capture."""
        driver, kinds, device = self._driver, self._driver.api.hipGraphMemAttributeType, obj.device
        wanted = (kinds.hipGraphMemAttrUsedMemCurrent, kinds.hipGraphMemAttrReservedMemCurrent)
        with driver.current(device):
            used, reserved = (
                driver.call("hipDeviceGetGraphMemAttribute", device, int(each)) for each in wanted
            )
            free, total = driver.call("hipMemGetInfo")
        return base.DeviceMemory(free, total, used, reserved)

    def host_bytes(self, obj: Graph | Executable) -> int | None:
        """Return by how much the heap of the C library grows with a copy of a graph; None if it is not known.

        The first time, this counts what the runtime keeps for later graphs; each time, what other threads
        take. None for executables, of which nothing is known.
        """
        from .._interpreter.process import heap_bytes

        if isinstance(obj, Executable):
            return None
        driver = self._driver
        with driver.relaxed(obj.device):
            before = heap_bytes()
            if before is None:
                return None
            copy = Graph(driver.call("hipGraphClone", obj.handle), obj.device)
            try:
                after = heap_bytes()
            finally:
                self.destroy_graph(copy)
        return None if after is None or after < before else after - before

    def dump(self, graph: Graph, path: str, verbose: bool) -> bool:
        """Let the runtime write the graph to `path` in the DOT language."""
        flags = self._driver.api.hipGraphDebugDotFlags
        wanted = int(flags.hipGraphDebugDotFlagsVerbose) if verbose else 0
        with self._driver.current(graph.device):
            self._driver.call("hipGraphDebugDotPrint", graph.handle, os.fsencode(path), wanted)
        return True

    def handle_int(self, obj: Any) -> int:
        """Return the runtime's handle of a stream, a graph or an executable."""
        return int(obj.handle if isinstance(obj, Handle) else obj)

    # ---- captures that a framework records -------------------------------------------------------

    def borrow_graph(self, handle: int, stream: Any) -> Graph:
        """Return a graph that its owner has recorded on this stream."""
        return Graph(handle, self._driver.device_of(stream))

    def borrow_executable(self, handle: int, graph: Graph) -> Executable:
        """Return an executable that stays its owner's."""
        return Executable(handle, graph.device)


class _HipCalls(NativeCalls):
    """Calls of the runtime for one stream."""

    __slots__ = ("_driver", "_stream")

    def __init__(self, driver: Driver, stream: Any) -> None:
        self._driver = driver
        self._stream = int(stream)

    def bind(self, executable: Executable) -> Callable[[], None]:
        """Return the launch of an executable as a callable."""
        return launcher(self._driver, executable, self._stream)

    def launch_function(self, executable: Executable) -> LaunchFunction | None:
        """Return ``hipGraphLaunch``, on condition that the latest run was on the same stream."""
        return launch_function(self._driver, executable, self._stream)

    def status_function(self) -> StatusFunction | None:
        """Return ``hipStreamIsCapturing``, for streams that ``hipStreamGetDevice`` knows to be alive."""
        if self._stream in SPECIAL_STREAMS:
            return None
        address, alive = map(self._driver.address, ("hipStreamIsCapturing", "hipStreamGetDevice"))
        return StatusFunction(address, ACTIVE, alive) if address and alive else None

    def upload(self, executable: Executable) -> None:
        """Prepare an executable for its first run. AMD's runtime 7.2 only checks it."""
        driver = self._driver
        driver.relaxed_for(self._stream).run(driver.call, "hipGraphUpload", executable.handle, self._stream)
