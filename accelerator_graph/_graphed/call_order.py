"""The streams of a graphed function's calls: where each graph is replayed, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple
from weakref import ref

from .._arrays.arrays import ArrayType, frameworks_of
from .._core.current_stream import current as current_or_none
from .._core.launching import make_room
from .._core.ownership import Owned
from .._core.streams import Event, FrameworkCurrent, Stream, innermost
from ..api import Graph
from ..backends.base import Capability, CaptureStatus
from ..errors import CaptureError

_DEFAULT_STREAMS = (0, 1)
"""Handles that mean the same stream on every thread. 2 does not: it means the thread's own."""


_IDLE = CaptureStatus.NONE


class CallOrder:
    """Makes each call of a function wait for the one before."""

    __slots__ = ("_end", "_streams", "last")

    def __init__(self) -> None:
        self.last: Stream | None = None
        """The stream of the last call. None once the end of that call is marked: the next call has to
        `move_to` its stream in any case, since the same handle may be another stream by then."""
        self._end: Event | None = None
        self._streams: dict[Hashable, Stream] = {}

    def hold(self, stream: Stream) -> Stream:
        """Return another hold on a stream; the same object for the same stream."""
        key = (stream.backend, stream.device, stream_key(stream))
        if key not in self._streams:
            make_room(self._streams)
            self._streams[key] = stream.held()
        return self._streams[key]

    def move_to(self, stream: Stream) -> None:
        """Continue on another stream, after the calls so far."""
        self.wait(stream)
        self.last, self._end = stream, None

    def wait(self, stream: Stream) -> None:
        """Make a stream wait for the calls so far."""
        last, end, backend = self.last, self._end, stream._backend
        if end is not None:
            if end._native.backend is backend:
                stream.wait(end)
        elif last is None or last is stream or last._backend is not backend:
            return
        elif not last._is_capturing():  # nobody may wait for a stream that is being captured
            stream._follow(last)

    def mark_end(self) -> None:
        """Mark the end of a call by an event, since its stream may be destroyed before the next call."""
        assert self.last is not None
        self._end = self.last.record()
        self.last = None


def stream_key(stream: Stream) -> Hashable:
    """Return a value that is different for each stream of a device."""
    backend, native = stream._backend, stream._native
    if Capability.HANDLES in backend.capabilities(stream._device):
        return backend.handle_int(native)
    return id(native)


def lives_while_held(stream: Stream) -> bool:
    """Return True if a stream can't be destroyed while it is held, or at all."""
    owner, key = stream._owner, stream_key(stream)
    if isinstance(owner, FrameworkCurrent) and isinstance(key, int):
        return key in _DEFAULT_STREAMS or owner.framework.keeps_stream(key, stream._device)
    return isinstance(owner, Owned) or key in _DEFAULT_STREAMS


def current_stream(backend: str | None = None, problem: str = "a graphed function can't be called") -> Stream:
    """Return the current stream, which may be the default stream; raise `CaptureError` if there is none."""
    stream = current_or_none(backend, or_default=True)
    if stream is None:
        raise CaptureError(
            f"{problem} while no stream is current on this thread; enter one, for example "
            "`with accelerator_graph.Stream():`.",
            reason="default_stream",
        )
    return stream


def current_stream_or_none() -> Stream | None:
    """Return the current stream; None if there is none, or frameworks have different ones."""
    try:
        return current_or_none(or_default=True)
    except ValueError:
        return None


Questions = tuple[tuple[tuple[Any, ...], ...], int, int, int]
"""What C asks about a stream: callables, each with its argument if it takes one, and with the answer that has
to come; the handle, and the addresses of two functions that have to return 0 for that, or 0."""


class ReplayStream(NamedTuple):
    """A stream that is ready for a replay."""

    stream: Stream
    launch: Callable[[], None]
    """Launches the graph on the stream."""
    entered: bool
    """Whether the copies need the stream entered, so that all frameworks make them there."""
    marked: bool
    """Whether the end of the call has to be marked, since the stream may be destroyed before the next."""
    questions: Questions | None
    """How C sees that the stream is still ready; None if it can't see that."""


