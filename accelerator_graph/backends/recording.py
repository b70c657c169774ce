"""Captures for runtimes that record explicitly, and runs that are whole and come one behind the other.

Where the runtime does not capture its streams, the backend keeps what is enqueued on them. `Captures` has the
captures in progress: which streams take part, what they have recorded, and what waits for what. It refuses
what a replay could not repeat. The runtime's streams are behind objects of a subclass of `Stream`::

    class MyBackend(HasCaptures, Enqueues):
        def open(self):
            self.captures = Captures(self.name)

        def launch(self, stream, work, /, *args):
            command = Command(work, args)
            if not self.captures.record(stream, "launch", command):
                stream.submit(command)

`HasCaptures` has the methods about captures and events, and about the `Graph` that a capture becomes. `Runs`
is for an executable, if the runtime does not order its runs, or if a run is several submissions; `Retired` is
for what a run needs, if the runtime does not keep that itself.

A signal handler may call all of this in the middle of itself. So a capture only ever grows, by one step for
each piece of work, and what waits for what is worked out at the end.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from operator import call
from typing import Any, ClassVar, Literal, NamedTuple

from ..errors import AcceleratorGraphError, DriverError, Reason, driver_error
from . import _contract as contract
from .base import CaptureInfo, CaptureMode, CaptureStatus
from .mixins import Events, ReadsGraphs

_NOTHING: frozenset[int] = frozenset()


class Recorded(NamedTuple):
    """A piece of work in a graph."""

    work: Any
    """What was given to `Captures.record`."""
    after: tuple[int, ...]
    """The pieces that it runs after, by their numbers. All of them were recorded earlier."""
    branch: int
    """The number of the stream that recorded it; the captured stream has 0."""


class Point(NamedTuple):
    """What a stream had recorded at some time."""

    capture: Capture
    nodes: frozenset[int]


class Stream(ABC):
    """A stream, as far as `Captures` and `HasCaptures` use it.

    Attributes
    ----------
    capture : Capture or None
        The capture that the stream takes part in. One that has ended counts as none.
    place : object
        What all streams of a capture have to share: the device, the context. None if any can take part.
    """

    __slots__ = ("__weakref__", "capture")

    place: Hashable = None

    def __init__(self) -> None:
        self.capture: Capture | None = None

    @abstractmethod
    def mark(self) -> Any:
        """Return something that marks the present end of the stream's work. It may outlive the stream.

        Of a backend that `TimesEvents` it has the methods `synchronize` and `query`, too.
        """

    @abstractmethod
    def follow(self, mark: Any) -> None:
        """Let later work wait for what `mark` of any stream has returned."""

    @abstractmethod
    def synchronize(self) -> None:
        """Do what `Backend.synchronize` does on a stream that is not capturing."""

    @abstractmethod
    def query(self) -> bool:
        """Do what `Events.query` does on a stream that is not capturing."""


class Event:
    """A point in a stream's work: a mark, or pieces of a capture.

    Attributes
    ----------
    mark : object
        What `Stream.mark` has returned; None if the stream was capturing.
    capture : Capture or None
        The capture, if the stream was capturing.
    nodes : frozenset of int
        The pieces of that capture that come before.
    """

    __slots__ = ("capture", "mark", "nodes")

    def __init__(self, mark: Any, capture: Capture | None = None, nodes: frozenset[int] = _NOTHING) -> None:
        self.mark: Any = mark
        self.capture: Capture | None = capture
        self.nodes: frozenset[int] = nodes

    def synchronize(self) -> None:
        """Wait for the work before the mark; of what was recorded in a capture nothing runs."""
        if self.mark is not None:
            self.mark.synchronize()

    def query(self) -> bool:
        """Return True if the work before the mark is done."""
        return self.mark is not None and bool(self.mark.query())


class _Entry(NamedTuple):
    branch: int
    work: Any
    inside: tuple[int, ...] = ()
    """Of a piece of another graph: how far back the pieces of that graph are that it runs after."""
    sinks: tuple[int, ...] | None = (0,)
    """How far back the pieces are that the next work of the stream runs after; None inside of a graph."""


class Capture:
    """A capture: the token, until it becomes a graph.

    Attributes
    ----------
    origin : object
        The stream that is captured.
    streams : dict
        The streams that take part, with the numbers of their branches.
    status : CaptureStatus
        NONE from the end on.
    """

    __slots__ = ("_entries", "_joins", "mode", "origin", "status", "streams", "thread")

    def __init__(self, origin: Any, mode: CaptureMode = "default") -> None:
        self.origin: Any = origin
        self.mode: CaptureMode = mode
        self.thread: threading.Thread = threading.current_thread()
        self.status: CaptureStatus = CaptureStatus.ACTIVE
        self.streams: dict[Any, int] = {origin: 0}
        self._entries: list[_Entry] = []
        self._joins: dict[int, list[tuple[int, frozenset[int]]]] = {}
        """By branch: what its work waits for from a number of entries on."""

    @property
    def count(self) -> int:
        """How many pieces of work it has recorded."""
        return len(self._entries)

    def add(self, stream: Any, work: Any) -> None:
        """Record a piece of work."""
        self._entries.append(_Entry(self.streams[stream], work))

    def add_graph(self, stream: Any, pieces: Sequence[Recorded]) -> None:
        """Record the work of a graph."""
        if pieces:
            branch, last = self.streams[stream], len(pieces) - 1
            sinks = set(range(len(pieces))).difference(*(piece.after for piece in pieces))
            entries = [
                _Entry(branch, piece.work, tuple(number - each for each in piece.after), None)
                for number, piece in enumerate(pieces)
            ]
            entries[last] = entries[last]._replace(sinks=tuple(last - each for each in sorted(sinks)))
            self._entries.extend(entries)

    def join(self, stream: Any, nodes: frozenset[int]) -> None:
        """Let the next work of a stream, which takes part from now on, run after these pieces as well."""
        branch = self.streams.setdefault(stream, len(self.streams))
        self._joins.setdefault(branch, []).append((len(self._entries), nodes))

    def ends(self, stream: Any) -> frozenset[int]:
        """Return the numbers of the pieces that the next work of a stream runs after."""
        entries, branch = self._entries, self.streams[stream]
        found, after = _NOTHING, -1
        for number in reversed(range(len(entries))):
            entry = entries[number]
            if entry.branch == branch and entry.sinks is not None:
                found, after = frozenset([number - each for each in entry.sinks]), number
                break
        for begin, nodes in reversed(self._joins.get(branch, [])):
            if begin <= after:
                break
            found |= nodes
        return found

    def recorded(self) -> list[Recorded]:
        """Return all work in the order of recording."""
        ends: dict[int, frozenset[int]] = {}
        joins = {branch: deque(found) for branch, found in self._joins.items()}
        all_of_it: list[Recorded] = []
        for number, (branch, work, inside, sinks) in enumerate(self._entries):
            waiting = joins.get(branch)
            while waiting and waiting[0][0] <= number:
                ends[branch] = ends.get(branch, _NOTHING) | waiting.popleft()[1]
            after = [number - each for each in inside] if inside else sorted(ends.get(branch, ()))
            all_of_it.append(Recorded(work, tuple(after), branch))
            if sinks is not None:
                ends[branch] = frozenset([number - each for each in sinks])
        return all_of_it

    def is_joined(self, work: Iterable[Recorded]) -> bool:
        """Return True if the captured stream has waited for all of this work."""
        pieces = list(work)
        last = set(range(len(pieces))).difference(*(each.after for each in pieces))
        return last <= self.ends(self.origin)

    def clear(self) -> None:
        """Forget the streams and what they have recorded."""
        self.streams, self._entries, self._joins = {}, [], {}


class Captures:
    """The captures in progress, and what is permitted meanwhile.

    A refusal leaves captures as they are. A subclass whose runtime breaks them overrides `refused`. The
    errors have these names:

    ====================  =======================================================================
    ILLEGAL_STATE         a capture was begun on a capturing stream, or ended twice
    CAPTURE_UNSUPPORTED   a stream was waited for while a capture forbids that
    CAPTURE_INVALIDATED   an earlier call broke the capture
    CAPTURE_ISOLATION     a captured stream was to wait for work outside its capture, or the reverse
    CAPTURE_MERGE         a stream of one capture was to wait for work of another
    CAPTURE_PLACE         a stream of another device or context was to take part in a capture
    CAPTURE_UNJOINED      the capture was ended before its stream had waited for all forked work
    ====================  =======================================================================

    Parameters
    ----------
    name : str
        The name of the backend, for errors.
    """

    __slots__ = ("_lock", "_name", "_open")

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.RLock()  # guards the captures, and the streams' attributes
        self._open: set[Capture] = set()

    def status(self, stream: Any) -> CaptureStatus:
        """Return the answer of `Backend.capture_status`."""
        capture: Capture | None = stream.capture
        return CaptureStatus.NONE if capture is None else capture.status

    def info(self, stream: Any) -> CaptureInfo | None:
        """Return the answer of `Backend.capture_info`."""
        capture: Capture | None = stream.capture
        if capture is None or capture.status is not CaptureStatus.ACTIVE:
            return None
        return CaptureInfo(id(capture), capture.count)

    def begin(self, stream: Any, mode: CaptureMode = "default") -> Capture:
        """Begin a capture. If anything is raised, none has begun."""
        capture = Capture(stream, mode)
        try:
            with self._lock:
                if self.of(stream) is not None:
                    raise self.error("capture_begin", "ILLEGAL_STATE", "foreign_capture")
                self._open.add(capture)
                stream.capture = capture
            return capture
        except BaseException:
            self.close(capture)
            raise

    def end(self, capture: Capture) -> list[Recorded]:
        """End a capture and return what it has recorded. If anything is raised, it has ended, too."""
        try:
            with self._lock:
                if capture.status is CaptureStatus.NONE:
                    detail = "the capture has ended already"
                    raise self.error("capture_end", "ILLEGAL_STATE", "other", detail)
                self.check_end(capture)
                if capture.status is CaptureStatus.INVALIDATED:
                    raise self.error("capture_end", "CAPTURE_INVALIDATED", "invalidated")
                work = capture.recorded()
                if not capture.is_joined(work):
                    raise self.error("capture_end", "CAPTURE_UNJOINED", "unjoined")
                return work
        finally:
            self.close(capture)

    def close(self, capture: Capture) -> None:
        """End a capture in any state, and forget what it has recorded."""
        with self._lock:
            capture.status = CaptureStatus.NONE
            for stream in list(capture.streams):
                if stream.capture is capture:
                    stream.capture = None
            self._open.discard(capture)
            capture.clear()

    def record(self, stream: Any, method: str, work: Any) -> bool:
        """Record a piece of work if the stream is capturing. Return False if it is not."""
        if stream.capture is None:
            return False
        with self._lock:
            capture = self.active(stream, method)
            if capture is not None:
                capture.add(stream, work)
            return capture is not None

    def record_graph(self, stream: Any, pieces: Sequence[Recorded]) -> bool:
        """Record the work of a whole graph if the stream is capturing. Return False if it is not."""
        if stream.capture is None:
            return False
        with self._lock:
            capture = self.active(stream, "replay")
            if capture is not None:
                capture.add_graph(stream, pieces)
            return capture is not None

    def mark(self, stream: Any) -> Point | None:
        """Return what a capturing stream has recorded, for an event; None if it is not capturing."""
        with self._lock:
            capture = self.active(stream, "record_event")
            return None if capture is None else Point(capture, capture.ends(stream))

    def link(self, stream: Any, event: Any) -> bool:
        """Let the stream's next work wait for an event; return False if no capture is involved.

        The event has the attributes of a `Point`: `capture` is None if it was not recorded in a capture.
        """
        with self._lock:
            own, other = self.active(stream, "wait_event"), event.capture
            if own is None and other is None:
                return False
            if other is None or other.status is CaptureStatus.NONE:
                self.refused(own)
                raise self.error("wait_event", "CAPTURE_ISOLATION", "foreign_capture")
            if own is not None and own is not other:
                self.refused(own, other)
                raise self.error("wait_event", "CAPTURE_MERGE", "foreign_capture")
            if other.status is CaptureStatus.INVALIDATED:
                raise self.error("wait_event", "CAPTURE_INVALIDATED", "invalidated")
            if stream.place != other.origin.place:
                detail = (
                    "a graph's streams must share one device and one context; make the other stream with "
                    "like= the captured one"
                )
                raise self.error("wait_event", "CAPTURE_PLACE", "other", detail)
            other.join(stream, event.nodes)
            stream.capture = other
            return True

    def check_waiting(self, stream: Any, call: str) -> None:
        """Raise an error if the stream is capturing, since nothing runs there that could be waited for."""
        own = self.of(stream)
        if own is not None:
            self.refused(own)
            raise self.error(call, "CAPTURE_UNSUPPORTED", "illegal_call")

    # ---- for subclasses ------------------------------------------------------------------------

    def refused(self, *captures: Capture | None) -> None:
        """Note that a call about these captures is about to be refused."""

    def check_end(self, capture: Capture) -> None:
        """Raise an error if the capture can't be ended now."""

    def of(self, member: Any) -> Capture | None:
        """Return the capture of a stream or an event, if it has not ended."""
        capture: Capture | None = member.capture
        return None if capture is None or capture.status is CaptureStatus.NONE else capture

    def active(self, stream: Any, call: str) -> Capture | None:
        """Return the capture of a stream; raise an error if it is broken."""
        capture = self.of(stream)
        if capture is not None and capture.status is CaptureStatus.INVALIDATED:
            raise self.error(call, "CAPTURE_INVALIDATED", "invalidated")
        return capture

    def error(self, call: str, code_name: str, reason: Reason, detail: str = "") -> DriverError:
        """Make the error of a refusal."""
        return driver_error(
            backend=self._name, call=call, code=None, code_name=code_name, reason=reason, detail=detail
        )


