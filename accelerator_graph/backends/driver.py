"""A base for the backends of runtimes like CUDA's.

Such a runtime has streams, of which some stand for the current device's, events, captures of streams, graphs
and executables; its functions answer a code. Vendors give them other names and numbers, and bind them in
other ways. That is what a backend says here; `DriverBackend` does the rest. The backends of CUDA and of HIP
stand on it, and say what is true of their vendor alone.

A backend consists of four parts:

- A subclass of `Names` says how the functions are called.
- A subclass of `Driver` has the binding, its types and numbers, and makes the errors.
- A function answers `Backend.probe`.
- A subclass of `DriverBackend`, or of `DriverGraphs` if it lists nodes and of `DriverNodes` if nodes can be
  added to a capture, names these three. It inherits from `mixins` what else the runtime can do.
  `capabilities` takes away what it can't do.

The binding is an object with the functions. Each takes the handles and numbers that the table in `Names`
lists, and returns a tuple: the code, and the values that the function gives. A binding that works in another
way is adapted in `Driver.answer`, `keep` and `undo`. Handles are objects for which `int` returns the address.

Everything here works from threads that have never used a device, leaves the current device and the capture
mode of the thread as they were, and loses no graph, event or stream to an interrupt.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, ClassVar, Literal

from .._interpreter.interruptions import this_thread
from ..errors import (
    AcceleratorGraphError,
    BackendUnavailableError,
    DriverError,
    capture_error,
    driver_error,
)
from . import base
from ._shared.driver import ACTIVE as ACTIVE
from ._shared.driver import CAPTURE_MODES as CAPTURE_MODES
from ._shared.driver import (
    CAPTURE_STATUSES,
    ILLEGAL_STATE,
    NON_BLOCKING,
    NOT_READY,
    WITHOUT_TIMING,
)
from ._shared.driver import INVALIDATED as INVALIDATED
from ._shared.driver import LEGACY_STREAMS as LEGACY_STREAMS
from ._shared.driver import PER_THREAD_STREAM as PER_THREAD_STREAM
from ._shared.driver import SPECIAL_STREAMS as SPECIAL_STREAMS
from ._shared.driver import Capture as Capture
from ._shared.driver import Driver as Driver
from ._shared.driver import Event as Event
from ._shared.driver import Executable as Executable
from ._shared.driver import ExternalEvent as ExternalEvent
from ._shared.driver import Graph as Graph
from ._shared.driver import Handle as Handle
from ._shared.driver import Names as Names
from ._shared.driver import Position as Position
from ._shared.driver import Relaxed as Relaxed
from ._shared.driver import is_handle as is_handle
from ._shared.driver import reasons as reasons
from .base import Availability, CaptureInfo, CaptureMode, CaptureStatus, NativeCalls
from .mixins import ExternalEvents, Lends, MarksProgress, ReadsGraphs, RecordsReplays, TimesEvents

_PINNED_BYTES = 64
"""The size of a block of pinned memory to read into: that of all flags and counts."""


class DriverBackend(Lends, MarksProgress, TimesEvents):
    """A backend of a runtime like CUDA's.

    A subclass has `driver_type` and `look`, and a driver of its own. It overrides what its runtime does in
    another way, and inherits more classes for what it can do beyond.

    ``launch(kernel, *args, grid, block, shared_bytes=0)`` takes a handle as `int`, an object of the binding,
    or one that has such a `handle`. Arguments are ctypes scalars and structures, NumPy scalars, pointers
    of the binding, and objects with ``__cuda_array_interface__``, for which their pointer is passed.
    """

    __slots__ = ("device_count", "driver")

    driver: Driver
    device_count: int

    recording: ClassVar[Literal["stream", "explicit"]] = "stream"

    capture_modes: ClassVar[tuple[CaptureMode, ...]] = CAPTURE_MODES

    driver_type: ClassVar[type[Any]]
    """A subclass of `Driver`. Made with the name of the backend, when it is opened."""
    executable_type: ClassVar[type[Executable]] = Executable
    library: ClassVar[str] = "runtime"
    """The vendor's word for the library."""
    hiding: ClassVar[str] = ""
    """The environment variable that hides devices."""

    # ---- being there -----------------------------------------------------------------------------

    _usable: ClassVar[Availability | None] = None
    """The last answer of `probe`, if it was usable: `open` does not probe again."""

    @classmethod
    def look(cls) -> Availability:
        """Look for the binding, the library and a device, as `probe` is to do it."""
        raise NotImplementedError

    @classmethod
    def probe(cls) -> Availability:
        """Look for the binding, the library and a device. Initialises nothing and never raises."""
        found = cls.look()
        cls._usable = found if found.usable else None
        return found

    def open(self) -> None:
        """Initialise the runtime."""
        reason, cause = (self._usable or self.probe()).reason, None
        if not reason:
            try:
                self.driver = self.driver_type(self.name)
                self.device_count = self.driver.device_count
                if self.device_count:
                    return
                way_out = f", or correct {self.hiding}" if self.hiding else ""
                reason = f"the {self.library} finds no device. Attach one{way_out}"
            except Exception as error:
                reason, cause = f"the {self.library} can't be initialised: {str(error).rstrip('.')}", error
        raise BackendUnavailableError(
            f"backend {self.name!r} is not available: {reason}.", reasons={self.name: reason}
        ) from cause

    # ---- streams ---------------------------------------------------------------------------------

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Any:
        """Make a non-blocking stream in the place of `device`, or in that of `like`."""
        driver, names = self.driver, self.driver.names
        with driver.relaxed(driver.place(device) if like is None else driver.place_of(like)):
            least, greatest = driver.call(names.priority_range)  # the greatest is the lowest number
            priority = min(max(priority, greatest), least)
            return driver.stream(driver.call(names.create_stream, NON_BLOCKING, priority))

    def destroy_stream(self, stream: Any) -> None:
        """Release a stream that `create_stream` made."""
        self.driver.destroy_stream(stream)

    def device_of(self, stream: Any) -> int:
        """Return the ordinal of a stream's device: the current device for the special streams."""
        return self.driver.device_of(stream)

    def synchronize(self, stream: Any) -> None:
        """Wait until all work on the stream, or before an event, is done."""
        driver = self.driver
        if isinstance(stream, Handle):
            driver.within(stream.place, driver.call, driver.names.synchronize_event, stream.handle)
            return
        place, current = driver.place_of(stream), driver.ask_current()
        if current == int(place):  # without `within`: each capture waits
            driver.wait(stream)
        else:
            with driver.exchanged(current, place):
                driver.wait(stream)

    def as_stream(self, obj: object) -> Any | None:
        """Recognise handles and the binding's streams."""
        known = isinstance(obj, self.driver.stream_type) or is_handle(obj)
        return self.driver.stream(obj) if known else None

    # ---- capability: events ----------------------------------------------------------------------

    def record_event(self, stream: Any, *, timed: bool = False) -> Event:
        """Mark the present end of the stream's work."""
        driver = self.driver
        place = driver.place_of(stream)
        return Event(driver.within(place, driver.new_event, stream, timed), place)

    def wait_event(self, stream: Any, event: Any) -> None:
        """Let later work on `stream` wait for the event."""
        driver = self.driver
        call = driver.call, driver.names.wait_event
        driver.within(driver.place_of(stream), *call, stream, event.handle, 0)

    def destroy_event(self, event: Any) -> None:
        """Release an event."""
        self.driver.destroy(self.driver.names.destroy_event, event)

    def query(self, stream: Any) -> bool:
        """Return True if all work on the stream, or before an event, is done."""
        driver = self.driver
        if isinstance(stream, Handle):
            return driver.within(stream.place, driver.is_done, driver.names.query_event, stream.handle)
        return driver.within(driver.place_of(stream), driver.is_done, driver.names.query_stream, stream)

    # ---- capability: timing ----------------------------------------------------------------------

    def elapsed_time(self, start: Any, end: Any) -> float | None:
        """Return the milliseconds between two events; None if one of them is not done."""
        driver, function = self.driver, self.driver.names.elapsed_time
        answer = driver.within(start.place, driver.answer, function, start.handle, end.handle)
        return None if answer[0] == NOT_READY else float(driver.checked(function, answer))

    # ---- capability: enqueue ---------------------------------------------------------------------

    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        """Set `nbytes` bytes at `dst` to `value`."""
        from .memory import memory_of

        driver = self.driver
        target = memory_of(driver.memory(dst), nbytes, writable=True, device=True)
        if target.nbytes:
            call = driver.call, driver.names.fill
            driver.within(driver.place_of(stream), *call, target.address, value, target.nbytes, stream)

    def copy(self, stream: Any, dst: Any, src: Any, nbytes: int | None) -> None:
        """Copy `nbytes` bytes between any two memories of the host and its devices."""
        from .memory import memory_of

        driver = self.driver
        source = memory_of(driver.memory(src), nbytes, writable=False, device=True)
        target = memory_of(driver.memory(dst), source.nbytes, writable=True, device=True)
        if source.nbytes:
            what = target.address, source.address, source.nbytes, *driver.copy_kind
            driver.within(driver.place_of(stream), driver.call, driver.names.copy, *what, stream)

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

        driver = self.driver
        kernel, shape = kernel_handle(work), geometry(grid, block, shared_bytes)
        arguments = Arguments(args, driver.pointer_type)
        what = kernel, *shape, stream, arguments.pointer, 0
        driver.within(driver.place_of(stream), driver.call, driver.names.launch_kernel, *what)

    def read(self, stream: Any, src: Any, nbytes: int) -> bytes:
        """Copy to pinned memory, and wait. Each reading that is under way has some of its own."""
        if nbytes > _PINNED_BYTES:
            return super().read(stream, src, nbytes)
        blocks = self.driver.pinned
        try:
            address = blocks.pop()
        except IndexError:
            address = DriverBackend.host_memory(self, stream, _PINNED_BYTES)
        self.copy(stream, address, src, nbytes)
        self.synchronize(stream)
        found = ctypes.string_at(address, nbytes)
        blocks.append(address)  # not if this was interrupted: the copy may be under way
        return found

    def host_memory(self, stream: Any, nbytes: int) -> int:
        """Return the address of pinned memory that all devices can write."""
        driver = self.driver
        call = driver.call, driver.names.host_memory
        address = int(driver.relaxed(driver.place_of(stream)).run(*call, nbytes, driver.host_flags))
        ctypes.memset(address, 0, nbytes)
        return address

    # ---- capture ---------------------------------------------------------------------------------

    def capture_status(self, stream: Any) -> CaptureStatus:
        """Return whether the stream is capturing. The legacy stream never is; asking it may answer 906."""
        driver, handle = self.driver, int(stream)
        if handle in LEGACY_STREAMS:
            return CaptureStatus.NONE
        if handle != PER_THREAD_STREAM:  # any other stream has its own place
            return CAPTURE_STATUSES[driver.ask_status(stream)]
        return CAPTURE_STATUSES[driver.within(driver.place_of(stream), driver.ask_status, stream)]

    def capture_info(self, stream: Any) -> CaptureInfo | None:
        """Return the runtime's number of the capture of the stream, and how many nodes it has recorded."""
        if int(stream) in LEGACY_STREAMS:
            return None
        driver = self.driver
        place, current = driver.place_of(stream), driver.ask_current()
        if current == int(place):  # likewise
            found = driver.ask_capture(stream)
        else:
            with driver.exchanged(current, place):
                found = driver.ask_capture(stream)
        return None if found is None else CaptureInfo(*found)

    def native_calls(self, stream: Any) -> NativeCalls:
        """Return calls of the runtime itself."""
        return DriverCalls(self, stream)

    def relaxed(self, stream: Any) -> AbstractContextManager[None]:
        """Return a context in which this thread disturbs no capture on the device of a stream or a graph."""
        driver = self.driver
        return driver.relaxed(stream.place if isinstance(stream, Handle) else driver.place_of(stream))

    def capture_begin(self, stream: Any, mode: CaptureMode) -> Capture:
        """Begin a capture on an idle stream. If anything is raised, no capture is left."""
        if int(stream) in LEGACY_STREAMS:
            raise capture_error("a capture on the legacy stream can't begin", reason="default_stream")
        driver = self.driver
        capture = Capture(stream, driver.place_of(stream), mode)
        try:
            call = driver.call, driver.names.begin_capture
            driver.within(capture.place, *call, stream, driver.capture_modes[mode])
            return capture
        except DriverError as error:
            # The code may be that of an earlier failure, and the capture begun. After 401 it is another's.
            if error.code != ILLEGAL_STATE and driver.status_of(capture):
                self.capture_abandon(capture)
            raise
        except BaseException:  # an interrupt, which may have come after the runtime's answer
            self.capture_abandon(capture)
            raise

    def capture_end(self, token: Capture) -> Graph:
        """End the capture and return the graph. If anything is raised, neither is left."""
        driver, function = self.driver, self.driver.names.end_capture
        answer: list[tuple[Any, ...]] = []
        try:
            driver.within(token.place, driver.keep, answer, function, token.handle)
            handle = driver.checked(function, answer[0])
            if not int(handle):
                raise driver_error(
                    backend=self.name, call=function, code=None, code_name="no graph", reason="invalidated"
                )
            token.over = True
            return Graph(driver.graph(handle), token.place)
        except BaseException:
            if answer:
                self.discard(token, answer[0])
            else:
                self.capture_abandon(token)
            raise

    def capture_abandon(self, token: Capture) -> None:
        """End a capture that may be over already, on any thread, and throw away what was recorded.

        Outside relaxed mode the runtime does not return the graph to another thread, but ends the capture. A
        capture of another thread's per-thread stream can't be ended, since no handle names that stream here.
        """
        own = int(token.handle) == PER_THREAD_STREAM
        if token.over or (own and token.thread() is not this_thread()):
            return
        driver, function = self.driver, self.driver.names.end_capture
        answer: list[tuple[Any, ...]] = []
        with suppress(AcceleratorGraphError):
            driver.within(token.place, driver.keep, answer, function, token.handle)
        if not answer:  # the place could not be made current
            with suppress(AcceleratorGraphError):
                driver.keep(answer, function, token.handle)
        self.discard(token, answer[0] if answer else (None,))

    def discard(self, capture: Capture, answer: tuple[Any, ...]) -> None:
        """Note that the runtime has ended a capture, and destroy the graph if it returned one."""
        capture.over = True
        driver, graph = self.driver, answer[1] if len(answer) > 1 else None
        if graph is not None and int(graph):
            with suppress(AcceleratorGraphError), driver.relaxed(capture.place):
                driver.call(driver.names.destroy_graph, driver.graph(graph))

    # ---- graphs and executables ------------------------------------------------------------------

    def instantiate(self, graph: Graph) -> Any:
        """Make an executable."""
        driver = self.driver
        call = driver.names.instantiate, graph.handle, driver.instantiate_flags
        return self.executable_type(driver.relaxed(graph.place).run(driver.call, *call), graph.place)

    def replay(self, executable: Any, stream: Any) -> None:
        """Enqueue one run of the executable on the stream."""
        self.launcher(executable, stream)()

    def launcher(self, executable: Any, stream: Any) -> Callable[[], None]:
        """Return the launch of an executable on a stream as a callable.

        A special stream means one of the current place, so the right place has to be current.
        """
        driver, function, handle = self.driver, self.driver.names.launch, executable.handle
        if int(stream) in SPECIAL_STREAMS:
            return partial(driver.within, executable.place, driver.call, function, handle, stream)
        launch, success, raises = getattr(driver.api, function), driver.success, driver.raises
        failed, broke = driver.launch_failed, driver.launch_broke

        def replay() -> None:
            try:
                (code,) = launch(handle, stream)
            except raises as error:
                broke(error)
            else:
                if code is not success:
                    failed(code)

        return replay

    def destroy_graph(self, graph: Graph) -> None:
        """Release a graph."""
        self.driver.destroy(self.driver.names.destroy_graph, graph)

    def destroy_executable(self, executable: Any) -> None:
        """Release an executable."""
        self.driver.destroy(self.driver.names.destroy_executable, executable)

    # ---- looking into a graph --------------------------------------------------------------------

    def handle_int(self, obj: Any) -> int:
        """Return the runtime's handle of a stream, a graph or an executable."""
        return int(obj.handle if isinstance(obj, Handle) else obj)

    # ---- captures that a framework records -------------------------------------------------------

    def borrow(self, handle: int, made_of: Any) -> Any:
        """Return a graph or an executable that stays its owner's."""
        if isinstance(made_of, Graph):
            return self.executable_type(self.driver.executable_type(handle), made_of.place)
        return Graph(self.driver.graph_type(handle), self.driver.place_of(made_of))

    def borrow_capture(self, stream: Any) -> Capture:
        """Return a token of a capture that a framework has begun on this thread."""
        return Capture(stream, self.driver.place_of(stream), "relaxed")


