"""What every rule of the kit is written with: streams, graphs, cells, and waits that end."""

from __future__ import annotations

import gc
import inspect
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from typing import Any, ClassVar
from unittest import SkipTest
from unittest.mock import patch
from weakref import WeakSet

import accelerator_graph as ag
from accelerator_graph.backends.base import (
    AnyBackend,
    Backend,
    Capability,
    CaptureStatus,
    LaunchFunction,
    NativeCalls,
    StatusFunction,
)
from accelerator_graph.backends.mixins import MIXINS
from accelerator_graph.errors import AcceleratorGraphError
from accelerator_graph.interop import registry as interop

from ._tools import (
    Number,
    T,
    Thread,
    expect,
    folder,
    in_thread,
    is_closed,
    is_same,
    lacks,
    needs,
    only_if,
    raises,
)
from ._work import A, B, Work, applied

__all__ = ["Case", "Number", "applied", "expect", "folder", "is_same", "lacks", "needs", "only_if", "raises"]


PERMITTED: dict[str, tuple[type[Exception], ...]] = {
    "fill": (TypeError, ValueError),
    "copy": (TypeError, ValueError),
    "launch": (TypeError, ValueError),
    "as_stream": (ValueError,),
    "dump": (OSError,),
}
"""What a method may raise beside the errors of the library."""

CONTRACT: dict[str, Any] = {
    name: member for kind in (Backend, *MIXINS) for name, member in inspect.getmembers_static(kind)
}
"""The members of all classes of the contract."""
METHODS = [name for name, each in CONTRACT.items() if inspect.isfunction(each) and not name.startswith("_")]


class _WatchedCalls(NativeCalls):
    """Native calls that go through a watch."""

    def __init__(self, calls: NativeCalls, watch: Callable[..., Any]) -> None:
        self._calls, self._watch = calls, watch

    def bind(self, executable: Any) -> Callable[[], None] | None:
        found = self._watch(self._calls.bind, executable)
        return None if found is None else partial(self._watch, found)

    def launch_function(self, executable: Any) -> LaunchFunction | None:
        found: LaunchFunction | None = self._watch(self._calls.launch_function, executable)
        return found

    def status_function(self) -> StatusFunction | None:
        found: StatusFunction | None = self._watch(self._calls.status_function)
        return found

    def front(self) -> Hashable | None:
        found: Hashable | None = self._watch(self._calls.front)
        return found

    def upload(self, executable: Any) -> None:
        self._watch(self._calls.upload, executable)


class Watch:
    """Wraps the contract's methods of a backend's class, from `begin` to `end`."""

    def __init__(self) -> None:
        self._kind: type[Backend] | None = None
        self._own: dict[str, Any] = {}
        self._escaped: list[tuple[str, Exception]] = []

    def begin(self, kind: type[Backend]) -> None:
        """Wrap the methods of a class."""
        self._kind = kind
        self._own = {name: vars(kind)[name] for name in METHODS if name in vars(kind)}
        for name in METHODS:
            method = inspect.getattr_static(kind, name, None)
            if callable(method) or isinstance(
                method, classmethod
            ):  # else a rule says that it must be a method
                setattr(kind, name, self._watched(name, method))

    def end(self) -> AssertionError | None:
        """Restore the class; return an error about the first exception that must not have come out."""
        if self._kind is None:
            return None
        for name in METHODS:
            if name in self._own:
                setattr(self._kind, name, self._own[name])
            elif name in vars(self._kind):
                delattr(self._kind, name)
        if not self._escaped:
            return None
        name, error = self._escaped.pop()
        instead = (
            "raise an error of accelerator_graph.errors instead, with the vendor's exception as its cause"
        )
        if type(error).__module__ == "builtins":  # the author's mistake, unless a vendor raises such errors
            instead = f"mend that, or, if your runtime has raised it, {instead}"
        found = AssertionError(f"{self._kind.__qualname__}.{name} let {type(error).__name__} out; {instead}")
        found.__cause__ = error
        return found

    def _watched(self, name: str, method: Any) -> Callable[..., Any]:
        permitted: tuple[type[Exception], ...] = (AcceleratorGraphError, *PERMITTED.get(name, ()))

        def call(function: Callable[..., Any], *args: Any, **how: Any) -> Any:
            try:
                return function(*args, **how)
            except permitted:
                raise
            except Exception as error:
                if not self._escaped:
                    self._escaped.append((name, error))
                raise

        @wraps(method)
        def watched(backend: Backend, *args: Any, **how: Any) -> Any:
            found = call(method.__get__(backend, type(backend)), *args, **how)
            return _WatchedCalls(found, call) if isinstance(found, NativeCalls) else found

        return watched


PIECES = 10
"""How many slow pieces of work are enqueued together: they take 10 ms or more."""


