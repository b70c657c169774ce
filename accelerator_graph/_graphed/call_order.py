"""On which streams the calls of a graphed function run, and in which order."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from .._core import current_stream
from .._core.ownership import Owned
from .._core.replay import make_room
from ..backends.base import Capability
from ..errors import CaptureError

if TYPE_CHECKING:
    from .._core.streams import Event, Stream

_DEFAULT_STREAMS = (0, 1)
"""Those that every thread means the same stream by; by 2, each means its own."""


class Traffic:
    """The order of one function's calls: each waits for the one before, on whatever streams they run."""

    __slots__ = ("_mark", "_streams", "last")

    def __init__(self) -> None:
        self.last: Stream | None = None
        """Where the last call ran. None if its end is marked: the next one has to `move` in any case, since
        the same handle may be another stream by then."""
        self._mark: Event | None = None
        self._streams: dict[Hashable, Stream] = {}

    def stream(self, stream: Stream) -> Stream:
        """Return a hold of its own on a stream, the same object for the same stream."""
        key = (stream.backend, stream.device, key_of(stream))
        if key not in self._streams:
            make_room(self._streams)
            self._streams[key] = stream.held()
        return self._streams[key]

    def move(self, stream: Stream) -> None:
        """Go to another stream, behind the calls so far."""
        self.wait(stream)
        self.last, self._mark = stream, None

    def wait(self, stream: Stream) -> None:
        """Have a stream wait for the calls so far."""
        last, mark, backend = self.last, self._mark, stream._backend
        if mark is not None:
            if mark._native.backend is backend:
                stream.wait(mark)
        elif last is None or last is stream or last._backend is not backend:
            pass
        elif not last._is_capturing():  # else nobody may wait for it
            if Capability.EVENTS in backend.capabilities(stream.device):
                stream.wait(last)
            else:
                last.synchronize()

    def mark(self) -> None:
        """Remember where a call ends, on a stream that may be destroyed before the next one."""
        assert self.last is not None
        self._mark = self.last.record()
        self.last = None


def key_of(stream: Stream) -> Hashable:
    """Return what tells a stream from others of its device."""
    backend, native = stream._backend, stream._native
    if Capability.HANDLES in backend.capabilities(stream._device):
        return backend.handle_int(native)
    return id(native)


def lasts(stream: Stream) -> bool:
    """Say whether a stream lives as long as it is held, or as the process."""
    return isinstance(stream._owner, Owned) or key_of(stream) in _DEFAULT_STREAMS


def current(backend: str | None = None) -> Stream:
    """Return the current stream, the default stream too.

    Raises
    ------
    CaptureError
        None is current.
    """
    stream = current_stream.current(backend, or_default=True)
    if stream is None:
        raise CaptureError(
            "a graphed function can't be called while no stream is current on this thread; enter one, for "
            "example `with accelerator_graph.Stream():`.",
            reason="default_stream",
        )
    return stream


def here_or_none() -> Stream | None:
    """Return the same; None also if frameworks have different ones."""
    try:
        return current_stream.current(or_default=True)
    except ValueError:
        return None
