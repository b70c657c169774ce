"""What every rule of the kit is written with: streams, graphs, cells, and waits that end."""

from __future__ import annotations

import re
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from numbers import Integral
from types import TracebackType
from typing import Any, ClassVar, Generic, TypeVar
from unittest.mock import patch
from weakref import WeakSet

import accelerator_graph as ag
from accelerator_graph.backends.base import Backend, Capability, CaptureStatus
from accelerator_graph.interop import registry as interop

from ._work import Work

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

A, B = 3, 1
"""The factor and the summand of a piece of work that needs no others."""


def needs(*capabilities: Capability) -> Callable[[T], T]:
    """Mark a rule that is about backends with these capabilities."""

    def mark(rule: T) -> T:
        rule.needs = capabilities  # type: ignore[attr-defined]
        return rule

    return mark


def lacks(capability: Capability) -> Callable[[T], T]:
    """Mark a rule that is about backends without a capability."""

    def mark(rule: T) -> T:
        rule.lacks = capability  # type: ignore[attr-defined]
        return rule

    return mark


def unmet(rule: object, backend: Backend) -> str:
    """Return why a rule is not about a backend; nothing if it is."""
    capabilities = backend.capabilities(0)
    for capability in getattr(rule, "needs", ()):
        if capability not in capabilities:
            return f"backend {backend.name!r} does not have the capability {str(capability)!r}"
    if (capability := getattr(rule, "lacks", None)) in capabilities:
        return f"backend {backend.name!r} has the capability {str(capability)!r}"
    return ""


class Case(ABC):
    """The base of all rules. Each test has an instance, and a thread, of its own."""

    time_limit: ClassVar[float] = 60.0
    """Seconds that a test may take, and any wait in it. A hard failure, with the place where it hangs."""

    backend: Backend
    used: Work

    @abstractmethod
    def work(self) -> Work:
        """Return the device's memory and work. Called once for each test."""

    # ---- around a test -------------------------------------------------------------------------

    def run(self, test: Callable[[], None]) -> None:
        """Run one test; check that it leaves no capture, the current stream as it was, and no complaint."""
        complaints: list[BaseException] = []
        before, sys.excepthook = sys.excepthook, lambda kind, error, trace: complaints.append(error)
        try:
            with patch.object(interop, "loaded", list):  # an imported framework adds limits of its own
                in_thread(lambda: self._run(test), self.time_limit, "conformance")
        finally:
            sys.excepthook = before
        for complaint in complaints:  # what is destroyed late has nobody to raise to
            raise AssertionError(f"destroying something raised {complaint!r}") from complaint

    def _run(self, test: Callable[[], None]) -> None:
        self.used = self.work()
        self.backend = ag.backends.get(self.used.backend)
        self._graphs: WeakSet[ag.Graph] = WeakSet()
        self._streams: WeakSet[ag.Stream] = WeakSet()
        before = ag.current_stream()
        try:
            test()
            capturing = [graph for graph in self._graphs if graph.state == "capturing"]
            assert not capturing, f"left capturing: {capturing}"
            for stream in self.open_streams():
                assert self.status(stream) is CaptureStatus.NONE, f"left capturing: {stream}"
            assert is_same(ag.current_stream(), before), f"the current stream is {ag.current_stream()}"
        finally:
            for graph in list(self._graphs):
                if graph.state == "capturing":
                    graph.reset()

    # ---- making things -------------------------------------------------------------------------

    def stream(self, device: int = 0, **how: Any) -> ag.Stream:
        """Make a stream of the backend."""
        stream = ag.Stream(device, backend=self.backend.name, **how)
        self._streams.add(stream)
        return stream

    def graph(self, stream: object = None, **how: Any) -> ag.Graph:
        """Make a graph, by default one that captures the current stream."""
        graph = ag.Graph(stream=stream, **how)
        self._graphs.add(graph)
        return graph

    def cell(self) -> Any:
        """Make a cell that holds 0."""
        return self.used.new()

    def enqueue(self, stream: ag.Stream, cell: Any, a: int = A, b: int = B) -> None:
        """Enqueue one piece of work."""
        self.used.enqueue(stream, cell, a, b)

    def enqueue_slow(self, stream: ag.Stream, cell: Any, a: int = A, b: int = B) -> None:
        """Enqueue one slow piece of work."""
        self.used.enqueue_slow(stream, cell, a, b)

    def captured(self, stream: ag.Stream, cell: Any, a: int = A, b: int = B, **how: Any) -> ag.Graph:
        """Make a graph that holds one piece of work."""
        graph = self.graph(stream, **how)
        with graph:
            self.enqueue(stream, cell, a, b)
        return graph

    # ---- asking --------------------------------------------------------------------------------

    def has(self, capability: Capability) -> bool:
        """Return True if the backend has a capability."""
        return capability in self.backend.capabilities(0)

    def status(self, stream: ag.Stream) -> CaptureStatus:
        """Return whether a stream is capturing."""
        return self.backend.capture_status(stream.native)

    def refusal(self, call: Callable[[], object]) -> ag.DriverError | ag.CaptureError | None:
        """Return the error by which the library refuses a call, or None. What else is raised passes."""
        try:
            call()
        except (ag.DriverError, ag.CaptureError) as error:
            return error.with_traceback(None)
        return None

    def open_streams(self) -> list[ag.Stream]:
        """Return the streams of this test that were not closed."""
        return [stream for stream in self._streams if not is_closed(stream)]

    def read(self, cell: Any) -> int:
        """Return what a cell holds when all streams of this test are done."""
        self.synchronize()
        return self.used.read(cell)

    def synchronize(self) -> None:
        """Wait for all streams of this test that are not capturing."""
        for stream in self.open_streams():
            if self.status(stream) is CaptureStatus.NONE:
                stream.synchronize()

    def eventually(self, cell: Any, value: int) -> None:
        """Wait until a cell holds a value, where there is no stream left to wait for."""
        end = time.monotonic() + self.time_limit / 4
        while (found := self.used.read(cell)) != value:
            assert time.monotonic() < end, f"the cell holds {found} instead of {value}"
            time.sleep(0.001)

    def works(self, stream: ag.Stream, graph: ag.Graph) -> None:
        """Check that a stream runs work, and that an empty graph captures it and replays that."""
        assert graph.state == "empty"
        assert self.status(stream) is CaptureStatus.NONE
        cell = self.cell()
        self.enqueue(stream, cell)
        assert self.read(cell) == applied(1)
        graph.capture_begin()
        self.enqueue(graph.stream or stream, cell)
        graph.capture_end()
        assert self.read(cell) == applied(1)
        graph.replay()
        graph.replay()
        if graph.stream is not None:
            graph.stream.synchronize()
        assert self.read(cell) == applied(3)

    # ---- threads -------------------------------------------------------------------------------

    def in_thread(self, function: Callable[[], T], name: str = "helper") -> T:
        """Run a function in another thread and return what it returns, or raise what it raises."""
        return in_thread(function, self.time_limit / 2, name)

    def in_threads(self, functions: Iterable[Callable[[], T]]) -> list[T]:
        """Run functions in a thread each, at once."""
        threads = [Thread(function, f"helper-{number}") for number, function in enumerate(functions)]
        return [thread.result(self.time_limit / 2) for thread in threads]

    def wait(self, event: threading.Event) -> None:
        """Wait for an event."""
        assert event.wait(self.time_limit / 4), "what was waited for did not happen in time"


