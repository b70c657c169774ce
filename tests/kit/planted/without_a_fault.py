"""Backends without a fault, and those of a test's own."""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from accelerator_graph.backends._cpu.graph import Graph, body_of
from accelerator_graph.backends.base import (
    Availability,
    CaptureStatus,
    ExternalEvents,
    LaunchFunction,
    Lends,
    NativeCalls,
    ProfilesGraphs,
    StatusFunction,
)
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.errors import DriverError, UnsupportedError
from accelerator_graph.testing.works.host import Cell, step
from kit.explicit_runtime import Explicit, Queue


class Whole(CpuBackend):
    """No bug."""


class NothingNative(CpuBackend):
    """No bug: every replay goes through `replay`."""

    def native_calls(self, stream: Any) -> None:
        return None


class TwoDevices(CpuBackend):
    """No bug. Work finds its device in `running_on.device`."""

    device_count = 2

    def open(self) -> None:
        super().open()
        self.devices: WeakKeyDictionary[Any, tuple[int, int]] = WeakKeyDictionary()

    @classmethod
    def probe(cls) -> Availability:
        return Availability(usable=True)

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Any:
        stream = super().create_stream(device, like=like, priority=priority)
        self.devices[stream] = self.made_on(device), device
        return stream

    def made_on(self, device: int) -> int:
        return device

    def device_of(self, stream: Any) -> int:
        return self.devices[stream][1] if stream in self.devices else 0

    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        there = self.devices[stream][0]

        def on_the_device() -> None:
            running_on.device = there
            work(*args, **how)

        super().launch(stream, on_the_device if callable(work) else work)


class RefusesTwoDevices(TwoDevices):
    """No bug: streams of two devices can't wait for each other."""

    def wait_event(self, stream: Any, event: Any) -> None:
        if event.capture is not None and self.device_of(event.capture.origin) != self.device_of(stream):
            raise UnsupportedError("the devices can't wait for each other.")
        super().wait_event(stream, event)