class Case(ABC):
    """The base of all rules. Each test has an instance, and a thread, of its own."""

    time_limit: ClassVar[float] = 120.0
    """Seconds after which a call that does nothing hangs. A hard failure, with the place where that is."""

    patience: ClassVar[float] = 30.0
    """Seconds that a rule waits for what the runtime has to do at some time."""

    backend: AnyBackend
    used: Work

    @abstractmethod
    def work(self) -> Work:
        """Return the device's memory and work. Called once for each test."""

    # ---- around a test -------------------------------------------------------------------------

    def run(self, test: Callable[[], None]) -> None:
        """Run one test; check that it leaves no capture, the current stream as it was, and no complaint.

        Fails also if a method of the backend let out an exception that is not one of the library's.
        """
        complaints: list[BaseException] = []
        before, sys.excepthook = sys.excepthook, lambda kind, error, trace: complaints.append(error)
        watch = Watch()
        try:
            with patch.object(interop, "names", list):  # an imported framework adds limits of its own
                in_thread(lambda: self._run(test, watch), self.time_limit, "conformance")
        finally:
            sys.excepthook = before
            escaped = watch.end()
            if escaped is not None:
                raise escaped
        for complaint in complaints:  # errors of a late destruction reach no caller
            raise AssertionError(f"destroying something raised {complaint!r}") from complaint

    def _run(self, test: Callable[[], None], watch: Watch) -> None:
        self.used = self.work()
        self.backend = ag.backends.get(self.used.backend)
        watch.begin(type(self.backend))
        self._graphs: WeakSet[ag.Graph] = WeakSet()
        self._streams: WeakSet[ag.Stream] = WeakSet()
        self._cells: list[Any] = []  # work on them may be in progress when a rule drops them
        before = ag.current_stream(required=False)
        try:
            test()
            capturing = [graph for graph in self._graphs if graph.state == "capturing"]
            assert not capturing, f"left capturing: {capturing}"
            for stream in self.open_streams():
                assert self.status(stream) is CaptureStatus.NONE, f"left capturing: {stream}"
                stream.synchronize()
            current = ag.current_stream(required=False)
            assert is_same(current, before), f"the current stream is {current}"
        except BaseException:
            self._complete_work()
            raise

    def _complete_work(self) -> None:
        """End the captures and wait for the work of a test that stopped early.

        Its memory goes with the exception. No other error may hide that one.
        """
        for graph in list(self._graphs):
            if graph.state == "capturing":
                with suppress(ag.errors.AcceleratorGraphError):
                    graph.reset()
        for stream in self.open_streams():
            with suppress(AssertionError, ag.errors.AcceleratorGraphError):
                if self.status(stream) is CaptureStatus.NONE:
                    in_thread(stream.synchronize, self.time_limit / 4, "conformance")

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

    def adopt(self, made: Iterable[object]) -> None:
        """Take the streams and the graphs of other code for those of this test."""
        for each in made:
            if isinstance(each, ag.Stream):
                self._streams.add(each)
            elif isinstance(each, ag.Graph):
                self._graphs.add(each)

    def cell(self) -> Any:
        """Make a cell that holds 0."""
        self._cells.append(self.used.new())
        return self._cells[-1]

    def enqueue(self, stream: ag.Stream, cell: Any, a: int = A, b: int = B, *, times: int = 1) -> None:
        """Enqueue a piece of work, or the same one several times."""
        for _ in range(times):
            self.used.enqueue(stream, cell, a, b)

    def enqueue_slow(self, stream: ag.Stream, cell: Any, a: int = A, b: int = B, *, times: int = 1) -> None:
        """Enqueue a slow piece of work, or the same one several times."""
        for _ in range(times):
            self.used.enqueue_slow(stream, cell, a, b)

    def seen_in_progress(self, enqueue: Callable[[], object], stream: ag.Stream, cell: Any) -> bool:
        """Enqueue `PIECES` of work on an idle stream, more each time; return True if some was seen undone."""
        for doublings in range(5):  # on a busy machine, ten pieces may be done by then
            before = self.used.read(cell)
            for _ in range(1 << doublings):
                enqueue()
            found = self.used.read(cell)
            stream.synchronize()
            if found != applied(PIECES << doublings, start=before):
                return True
        return False

    def setup(self, **how: Any) -> tuple[ag.Stream, Any, ag.Graph]:
        """Make a stream, a cell, and a graph that captures the stream."""
        stream = self.stream()
        return stream, self.cell(), self.graph(stream, **how)

    def setup_captured(self, a: int = A, b: int = B, **how: Any) -> tuple[ag.Stream, Any, ag.Graph]:
        """Make a stream, a cell, and a graph that holds one piece of work on them."""
        stream, cell = self.stream(), self.cell()
        return stream, cell, self.captured(stream, cell, a, b, **how)

    def setup_capturing(self, **how: Any) -> tuple[ag.Stream, Any, ag.Graph]:
        """Make a stream, a cell, and a graph whose capture was begun by hand and has one piece of work."""
        stream, cell, graph = self.setup(**how)
        graph.capture_begin()
        self.enqueue(stream, cell)
        return stream, cell, graph

    def captured(
        self, stream: ag.Stream, cell: Any, a: int = A, b: int = B, *, slow: bool = False, **how: Any
    ) -> ag.Graph:
        """Make a graph that holds one piece of work."""
        with self.graph(stream, **how) as graph:
            (self.enqueue_slow if slow else self.enqueue)(stream, cell, a, b)
        return graph

    @contextmanager
    def undisturbed_capture(self, stream: ag.Stream | None = None, **how: Any) -> Iterator[ag.Graph]:
        """Capture one piece of work before the body and one after it; check that the graph holds both."""
        stream, cell = stream or self.stream(), self.cell()
        with self.graph(stream, **how) as graph:
            self.enqueue(stream, cell)
            yield graph
            assert self.status(stream) is CaptureStatus.ACTIVE
            self.enqueue(stream, cell)
        assert self.read(cell) == 0
        assert self.replayed(graph, cell) == applied(2)

    # ---- through the backend itself --------------------------------------------------------------

    def bound(self, executable: Any, native: Any) -> Callable[[], object]:
        """Return what launches an executable on a stream of the backend: what it binds, if it does."""
        calls = self.backend.native_calls(native)
        found = None if calls is None else calls.bind(executable)
        return found or partial(self.backend.replay, executable, native)

    def recorded_so_far(self, stream: ag.Stream) -> int | None:
        """Return how many nodes the capture of a stream has; None if there is none or that is not known."""
        info = self.backend.capture_info(stream._native)
        return None if info is None else info.nodes

    def begin(self, stream: ag.Stream) -> Any:
        """Begin a capture that the library does not know of; return its token."""
        return self.backend.capture_begin(stream.native, self.backend.capture_modes[0])

    def record_run(self, graph: ag.Graph, stream: ag.Stream) -> None:
        """Record a run of a kept graph in a capture that the library does not know of."""
        if self.backend.records_graphs:
            self.backend.record_graph(stream.native, graph._kept("replay()").native)
        else:
            graph.replay(stream)

    def recorded(self, stream: ag.Stream, cell: Any, *, slow: bool = False) -> Any:
        """Return the backend's graph of one piece of work. The caller destroys it."""
        token = self.begin(stream)
        try:
            (self.enqueue_slow if slow else self.enqueue)(stream, cell)
        except BaseException:
            self.backend.capture_abandon(token)
            raise
        return self.backend.capture_end(token)

    @contextmanager
    def executable(self, stream: ag.Stream, cell: Any, *, slow: bool = False) -> Iterator[Any]:
        """Have an executable of one piece of work, whose graph is destroyed before."""
        graph = self.recorded(stream, cell, slow=slow)
        executable = self.backend.instantiate(graph)
        self.backend.destroy_graph(graph)
        try:
            yield executable
        finally:
            self.backend.destroy_executable(executable)

    # ---- asking --------------------------------------------------------------------------------

    def has(self, capability: Capability) -> bool:
        """Return True if the backend has a capability."""
        return capability in self.backend.capabilities(0)

    def skip_unless(self, condition: object, fact: str) -> None:
        """Skip the test unless a condition holds; `fact` says what is true of the backend then."""
        if not condition:
            raise SkipTest(f"backend {self.backend.name!r} {fact}")

    def modes(self) -> set[str]:
        """Return all capture modes of the backend, with "default"."""
        return {"default", *self.backend.capture_modes}

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

    def read_after(self, stream: ag.Stream, cell: Any) -> int:
        """Return what a cell holds when one stream is done."""
        stream.synchronize()
        return self.used.read(cell)

    def bytes_of(self, buffer: Any) -> bytes:
        """Return what a buffer holds when all streams of this test are done."""
        self.synchronize()
        return self.used.read_bytes(buffer)

    def replayed(self, graph: ag.Graph, cell: Any, *, times: int = 1) -> int:
        """Replay a graph; return what a cell then holds."""
        for _ in range(times):
            graph.replay()
        return self.read(cell)

    def replays(self, graph: ag.Graph, cell: Any, once: Callable[[int], int]) -> None:
        """Check that a cell holds 0, and that each replay of a graph then does what `once` says."""
        assert self.read(cell) == 0
        assert self.replayed(graph, cell, times=3) == once(once(once(0))) % 2**32

    def collect(self) -> None:
        """Collect garbage, and let the library destroy what is queued."""
        gc.collect()
        self.graph().reset()  # an ordinary call, which does that

    def synchronize(self) -> None:
        """Wait for all streams of this test that are not capturing."""
        for stream in self.open_streams():
            if self.status(stream) is CaptureStatus.NONE:
                stream.synchronize()

    def eventually(self, cell: Any, value: int) -> None:
        """Wait until a cell holds a value, where there is no stream left to wait for."""
        end = time.monotonic() + self.patience
        while (found := self.used.read(cell)) != value:
            if time.monotonic() > end:
                raise AssertionError(f"the cell holds {found} instead of {value}")
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
        for _ in range(2):
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
        end = time.monotonic() + self.patience
        while not event.wait(0.1):  # by which the kit sees that this thread does not hang
            assert time.monotonic() < end, "what was waited for did not happen in time"