class DriverGraphs(DriverBackend, ReadsGraphs):
    """A backend of a runtime like CUDA's that lists the nodes of graphs: a subclass has `nodes`."""

    __slots__ = ()

    def device_memory(self, obj: Any) -> base.DeviceMemory:
        """Return what the runtime reports about the memory of the device. These calls disturb no capture."""
        driver, names = self.driver, self.driver.names
        with driver.current(obj.place):
            device = driver.ask_device()
            used, reserved = (
                int(driver.call(names.graph_memory, device, each)) for each in driver.graph_memory
            )
            free, total = driver.call(names.memory_info)
        return base.DeviceMemory(int(free), int(total), used, reserved)

    def dump(self, graph: Graph, path: str, verbose: bool) -> bool:
        """Let the runtime write the graph to `path` in the DOT language."""
        driver = self.driver
        call = driver.call, driver.names.dump
        driver.within(graph.place, *call, graph.handle, os.fsencode(path), driver.verbose if verbose else 0)
        return True


class DriverNodes(DriverBackend, ExternalEvents, RecordsReplays):
    """A backend of a runtime like CUDA's that adds nodes to captures: runs of graphs, external events."""

    __slots__ = ()

    records_graphs: ClassVar[bool] = True

    def record_graph(self, stream: Any, graph: Graph) -> None:
        """Record a run of the graph on a capturing stream, as a child graph: a copy of the graph."""
        driver = self.driver
        driver.within(driver.place_of(stream), driver.add, stream, driver.names.add_graph, graph.handle)

    # ---- capability: external events -------------------------------------------------------------

    def record_external(self, stream: Any, event: Any = None, *, timed: bool = False) -> ExternalEvent:
        """Record an event; in a capture as a node of its own."""
        driver, place = self.driver, self.driver.place_of(stream)
        flags = 0 if timed else WITHOUT_TIMING
        with driver.current(place):
            here = driver.position(stream)
            made = event or ExternalEvent(driver.call(driver.names.create_event, flags), place)
            try:
                if here.status is CaptureStatus.NONE:
                    driver.call(driver.names.record_event, made.handle, stream)
                else:
                    driver.add(stream, driver.names.add_record, made.handle)
                    here = driver.position(stream)
            except AcceleratorGraphError:  # after an interrupt, a graph may have it
                if event is None:
                    self.destroy_event(made)
                raise
            made.capture, made.nodes = here.capture, here.nodes
        return made

    def wait_event(self, stream: Any, event: Any) -> None:
        """Wait for an event; for an external one in a capture by a node, or behind that which records it.

        A node that waits there would wait for what came before the run, and HIP 6.4 would hang.
        """
        if not isinstance(event, ExternalEvent):
            super().wait_event(stream, event)
            return
        driver = self.driver
        with driver.current(driver.place_of(stream)):
            here = driver.position(stream)
            if here.status is CaptureStatus.NONE:
                driver.call(driver.names.wait_event, stream, event.handle, 0)
            elif event.capture and here.capture == event.capture:
                driver.follow(stream, event.nodes, others=True)
            else:
                driver.add(stream, driver.names.add_wait, event.handle)


class DriverCalls(NativeCalls):
    """Calls of the runtime for one stream."""

    __slots__ = ("_backend", "_stream", "driver")

    def __init__(self, backend: DriverBackend, stream: Any) -> None:
        self._backend = backend
        self.driver: Any = backend.driver
        self._stream = stream

    def bind(self, executable: Any) -> Callable[[], None]:
        """Return the launch of an executable as a callable."""
        return self._backend.launcher(executable, self._stream)

    def upload(self, executable: Any) -> None:
        """Move an executable to the device, in stream order, without running it."""
        driver, stream = self.driver, self._stream
        run = driver.relaxed(driver.place_of(stream)).run
        run(driver.call, driver.names.upload, executable.handle, stream)


class DriverNodeCalls(DriverCalls):
    """Calls of the runtime for one stream, if the backend adds nodes to captures."""

    __slots__ = ()

    def front(self) -> tuple[int, ...]:
        """Return the handles of the nodes that the stream's next one will follow."""
        driver, stream = self.driver, self._stream
        return tuple(map(int, driver.within(driver.place_of(stream), driver.position, stream).nodes))
