"""The order of a graphed function's calls, on whatever streams they run."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from .._core.current_stream import current
from .._core.ownership import Owned
from .._core.replay import make_room
from ..backends.base import Capability
from ..errors import CaptureError

if TYPE_CHECKING:
    from .._core.streams import Event, Stream

_DEFAULT_STREAMS = (0, 1)
"""Handles that mean the same stream on every thread. 2 does not: it means the thread's own."""


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
    """Return what tells a stream from the others of its device."""
    backend, native = stream._backend, stream._native
    if Capability.HANDLES in backend.capabilities(stream._device):
        return backend.handle_int(native)
    return id(native)


def lives_while_held(stream: Stream) -> bool:
    """Return True if a stream can't be destroyed while it is held, or at all."""
    return isinstance(stream._owner, Owned) or stream_key(stream) in _DEFAULT_STREAMS


def current_stream(backend: str | None = None) -> Stream:
    """Return the current stream, which may be the default stream; raise `CaptureError` if there is none."""
    stream = current(backend, or_default=True)
    if stream is None:
        raise CaptureError(
            "a graphed function can't be called while no stream is current on this thread; enter one, for "
            "example `with accelerator_graph.Stream():`.",
            reason="default_stream",
        )
    return stream


def current_stream_or_none() -> Stream | None:
    """Return the current stream; None if there is none, or frameworks have different ones."""
    try:
        return current(or_default=True)
    except ValueError:
        return None
