"""The calls that can have broken a capture, and what to say about them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from ...errors import BreakingCall
from . import advice, calls
from .advice import Advice
from .places import Place, callers, is_passive, stack_of, users, watched, written

Moment = tuple[CodeType, int, bool]
"""A code object, and a line of it (True) or the offset of an instruction (False)."""


@dataclass
class Suspect:
    """A call, or a line without one, that can have broken a capture."""

    stack: list[Place]
    """Where it is, the innermost first."""
    name: str = ""
    """What was called there into C; empty if nothing was, or that is not known."""
    raised: bool = False
    """The call raised an exception."""
    thread: str = ""
    """The name of the thread, if that is not the one that captures."""
    guessed: bool = False
    """The name was read from the source, since another thread was still in the call."""
    collecting: bool = False
    """It was a garbage collection that began there."""

    @property
    def place(self) -> Place:
        """The place in the user's code."""
        return users(self.stack)

    @property
    def library(self) -> Place | None:
        """The place in the library that the user called; None if the user's own code made the call."""
        inner = next((place for place in self.stack if not place.is_ours()), self.stack[0])
        return None if inner == self.place else inner

    def advice(self) -> tuple[str, Advice] | None:
        """Return the call that is known to break captures, and what it does; None if none is."""
        if self.collecting:
            return "a garbage collection", Advice(
                "destroyed an object, which breaks captures",
                "leave the garbage collector off, and keep what other libraries made until the capture ends",
            )
        found = advice.for_call(self.name, common=not self.guessed) if self.name else None
        if found is not None:
            return self.name, found
        called = self.stack[: self.stack.index(self.place)]
        theirs = [place for place in called if not place.is_ours() and not place.is_standard()]
        ours = [place for place in reversed(called) if place.is_ours()]
        for place in (*theirs, *ours):
            found = advice.for_call(place.function, common=place.is_ours())
            if found is not None:
                return place.function, found
        inner = self.library or self.place
        sources = inner.source(), self.place.source()
        found_in = (advice.for_line(source, raised=self.raised) for source in sources)
        return next(filter(None, found_in), None)

    def known(self) -> bool:
        """Return True if what happened there is sure to break a capture."""
        return self.raised or self.advice() is not None

    def called(self) -> str:
        """Return the call by name, from the user's line to C; empty if it is not known."""
        outer = self.stack[: self.stack.index(self.place)]
        names = [outer[-1].function] if outer else []
        known = self.advice()
        if known is not None and known[0]:
            names.append(known[0])
        elif self.name and self.raised:
            names.append(self.name)
        return " > ".join(dict.fromkeys(names))

    def public(self) -> BreakingCall:
        """Return what the error says of it."""
        place, library = self.place, self.library
        inner = None if library is None else (library.file, library.line, library.function)
        return BreakingCall(
            *place,
            self.called(),
            inner,
            self.thread,
            written([each for each in self.stack if not each.is_ours()]),
        )


def after_call(frame: FrameType, function: Any) -> Suspect | None:
    """Return a call into C that has just returned to a frame; None if it only waited."""
    return None if calls.only_waits(function) else Suspect(stack_of(frame), calls.name_of(function))


def between(frame: FrameType, last: Moment | None) -> Suspect:
    """Return what ran on a thread after the last moment at which all was well: the line of that moment."""
    if last is None:
        return Suspect(stack_of(frame))
    code, at, is_line = last
    line = at if is_line else calls.line_of(code, at)
    place = Place(code.co_filename, line, code.co_qualname)
    for each in callers(frame):
        if each.f_code is code:
            return Suspect([place, *stack_of(each.f_back)])
    return Suspect([place, *stack_of(frame)])


def others(here: int, capturing: int, last: Mapping[int, Moment]) -> list[Suspect]:
    """Return the calls that other threads than this one are in, and that can have broken the capture.

    A thread that is about to ask may have just done it: since the `last` moment at which all was well.
    """
    names = {each.ident: each.name for each in threading.enumerate()}
    found = []
    frames = sys._current_frames()
    frames.pop(here, None)  # this function's own frame is in there, which would keep itself alive
    for ident, frame in frames.items():
        asks = watched(frame)
        top = asks or next((each for each in callers(frame) if not is_passive(each.f_code)), None)
        if ident not in names or top is None:
            continue
        stack = stack_of(top) if asks is None else between(asks, last.get(ident)).stack
        if stack[0].is_ours() and all(place.is_ours() or place.is_standard() for place in stack):
            continue  # a worker of this package
        if stack[0].is_standard() and not stack[0].function.endswith("run"):
            continue  # it waits for a lock, a queue, a socket, ...
        call = _known_call(top) or ("" if asks else calls.in_progress(top))
        if call is not None:
            found.append(
                Suspect(stack, call, thread="" if ident == capturing else names[ident], guessed=True)
            )
    return found


def _known_call(top: FrameType) -> str | None:
    """Return the innermost call of a thread that is known to break captures."""
    for frame in callers(top):
        call = calls.in_progress(frame)
        if call and advice.for_call(call, common=False) is not None:
            return call
    return None