class Graph:
    """What a capture has recorded.

    Attributes
    ----------
    nodes : sequence of Recorded
        All work, in the order of recording; none after `Backend.destroy_graph`.
    origin : object
        The stream that was captured.
    """

    __slots__ = ("nodes", "origin")

    def __init__(self, nodes: Sequence[Recorded], origin: Any) -> None:
        self.nodes: Sequence[Recorded] = nodes
        self.origin: Any = origin


class HasCaptures(Events, ReadsGraphs):
    """A backend whose captures are `Captures`, of streams that are each a `Stream`; they become a `Graph`.

    If it `TimesEvents`, it has to write `elapsed_time` alone.

    What it records has the attributes `kind` and `name`, which mean what they do in a `GraphNode`.
    """

    __slots__ = ()

    recording: ClassVar[Literal["stream", "explicit"]] = "explicit"

    captures: Captures
    """The captures in progress. `open` makes it."""

    def synchronize(self, stream: Any) -> None:
        """Wait until all work on the stream, or before an `Event`, is done. A capturing stream refuses."""
        self.captures.check_waiting(stream, "synchronize")
        stream.synchronize()

    def query(self, stream: Any) -> bool:
        """Return True if all work on the stream, or before an `Event`, is done. Refuses likewise."""
        self.captures.check_waiting(stream, "query")
        done: bool = stream.query()
        return done

    def record_event(self, stream: Any, *, timed: bool = False) -> Any:
        """Return an `Event`: the present end of the stream's work, or of what the stream has recorded."""
        point = self.captures.mark(stream)
        return Event(stream.mark()) if point is None else Event(None, *point)

    def wait_event(self, stream: Any, event: Any) -> None:
        """Let later work on the stream wait for the event. An event of a capture takes the stream into it."""
        if not self.captures.link(stream, event):
            stream.follow(event.mark)

    def capture_status(self, stream: Any) -> CaptureStatus:
        """Return whether the stream takes part in a capture."""
        return self.captures.status(stream)

    def capture_info(self, stream: Any) -> CaptureInfo | None:
        """Return a number for the capture that the stream takes part in, and how much it has recorded."""
        return self.captures.info(stream)

    def capture_begin(self, stream: Any, mode: CaptureMode) -> Capture:
        """Record what is enqueued through the library from now on, instead of running it."""
        return self.captures.begin(stream, mode)

    def capture_end(self, token: Capture) -> Any:
        """Return the `Graph`. All streams that took part are ordinary ones again, even if it raises."""
        return Graph(self.captures.end(token), token.origin)

    def capture_abandon(self, token: Capture) -> None:
        """End the capture if it has not ended, and throw away what was recorded."""
        self.captures.close(token)

    def destroy_graph(self, graph: Any) -> None:
        """Forget what was recorded. Executables have what they need."""
        graph.nodes = ()

    def nodes(self, graph: Any, executable: Any = None) -> contract.GraphContents:
        """List the recorded work in order, and the dependencies between its pieces."""
        nodes = [
            contract.GraphNode(index, node.work.kind, node.work.name)
            for index, node in enumerate(graph.nodes)
        ]
        edges = [
            contract.GraphEdge(before, index)
            for index, node in enumerate(graph.nodes)
            for before in node.after
        ]
        return nodes, edges