class ReportingQueue(Queue):
    """Keeps the first exception that work has raised."""

    failure: Exception | None = None

    def put(self, work: Callable[[], object]) -> None:
        super().put(partial(self.keep, work))

    def keep(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:
            self.failure = self.failure or error


class ReportsFailures(Explicit):
    """No bug: raises what work has raised where its stream is waited for."""

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Queue:
        return ReportingQueue()

    def synchronize(self, stream: Queue) -> None:
        super().synchronize(stream)
        self.report(stream)

    def query(self, stream: Queue) -> bool:
        done = super().query(stream)
        if done:
            self.report(stream)
        return done

    def report(self, stream: Any) -> None:
        if not isinstance(stream, ReportingQueue):
            return
        failure, stream.failure = stream.failure, None
        if failure is not None:
            raise DriverError("work has failed.") from failure


class Kernel:
    """What is launched, and not by calling it with Python's arguments."""

    def __call__(self, cell: Cell, a: int, b: int) -> None:
        step(cell, a, b)


kernel = Kernel()


class LaunchesKernels(CpuBackend):
    """No bug: takes one kernel, and a keyword of its own; runs callables as well."""

    def launch(self, stream: Any, work: Any, /, *args: Any, grid: Any = 1) -> None:
        if not isinstance(grid, int):
            raise TypeError("grid must be an int.")
        if work is kernel and list(map(type, args)) != [Cell, int, int]:
            raise TypeError("the kernel takes a cell and two ints.")
        super().launch(stream, work, *args)


class NothingButTheCore(CpuBackend):
    """No bug either: what is asked for by capability must be skipped."""

    def capabilities(self, device: int) -> Any:
        return set()


class EveryCapability(CpuBackend, ProfilesGraphs, Lends):
    """No bug either: handles are numbers, and a launch in C calls Python."""

    def open(self) -> None:
        super().open()
        self.count = itertools.count(4096, 16)
        self.numbers: dict[int, int] = {}
        self.objects: dict[int, Any] = {}
        self.functions: dict[int, Any] = {}

    def handle_int(self, obj: Any) -> int:
        number = self.numbers.get(id(obj)) or next(self.count)
        self.numbers[id(obj)], self.objects[number] = number, obj
        return number

    def destroy_stream(self, stream: Any) -> None:
        super().destroy_stream(stream)
        self.forget(stream)

    def destroy_graph(self, graph: Any) -> None:
        super().destroy_graph(graph)
        self.forget(graph)

    def destroy_executable(self, executable: Any) -> None:
        super().destroy_executable(executable)
        self.forget(executable)

    def forget(self, obj: Any) -> None:
        self.objects.pop(self.numbers.pop(id(obj), 0), None)

    def as_stream(self, obj: object) -> Any:
        return self.objects.get(obj) if isinstance(obj, int) else super().as_stream(obj)

    def time_nodes(self, graph: Any, stream: Any, runs: int) -> Any:
        executable = self.instantiate(graph)
        for _ in range(runs):
            self.replay(executable, stream)
        begin = time.perf_counter()
        self.synchronize(stream)
        self.destroy_executable(executable)
        return [{0: (0.0, (time.perf_counter() - begin) * 1e6)} for _ in range(runs)]

    def native_calls(self, stream: Any) -> NumberedCalls:
        return NumberedCalls(self, stream)

    def launch_failed(self, code: int) -> None:
        raise DriverError(f"a launch returned {code}.")

    def number_of(self, status: CaptureStatus) -> int:
        return list(CaptureStatus).index(status)

    def borrow(self, handle: int, made_of: Any) -> Any:
        found = self.objects[handle]
        return found if isinstance(made_of, Graph) else Graph(found.nodes)

    def borrow_capture(self, stream: Any) -> Any:
        return self.captures.of(stream)


class MovingEvent:
    """An event that can be recorded again: what it marks now, and where a capture has recorded it."""

    def __init__(self) -> None:
        self.done: threading.Event | None = None
        self.capture: Any = None
        self.nodes: frozenset[int] = frozenset()


class Crossing:
    """A node that records or waits for an event. What that marks is decided when a run is requested."""

    def __init__(self, kind: str, event: MovingEvent) -> None:
        self.kind, self.event = kind, event
        self.runs: deque[threading.Event | None] = deque()

    def requested(self) -> None:
        if self.kind == "event_record":
            self.event.done = threading.Event()
        self.runs.append(self.event.done)

    def __call__(self) -> None:
        done = self.runs.popleft()
        if done is not None:
            (done.set if self.kind == "event_record" else done.wait)()


class CrossesBorders(NothingNative, ExternalEvents):
    """No bug either: has external events."""

    def record_external(self, stream: Any, event: Any = None, *, timed: bool = False) -> MovingEvent:
        event = event or MovingEvent()
        if self.add(stream, "event_record", event):
            event.capture, event.nodes = self.captures.mark(stream)  # type: ignore[misc]
        else:
            event.done, event.capture = threading.Event(), None
            stream.worker.submit(event.done.set)
        return event

    def wait_event(self, stream: Any, event: Any) -> None:
        if isinstance(event, MovingEvent):
            self.wait_external(stream, event)
        else:
            super().wait_event(stream, event)

    def wait_external(self, stream: Any, event: MovingEvent) -> None:
        if event.capture is not None and event.capture is stream.capture:
            self.captures.link(stream, event)
        elif not self.add(stream, "wait_event", event) and event.done is not None:
            stream.worker.submit(event.done.wait)

    def add(self, stream: Any, kind: str, event: MovingEvent) -> bool:
        return self.captures.record(stream, kind, (kind, "", (Crossing(kind, event), (), {}, None)))

    def replay(self, executable: Any, stream: Any) -> None:
        if self.capture_status(stream) is CaptureStatus.NONE:
            self.requested(executable.nodes)
        super().replay(executable, stream)

    def requested(self, nodes: Any) -> None:
        for node in nodes:
            if node.kind == "graph":
                self.requested(body_of(node.call))
            elif isinstance(node.call[0], Crossing):
                node.call[0].requested()


class NumberedCalls(NativeCalls):
    """Calls in C, by the numbers of the objects."""

    def __init__(self, backend: EveryCapability, stream: Any) -> None:
        self.backend = backend
        self.stream = stream

    def launch_function(self, executable: Any) -> LaunchFunction | None:
        self.backend.handle_int(executable), self.backend.handle_int(self.stream)
        return LaunchFunction(self.address(0, self.launch, ctypes.c_void_p), self.backend.launch_failed)

    def status_function(self) -> StatusFunction | None:
        return StatusFunction(self.address(1, self.ask, ctypes.POINTER(ctypes.c_int)), 1)

    def address(self, which: int, function: Any, last: Any) -> int:
        made = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, last)
        kept = self.backend.functions.setdefault(which, made(function))
        return ctypes.cast(kept, ctypes.c_void_p).value or 0

    def launch(self, executable: int, stream: int) -> int:
        try:
            self.backend.replay(self.backend.objects[executable], self.backend.objects[stream])
        except DriverError:
            return 1
        return 0

    def ask(self, stream: int, place: Any) -> int:
        place[0] = self.backend.number_of(self.backend.capture_status(self.backend.objects[stream]))
        return 0


class Hangs(CpuBackend):
    def synchronize(self, stream: Any) -> None:
        threading.Event().wait()


class EveryStreamOnDeviceZero(TwoDevices):
    def made_on(self, device: int) -> int:
        return 0


running_on = threading.local()