class ReplayStreams:
    """Finds the stream of each replay.

    It is given the stream beside which the graph was captured, and the types of the arrays that every call
    copies. A graph that makes eager calls can't be `bound`.
    """

    def __init__(
        self,
        graph: Graph,
        order: CallOrder,
        stream: Stream,
        array_types: list[ArrayType],
        on_host: bool,
        *,
        bound: bool,
    ) -> None:
        self._graph = graph
        self._bound = bound
        self._order = order
        self._backend = stream._backend
        self._device = stream.device
        self._status = self._backend.capture_status
        self._known: dict[Hashable, ReplayStream] = {}
        self._latest: tuple[ref[Stream], ReplayStream] | None = None
        """The current stream of the latest call, if no framework decides that, and what was found for it."""
        packages, active = frameworks_of(array_types, self._backend.name)
        one = len(packages) == 1 and len(active) == 1
        self._framework = active[0] if one else None  # the copies go to this framework's current stream
        self._entered = bool(packages) and not one and not on_host
        # a tensor's copy goes to the stream of its own device, another array's to that of the current device
        self._asked_device = self._device if all(each.kind == "tensor" for each in array_types) else None

    def ready(self, current: Stream | None) -> ReplayStream | None:
        """Return the stream of a call, after the calls so far; None if somebody else is capturing it.

        `current` is the current stream, if it is known already.
        """
        found, latest = None, self._latest
        if latest is not None:
            entered = current or innermost()
            if entered is not None and latest[0]() is entered:
                found = latest[1]
        if found is None:
            found = self._find(current)
        stream = found.stream
        if self._status(stream._native) is not _IDLE:
            return None
        if self._order.last is not stream:
            self._order.move_to(stream)
        return found

    def _find(self, current: Stream | None) -> ReplayStream:
        framework, elsewhere = self._framework, False
        if framework is None:
            current = current or current_stream(self._backend.name)
            handle = stream_key(current)
        else:
            answer = framework.current_stream(self._asked_device)
            if answer is not None and answer[1] != self._device:
                answer, elsewhere = framework.current_stream(self._device), True
            handle = 0 if answer is None else answer[0]
        key = (handle, self._device) if elsewhere else handle
        found = self._known.get(key)
        if found is None:
            make_room(self._known)
            found = self._known[key] = self._prepare(handle, elsewhere)
        if framework is None and current is not None:
            self._latest = ref(current), found
        return found

    def _prepare(self, handle: Hashable, elsewhere: bool) -> ReplayStream:
        """Make a stream ready that the graph was not replayed on yet."""
        framework, backend = self._framework, self._backend
        current = current_or_none(backend.name) if framework else current_stream(backend.name)
        on_device = framework is None or (current is not None and current.device == self._device)
        if current is not None and stream_key(current) == handle and on_device:
            stream = current  # one of ours, if it was entered, which is kept
        else:
            owner = None if framework is None else FrameworkCurrent(framework)
            stream = Stream._make(backend, backend.as_stream(handle), self._device, owner)
        stream = self._order.hold(stream)
        launch = self._graph.bind(stream) if self._bound else partial(self._graph.replay, stream)
        entered, marked = self._entered or elsewhere, not lives_while_held(stream)
        questions = None if entered or marked else self._questions(stream, handle)
        return ReplayStream(stream, launch, entered, marked, questions)

    def _questions(self, stream: Stream, handle: Hashable) -> Questions | None:
        if self._framework is None or self._asked_device is None:
            return None
        if self._framework.current_handle is None:
            return None
        current = self._framework.current_handle, self._asked_device
        calls = self._backend.native_calls(stream._native)
        status = None if calls is None else calls.status_function()
        if status is None:
            return ((*current, handle), (self._status, stream._native, _IDLE)), 0, 0, 0
        number = self._backend.handle_int(stream._native)
        return ((*current, handle),), number, status.address, status.alive