# ---- runs ----------------------------------------------------------------------------------------


class Run(ABC):
    """One run of an executable.

    Parameters
    ----------
    parts : iterable of callable, optional
        The calls that submit it. These are functions of C, such as those of `ctypes` or methods of builtin
        types in a `functools.partial`: so no signal handler comes between two of them, and none is made
        twice. Each returns a code; any other than 0 or None is an error, and the rest is left out.

    Attributes
    ----------
    submission : {"ahead", "begun", "over"}
        How far `Runs` is with it.
    """

    __slots__ = ("_parts", "submission")

    def __init__(self, parts: Iterable[Callable[[], Any]] = ()) -> None:
        self._parts = iter(tuple(parts))
        self.submission: Literal["ahead", "begun", "over"] = "ahead"

    @abstractmethod
    def follow(self, previous: Any) -> None:
        """Let this run come behind another one, which is None for the first. May be called again."""

    def failed(self, code: Any) -> BaseException:
        """Return the error for the code of a part."""
        return RuntimeError(f"a part of a run returned {code!r}.")

    def submit(self) -> None:
        """Submit what has not been submitted yet.

        A subclass without parts overrides this. It may be called again, in the middle of itself too, and
        whatever it submits twice has to count once. An error of the library says that nothing was submitted.
        """
        code = next(filter(None, map(call, self._parts)), None)
        if code is not None:
            self._parts, self.submission = iter(()), "over"
            raise self.failed(code)


