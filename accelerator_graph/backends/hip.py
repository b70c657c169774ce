"""ROCm, through AMD's HIP runtime and hip-python.

A stream is any ``ihipStream_t``, ours or a framework's. Graphs, executables, events and captures remember the
device that they belong to, so that any thread can use and release them.

This module and `cuda` mirror each other: `driver` has what they share, and what each adds comes in the same
order.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import partial
from typing import Any, ClassVar

from . import base
from ._hip import capture as _capture
from ._hip import events as _events
from ._hip.driver import Driver, Graph
from ._hip.launch import Executable, has_runs, launch_function, launcher, settle
from ._hip.nodes import one_root
from ._hip.probe import probe
from .base import (
    Availability,
    Capability,
    CaptureMode,
    LaunchFunction,
    NativeCalls,
    StatusFunction,
)
from .driver import (
    ACTIVE,
    SPECIAL_STREAMS,
    Capture,
    DriverGraphs,
    DriverNodeCalls,
    DriverNodes,
    Event,
    ExternalEvent,
    is_handle,
)
from .mixins import TimesGraphs, UpdatesGraphs

_LEGACY = 1
_NOT_FOUND = 500
_FILLS_OF_HOST_MEMORY = 70_200_000
"""The version from which replays do them: 6.4 does them once, when the graph is instantiated."""
_UPDATES_TESTED = (6_04, 7_02)
"""The runtimes on which tests have shown that an update changes what runs. Others have answered success and
launched the former packets (rocm-systems#10021)."""


class HipBackend(DriverGraphs, DriverNodes, TimesGraphs, UpdatesGraphs):
    """AMD GPUs.

    ``launch(kernel, *args, grid, block, shared_bytes=0)`` takes an ``ihipModuleSymbol_t``, a handle as `int`
    or an object that has one as `handle`. Arguments are ctypes scalars and structures, NumPy scalars,
    hip-python's pointers and objects with ``__cuda_array_interface__``, for which their pointer is passed.
    """

    __slots__ = ()

    driver: Any

    api_version: ClassVar[int] = 1
    stream_modules: ClassVar[frozenset[str]] = frozenset(("hip", "rocm"))
    cuda_like: ClassVar[bool] = True
    replay_ignores_captures: ClassVar[bool] = True

    # ---- being there -----------------------------------------------------------------------------

    driver_type: ClassVar[type[Any]] = Driver
    executable_type: ClassVar[type[Executable]] = Executable
    hiding: ClassVar[str] = "HIP_VISIBLE_DEVICES"

    @classmethod
    def look(cls) -> Availability:
        """Look for hip-python, the runtime and a device."""
        return probe()

    def capabilities(self, device: int) -> Set[str]:
        """Return the capabilities of the runtime's version, the same on every device."""
        version, lacks = self.driver.version, set[Capability]()
        if version < _FILLS_OF_HOST_MEMORY:
            lacks.add(Capability.PROGRESS)
        if version // 1_00000 not in _UPDATES_TESTED:
            lacks.add(Capability.UPDATE)
        return self.inherited - lacks

    # ---- streams ---------------------------------------------------------------------------------

    def as_stream(self, obj: object) -> Any | None:
        """Recognise handles and the stream objects of hip-python.

        Raises
        ------
        ValueError
            There is no such stream in this process; using it would crash.
        """
        stream_type = self.driver.stream_type
        if not isinstance(obj, stream_type) and not is_handle(obj):
            return None
        handle = int(obj)
        if handle == _LEGACY:  # the same stream as 0, but several calls crash on it (rocm-systems#11011)
            handle = 0
        if handle not in SPECIAL_STREAMS and not self.driver.has_stream(handle):
            raise ValueError(
                f"{handle:#x} is not the handle of a stream; pass one that has not been destroyed."
            )
        return stream_type(handle)

    # ---- capability: events ----------------------------------------------------------------------

    def record_event(self, stream: Any, *, timed: bool = False) -> Event:
        """Mark the present end of the stream's work."""
        driver: Driver = self.driver
        device = driver.place_of(stream)
        return driver.within(device, _events.record, driver, int(stream), device, timed)

    def wait_event(self, stream: Any, event: Event) -> None:
        """Let later work on `stream` wait for the event."""
        if isinstance(event, ExternalEvent):
            super().wait_event(stream, event)
            return
        driver = self.driver
        device = driver.place_of(stream)
        if event.capture:
            _events.refuse_other_device(driver, device, event)
        driver.within(device, _events.wait, driver, int(stream), event)

    # ---- capability: enqueue ---------------------------------------------------------------------

    def host_memory(self, stream: Any, nbytes: int) -> int:
        """Return the address of pinned memory."""
        if self.driver.version < _FILLS_OF_HOST_MEMORY:
            raise base.unsupported(self, Capability.PROGRESS)
        return super().host_memory(stream, nbytes)

    # ---- capture ---------------------------------------------------------------------------------

    def native_calls(self, stream: Any) -> NativeCalls:
        """Return calls of the runtime itself."""
        return _HipCalls(self, stream)

    def capture_begin(self, stream: Any, mode: CaptureMode) -> Capture:
        """Begin a capture on an idle stream, on which no run is going on from then on."""
        if has_runs(int(stream)):
            with self.relaxed(stream):
                settle(int(stream), partial(self.driver.is_done, "hipStreamQuery", stream))
        return super().capture_begin(stream, mode)

    def discard(self, capture: Capture, answer: tuple[Any, ...]) -> None:
        """Destroy the graph if the runtime returned one; reset the stream after a failure."""
        if answer[0] == 0:
            super().discard(capture, answer)
        else:
            _capture.reset(self.driver, capture)
            capture.over = True

    # ---- graphs and executables ------------------------------------------------------------------

    def instantiate(self, graph: Graph) -> Executable:
        """Make an executable."""
        driver = self.driver
        with driver.relaxed(graph.place), one_root(driver, graph.handle):
            handle = driver.call("hipGraphInstantiateWithFlags", graph.handle, driver.instantiate_flags)
        return Executable(handle, graph.place)

    launcher = launcher  # its runs come one after another

    def record_graph(self, stream: Any, graph: Graph) -> None:
        """Record a run of the graph on a capturing stream, as a child graph, unless it allocates."""
        _capture.refuse_allocations(self.driver, graph.handle)
        super().record_graph(stream, graph)

    def update(self, executable: Executable, former: Graph, graph: Graph) -> base.Misfit | None:
        """Update the executable in place, unless kernels differ."""
        if self.driver.version // 1_00000 not in _UPDATES_TESTED:
            raise base.unsupported(self, Capability.UPDATE)
        from ._hip.update import update

        return update(self.driver, executable, former, graph)

    def destroy_executable(self, executable: Executable) -> None:
        """Release an executable."""
        executable.move(None)
        event, executable.event = executable.event, 0
        if event:
            with self.driver.relaxed(executable.place):
                self.driver.answer("hipEventDestroy", event)
        super().destroy_executable(executable)

    # ---- looking into a graph --------------------------------------------------------------------

    def nodes(self, graph: Graph, executable: Executable | None = None) -> base.GraphContents:
        """List the nodes, with their parameters, and the dependencies."""
        from ._hip.node import list_nodes

        with self.driver.current(graph.place):
            return list_nodes(self.driver, graph.handle)

    def instantiate_timed(
        self, graph: Graph, before: Sequence[int], after: Sequence[int]
    ) -> tuple[Executable, Sequence[Event]]:
        """Make an executable of a copy that has nodes which record events."""
        from ._hip.timing import instantiate_timed

        return instantiate_timed(self, self.driver, graph, before, after)

    def host_bytes(self, obj: Graph | Executable) -> int | None:
        """Return by how much the heap of the C library grows with a copy of a graph; None if it is not known.

        The first time, this counts what the runtime keeps for later graphs; each time, what other threads
        take. None for executables, of which nothing is known.
        """
        from .memory import heap_bytes

        if isinstance(obj, Executable):
            return None
        driver = self.driver
        with driver.relaxed(obj.place):
            before = heap_bytes()
            if before is None:
                return None
            copy = Graph(driver.call("hipGraphClone", obj.handle), obj.place)
            try:
                after = heap_bytes()
            finally:
                self.destroy_graph(copy)
        return None if after is None or after < before else after - before

    def memory_at(self, graph: Graph, addresses: Sequence[int]) -> Sequence[base.MemoryState | None]:
        """Return what the runtime knows of the memory at these addresses; not all host memory is known."""
        from .memory import is_readable

        driver = self.driver
        found: list[base.MemoryState | None] = []
        with driver.relaxed(graph.place):
            for address in addresses:
                code, *_ = driver.answer("hipMemGetAddressRange", address)
                if code:
                    driver.clear()
                is_unknown = code == _NOT_FOUND and is_readable(address) is False
                found.append("gone" if is_unknown else None if code else "there")
        return found


class _HipCalls(DriverNodeCalls):
    """Calls of the runtime for one stream."""

    __slots__ = ()

    def launch_function(self, executable: Executable) -> LaunchFunction | None:
        """Return ``hipGraphLaunch``, on condition that the latest run was on the same stream."""
        return launch_function(self.driver, executable, int(self._stream))

    def status_function(self) -> StatusFunction | None:
        """Return ``hipStreamIsCapturing``, for streams that ``hipStreamGetDevice`` knows to be alive."""
        if int(self._stream) in SPECIAL_STREAMS:
            return None
        address, alive = map(self.driver.address, ("hipStreamIsCapturing", "hipStreamGetDevice"))
        return StatusFunction(address, ACTIVE, alive) if address and alive else None
