"""The calls that a capture does not bear, found before they are made."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from ..._core import stream_stack
from ...interop.base import Inspectable, Undo
from .places import beyond_watches, is_passive, stack_of
from .streams import WAITS
from .suspects import Rules, Suspect, after_call

if TYPE_CHECKING:
    from ...backends.base import AnyBackend as Backend


class Foreseen:
    """Sees the calls of this thread that are sure to break a capture, or would if there were one.

    Parameters
    ----------
    backend : Backend
        The backend of the stream.
    rules : Rules
        What breaks its captures.
    """

    def __init__(self, backend: Backend, rules: Rules) -> None:
        self.found: dict[tuple[object, ...], Suspect] = {}
        """The calls, by their places."""
        self._backend = backend
        self._rules = rules
        self._thread = threading.get_ident()
        self._inside: object = None
        """The frame that is in such a call now."""
        self._undos: list[Undo] = []

    def begin(self) -> None:
        """Have frameworks report their operations that wait, from now on."""
        for framework in stream_stack.taking_part(self._backend):
            undo = framework.waiting(self._beside) if isinstance(framework, Inspectable) else None
            if undo is not None:
                self._undos.append(undo)

    def leave(self) -> None:
        """Have them report no more. May be called again."""
        stream_stack.undo(self._undos)

    # ---- at the interpreter's events ---------------------------------------------------------------

    def calls(self, frame: FrameType, function: Any, first: object) -> None:
        """Note that a frame is about to call a function in C."""
        if isinstance(function, FunctionType | MethodType) or self._is_elsewhere():
            return
        suspect = None if is_passive(frame.f_code) else after_call(frame, function, first)
        if suspect is not None and not suspect.stack[0].is_ours():
            self._enter(frame, suspect)

    def starts(self, frame: FrameType) -> None:
        """Note that a function in Python begins, which may be one of the library's own that wait."""
        if frame.f_code not in WAITS or self._is_elsewhere():
            return
        owner = frame.f_locals.get("self")
        if not getattr(owner, "_captured", False):  # an event of the capture can't be waited for at all
            self._enter(frame, Suspect(stack_of(frame), frame.f_code.co_qualname, owner))

    def ends(self, frame: FrameType) -> None:
        """Note that a frame has returned, or a call into C to it."""
        if self._inside is frame:
            self._after()

    def _enter(self, frame: FrameType, suspect: Suspect) -> None:
        if self._rules.foresees(suspect) and self._goes_on():
            self._before(frame, suspect)

    def _is_elsewhere(self) -> bool:
        """Return True in another thread than this one, and in a call that can't be captured."""
        return self._inside is not None or threading.get_ident() != self._thread

    @contextmanager
    def _beside(self, name: str) -> Iterator[None]:
        """Let an operation of a framework run that waits."""
        if self._is_elsewhere() or not self._goes_on():
            yield
            return
        suspect = Suspect(stack_of(beyond_watches(sys._getframe(2))))
        suspect.name = name if suspect.advice() is None else ""
        self._before(suspect, suspect)
        try:
            yield
        finally:
            self._after()

    # ---- what is done about a call -----------------------------------------------------------------

    def _goes_on(self) -> bool:
        """Return True if there is a capture to be broken, or as if there were one."""
        return True

    def _before(self, frame: object, suspect: Suspect) -> None:
        """Note a call that is about to be made."""
        suspect.look(self._rules)
        suspect.breaks = True
        self._note(suspect)
        self._inside = frame

    def _note(self, suspect: Suspect) -> None:
        place = suspect.place
        self.found.setdefault((place.file, place.line, suspect.called()), suspect)

    def _after(self) -> None:
        """Go on after the call."""
        self._inside = None
