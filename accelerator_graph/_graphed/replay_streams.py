"""The streams that one graph is replayed on: at each call, the stream that is current by then."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

from .._core.current_stream import current as current_or_none
from .._core.replay import make_room
from .._core.streams import FrameworkCurrent, Stream
from ..backends.base import CaptureStatus
from .arrays import ArrayType, frameworks_of
from .call_order import CallOrder, current_stream, lives_while_held, stream_key

if TYPE_CHECKING:
    from ..api import Graph

_IDLE = CaptureStatus.NONE


class ReplayStream(NamedTuple):
    """A stream that is ready for a replay."""

    stream: Stream
    launch: Callable[[], None]
    """Launches the graph on the stream."""
    entered: bool
    """Whether the copies need the stream entered, so that all frameworks make them there."""
    marked: bool
    """Whether the end of the call has to be marked, since the stream may be destroyed before the next."""


class ReplayStreams:
    """Finds the stream of each replay.

    It is given the stream beside which the graph was captured, and the types of the arrays that every call
    copies.
    """

    def __init__(
        self, graph: Graph, order: CallOrder, stream: Stream, array_types: list[ArrayType], on_host: bool
    ) -> None:
        self._graph = graph
        self._order = order
        self._backend = stream._backend
        self._device = stream.device
        self._status = self._backend.capture_status
        self._known: dict[Hashable, ReplayStream] = {}
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
        framework, elsewhere = self._framework, False
        if framework is None:
            handle = stream_key(current or current_stream(self._backend.name))
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
        stream = found.stream
        if self._status(stream._native) is not _IDLE:
            return None
        if self._order.last is not stream:
            self._order.move_to(stream)
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
        launch = self._graph.bind(stream)
        return ReplayStream(stream, launch, self._entered or elsewhere, not lives_while_held(stream))
