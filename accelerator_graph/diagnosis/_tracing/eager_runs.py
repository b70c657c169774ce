"""Watching an eager run of a function for the calls that a capture of it would not bear."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..._core import stream_stack
from ...interop.base import Inspectable
from .foreseen import Foreseen
from .observation import Watched, events
from .places import OURS, callers, kind_of, stack_of
from .streams import Streams
from .suspects import Rules, Suspect, for_call

if TYPE_CHECKING:
    from ..._core.streams import Stream


class Frames(NamedTuple):
    """What the frames of a run are."""

    caller: CodeType
    """Calls the function."""
    function: Collection[CodeType]
    """The function itself."""
    eager: Collection[CodeType]
    """Calls what no capture records."""


class EagerRun(Watched, Foreseen):
    """The calls in a run that a capture would not bear, and the results of the functions that made them.

    Parameters
    ----------
    stream : Stream
        The current stream, which stands for the captured one.
    frames : Frames
        What the frames of the run are.
    read : callable
        Takes the frame of a function that is about to return, and its result. Returns what such results
        have in common; None if it can't be told.
    """

    def __init__(self, stream: Stream, frames: Frames, read: Callable[[FrameType, object], Hashable]) -> None:
        Watched.__init__(self)
        streams = _Current(stream._backend, stream._native)
        Foreseen.__init__(self, stream._backend, Rules(streams, "default"))
        self.foreseen = self
        self.within: dict[tuple[object, ...], tuple[Suspect, tuple[CodeType, ...]]] = {}
        """The calls, by their places, with the functions that they are made in, the innermost first."""
        self.modules: dict[CodeType, str] = {}
        """The names of the modules of these functions."""
        self.results: defaultdict[CodeType, list[Hashable]] = defaultdict(list)
        """What `read` has returned for these functions, in the order of their calls."""
        self._frames = frames
        self._read = read
        self._open: set[FrameType] = set()

    def begin(self) -> None:
        """Watch this thread from now on."""
        super().begin()
        for framework in stream_stack.taking_part(self._backend):
            undo = framework.waited(self._waited) if isinstance(framework, Inspectable) else None
            if undo is not None:
                self._undos.append(undo)
        events.begin(self)

    def stop(self) -> None:
        """Watch no more. May be called again."""
        events.end(self)
        self.leave()
        self._open.clear()

    def at_return(self, frame: FrameType, value: object) -> None:
        """Note the result of a function that has made such a call."""
        self.ends(frame)
        if frame in self._open:
            self._open.remove(frame)
            self.results[frame.f_code].append(self._read(frame, value))

    def after_call(self, frame: FrameType, offset: int, function: Any, first: object) -> None:
        """Go on after a call into C."""
        self.ends(frame)

    def _waited(self) -> None:
        """Note an operation of a framework that has waited."""
        if not self._is_elsewhere():
            suspect = Suspect(stack_of(sys._getframe(1)))
            if suspect.advice() is None:
                suspect.reason = for_call("synchronize")
            self._note(suspect)

    def _note(self, suspect: Suspect) -> None:
        found = self._functions()
        if found is not None:
            codes = tuple(each.f_code for each in found)
            place = suspect.place
            self.within.setdefault((place.file, place.line, suspect.called(), codes), (suspect, codes))
            self.modules.update((each.f_code, each.f_globals.get("__name__", "")) for each in found)
            self._open.update(found)

    def _functions(self) -> list[FrameType] | None:
        """Return the functions between a call that is made now and the function; None in an eager call.

        One that calls itself is left out, and so are those of Python and of this package.
        """
        stack: list[FrameType] = []
        for each in callers(sys._getframe(1)):
            if each.f_code in self._frames.eager:
                return None
            if each.f_code is self._frames.caller:
                break
            stack.append(each)
        codes = [each.f_code for each in stack]
        own = [
            max(i for i, code in enumerate(codes) if code is each)
            for each in self._frames.function
            if each in codes
        ]
        times = Counter(codes)
        return [
            each
            for each in stack[: min(own, default=-1)]
            if times[each.f_code] == 1
            and kind_of(each.f_code.co_filename) in (0, 3)
            and not each.f_code.co_filename.startswith(OURS)
        ]


class _Current(Streams):
    """The streams of a run that is not captured."""

    def is_captured(self, obj: Any) -> bool | None:
        """Return True for the current stream, as if it were captured."""
        native = self._native(obj)
        if native is not None and self._key(native) == self._own:
            return True
        return super().is_captured(obj)