class Runs:
    """The runs of one executable: each is whole and behind the one before, whatever asks for them.

    A run has its place as soon as `enqueue` has put it on the list. If a signal handler asks for another one
    in the middle, that call first finishes what this one has begun. If a handler raises in the middle, nobody
    can tell whether the runtime has the run already: it is submitted again, and the exception passes then.
    So a run that may be under way is never forgotten. Several threads must not ask at once.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: deque[Any] = deque([None])
        """The latest run that was submitted, and those that are not yet."""

    @property
    def latest(self) -> Any:
        """The latest run that was submitted; None if there is none."""
        return self._runs[0]

    def enqueue(self, run: Run) -> None:
        """Submit a run behind all others."""
        try:
            self._runs.append(run)
            self._submit()
        except BaseException:
            self._settle()
            raise

    def _submit(self) -> None:
        """Submit what is on the list."""
        runs = self._runs
        while True:
            try:
                previous, first = runs[0], runs[1]
            except IndexError:  # all are submitted, perhaps by a signal handler
                return
            if first.submission != "over":
                first.follow(previous)
                first.submission = "begun"
                try:
                    first.submit()
                except AcceleratorGraphError:
                    if first.submission == "begun":  # else a signal handler's error has come through
                        first.submission = "ahead"
                    raise
                first.submission = "over"
            with suppress(ValueError):
                runs.remove(previous)

    def _settle(self) -> None:
        """After an exception: submit what may have been submitted in part, and drop what was not."""
        for run in list(self._runs)[1:]:
            while run.submission == "begun":
                try:
                    run.submit()
                    run.submission = "over"
                except Exception:
                    if run.submission == "begun":
                        run.submission = "ahead"
                except BaseException:  # one more signal
                    continue
            if run.submission == "ahead":
                with suppress(ValueError):
                    self._runs.remove(run)

    def forget(self) -> None:
        """Forget the latest run, if it is known to be over."""
        self._runs = deque([None])


class Retired:
    """What runs in progress still need after their executables were destroyed.

    For runtimes without callbacks: call `sweep` wherever a call costs much anyway.

    Parameters
    ----------
    is_over : callable
        Says whether what is before a mark is done, or has failed.
    """

    __slots__ = ("_is_over", "_waiting")

    def __init__(self, is_over: Callable[[Any], bool]) -> None:
        self._is_over = is_over
        self._waiting: dict[object, tuple[Any, object]] = {}

    def keep(self, mark: Any, needed: object) -> None:
        """Keep what is needed until the work before a mark is over."""
        self._waiting[object()] = mark, needed

    def sweep(self) -> None:
        """Let go of what is no longer needed."""
        for key, (mark, _) in list(self._waiting.items()):
            if self._is_over(mark):
                self._waiting.pop(key, None)
