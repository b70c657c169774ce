"""Watching an eager run for the calls that a capture of it would not bear."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any

from .foreseen import Foreseen
from .observation import Watched, events
from .streams import Streams
from .suspects import Rules, Suspect

if TYPE_CHECKING:
    from ..._core.streams import Stream


class EagerRun(Watched, Foreseen):
    """Reports the calls of this thread that a capture would not bear.

    Parameters
    ----------
    stream : Stream
        The current stream, which stands for the captured one.
    seen : callable
        Takes such a call and the frame that makes it, or one inside. Returns frames whose results are wanted.
    returned : callable
        Takes such a frame, which is about to return, and the result.
    """

    def __init__(
        self,
        stream: Stream,
        seen: Callable[[Suspect, FrameType], Iterable[FrameType]],
        returned: Callable[[FrameType, object], object],
    ) -> None:
        Watched.__init__(self)
        streams = _Current(stream._backend, stream._native)
        Foreseen.__init__(self, stream._backend, Rules(streams, "default"))
        self.foreseen = self
        self._seen = seen
        self._returned = returned
        self._open: set[FrameType] = set()

    def begin(self) -> None:
        """Watch this thread from now on."""
        super().begin()
        events.begin(self)

    def stop(self) -> None:
        """Watch no more. May be called again."""
        events.end(self)
        self.leave()
        self._open.clear()

    def at_return(self, frame: FrameType, value: object) -> None:
        """Report the result if it is wanted."""
        self.ends(frame)
        if frame in self._open:
            self._open.remove(frame)
            self._returned(frame, value)

    def after_call(self, frame: FrameType, offset: int, function: Any, first: object) -> None:
        """Go on after a call into C."""
        self.ends(frame)

    def _note(self, suspect: Suspect) -> None:
        self._open.update(self._seen(suspect, sys._getframe(1)))


class _Current(Streams):
    """The streams of a run that is not captured."""

    def is_captured(self, obj: Any) -> bool | None:
        """Return True for the current stream, as if it were captured."""
        native = self._native(obj)
        return True if native is not None and self._key(native) == self._own else super().is_captured(obj)