class Thread(Generic[T]):
    """A function that runs in a thread."""

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function,), name=name, daemon=True)
        self._thread.start()

    def _run(self, function: Callable[[], T]) -> None:
        try:
            self._value.append(function())
        except BaseException as error:
            self._error = error

    def result(self, limit: float) -> T:
        """Return what the function returns, or raise what it raises; fail if it takes too long."""
        self._thread.join(limit)
        if self._thread.is_alive():
            frame = sys._current_frames().get(self._thread.ident or 0)
            where = "".join(traceback.format_stack(frame)) if frame else ""
            raise AssertionError(f"thread {self._thread.name!r} hangs since {limit:g} s:\n{where}")
        error, self._error = self._error, None
        try:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise AssertionError(f"{error!r} came out of thread {self._thread.name!r}") from error
            if error is not None:
                raise error
        finally:
            error = None
        return self._value.pop()


def in_thread(function: Callable[[], T], limit: float, name: str) -> T:
    """Run a function in another thread, which has to end within `limit` seconds."""
    return Thread(function, name).result(limit)


class raises(Generic[E]):
    """Expect an error in a ``with`` block, by `doing` something; `error` has it afterwards."""

    error: E

    def __init__(self, *kinds: type[E], match: str = "", doing: str = "") -> None:
        self._kinds = kinds
        self._match = match
        self._doing = f" by {doing}" if doing else ""

    def __enter__(self) -> raises[E]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        names = " or ".join(kind.__name__ for kind in self._kinds)
        assert error is not None, f"{names} was not raised{self._doing}"
        if not isinstance(error, self._kinds):
            return False
        assert re.search(self._match, str(error)), f"{str(error)!r} does not match {self._match!r}"
        self.error = error.with_traceback(None)
        return True


@Integral.register
class Number:
    """An integer that is not an `int`, like NumPy's."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value

    def __int__(self) -> int:
        return self._value


def applied(times: int, a: int = A, b: int = B, start: int = 0) -> int:
    """Return what a cell holds after one piece of work has been done several times."""
    for _ in range(times):
        start = (start * a + b) % 2**32
    return start


def is_closed(stream: ag.Stream) -> bool:
    """Return True if a stream was closed."""
    try:
        stream.native  # noqa: B018
    except ag.GraphStateError:
        return True
    return False


def is_same(first: ag.Stream | None, second: ag.Stream | None) -> bool:
    """Return True if two are the same stream, or both None."""
    if first is None or second is None:
        return first is second
    return first is second or bool(first.native == second.native)
