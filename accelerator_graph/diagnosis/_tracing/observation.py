"""Watching one capture: whether it is still in progress is asked at every line and every return from C."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..._core.capture import Capture, part_of
from ..._core.extension import fast
from ..._core.labels import Labels
from ..._core.ownership import Owned
from ...backends.base import CaptureStatus
from ...errors import AcceleratorGraphError, CaptureError, DriverError
from ...interop.base import FrameworkRecorder
from . import wording
from .foreseen import Foreseen
from .places import PURE, kind_of, name_of, stack_of
from .streams import IN_C, NAMES, Escapes, Streams
from .suspects import (
    Moment,
    Rules,
    Suspect,
    after_call,
    between,
    culprits,
    frame_of,
    itself,
    moved,
    others,
    positions,
    raised_by,
)

if TYPE_CHECKING:
    from ..._core._fast import Watch

if sys.version_info >= (3, 12):
    from . import monitoring as events
else:
    from . import trace_functions as events

__all__ = ("CaptureTrace", "Watched", "events")

_kinds: dict[str, int] = {}


class Watched:
    """What the interpreter's events are reported to while a capture goes on that began on this thread."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.watch: Watch | None = None
        """What answers the events in C, while that is possible."""
        self.foreseen: Foreseen | None = None
        """What is told of calls before they are made."""

    def answer_in_c(self, *functions: Callable[..., Any], disable: object = None) -> Watch | None:
        """Have C answer the events while the capture goes on; return what does, or None if nothing can.

        The functions handle the others: a line, a return, a return from C and an exception in Python. Before
        Python 3.12, one function handles all. `disable` is the answer where no event is needed again.
        """
        return None

    def at_line(self, frame: FrameType, line: int) -> None:
        """Note that a line is about to run."""

    def at_return(self, frame: FrameType, value: object) -> None:
        """Note that a function in Python is about to return this."""

    def after_call(self, frame: FrameType, offset: int, function: Any, first: object) -> None:
        """Note that a frame has called a function in C."""

    def at_exception(self, frame: FrameType, error: BaseException) -> None:
        """Note that an exception was raised."""


class CaptureTrace(Watched):
    """Watches a capture of this thread.

    Nothing but the status of the captured stream is asked, which disturbs no capture and is legal on every
    thread.
    """

    def __init__(
        self,
        capture: Capture,
        watch_lines: Callable[[Capture], None],
        all: bool = False,
        pieces: Pieces | None = None,
    ) -> None:
        super().__init__()
        self._watch_lines = watch_lines
        """Has the lines noted that record the body of a loop or a branch."""
        self.body: Capture | None = None
        """The last body that the device runs."""
        self.last: dict[int, Moment] = {}
        """By thread: the last moment at which the capture was still in progress."""
        self.streams = Streams(capture.backend, capture.native)
        self.escapes = Escapes(capture.backend, capture.native)
        self._stopped = self._ended = False
        self.backend = capture.backend
        self.native = capture.native
        self.status: Callable[[Any], CaptureStatus] = capture.backend.capture_status
        self._rules = Rules(self.streams, capture.mode)
        self.foreseen = self._own = Pieces(self, capture, self._rules) if all else None
        self.pieces = self._own or pieces
        """The pieces of this capture, or of the one whose body it is."""
        if self._own is not None:
            self.status = self._own.status
        self._before: Any = None
        """Where all threads were when the capture began; None if it did not."""
        self._moved: list[str] = []
        """The threads that ran meanwhile and could not be watched."""
        self._subject = capture.subject
        self._device = capture.stream.device
        self._found: list[Suspect] | None = None
        """The suspects, once the capture was found broken. The driver is not asked again: the stream may be
        gone by then."""
        self._where: Suspect | None = None
        self._unnamed: tuple[FrameType, int, Suspect] | None = None
        """The frame, the instruction and the suspect of a call that has not returned yet."""

    def begun(self) -> None:
        """Watch the capture, which has just begun on this thread."""
        self._before = positions()
        self.escapes.begin(self._device)
        events.begin(self)
        if self._own is not None:
            self._own.begin()

    def answer_in_c(self, *functions: Callable[..., Any], disable: object = None) -> Watch | None:
        """Have C answer the events, if there is the extension."""
        if fast is None or self.pieces is not None:
            return None
        calls = self.backend.native_calls(self.native)
        status = None if calls is None else calls.status_function()
        self.watch = fast.Watch(
            ask=self.goes_on,
            status=status.address if status else 0,
            alive=status.alive if status else 0,
            stream=self.backend.handle_int(self.native) if status else 0,
            active=status.active if status else 0,
            last=self.last,
            kinds=_kinds,
            kind_of=kind_of,
            waits=NAMES,
            waits_in_c=IN_C,
            pure=PURE,
            after_call=self.escapes.after_call if self.escapes.asks else None,
            disable=disable,
            functions=functions,
        )
        return self.watch

    def goes_on(self) -> bool:
        """Return True if the capture is in progress."""
        try:
            return self._found is None and self.status(self.native) is CaptureStatus.ACTIVE
        except AcceleratorGraphError:  # the device is lost
            return False

    # ---- at the interpreter's events, on any thread ------------------------------------------------

    def at_line(self, frame: FrameType, line: int) -> None:
        """Ask before a line runs."""
        if self.goes_on():
            self.last[threading.get_ident()] = frame.f_code, line, True
        else:
            self._broke_between(frame)

    def at_return(self, frame: FrameType, value: object) -> None:
        """Ask before a function in Python returns."""
        if self.pieces is not None:
            self.pieces.ends(frame)
        if not self.goes_on():
            self._broke_between(frame)
            return
        self.streams.after_python(frame)
        caller = frame.f_back
        if caller is not None:
            self.last[threading.get_ident()] = caller.f_code, caller.f_lasti, False

    def after_call(self, frame: FrameType, offset: int, function: Any, first: object) -> None:
        """Ask after a frame has called a function in C."""
        if self.pieces is not None:
            self.pieces.ends(frame)
        thread = threading.get_ident()
        if self.goes_on():
            self.streams.after_c(function, first, frame)
            if self.escapes.asks and thread == self.thread:
                self.escapes.after_call(function, first)
            self.last[thread] = frame.f_code, offset, False
        elif self._found is None:
            self._broke(frame, after_call(frame, function, first))
        elif self._unnamed is not None and self._unnamed[:2] == (frame, offset):
            self._unnamed[2].name = name_of(function)
            self._unnamed = None

    def at_exception(self, frame: FrameType, error: BaseException) -> None:
        """Ask when an exception comes; it may be that of what has broken the capture."""
        if self.goes_on():
            return
        if self._found is None:
            self._broke(frame, Suspect(stack_of(frame), first=itself(frame)))
        if wording.is_about_captures(error):
            here = stack_of(frame)[0]
            for suspect in self._found or ():
                suspect.raised = suspect.raised or here in suspect.stack

    def _broke_between(self, frame: FrameType) -> None:
        """Note that the capture was found broken after a line, or an operator."""
        if self._found is not None:
            return
        last = self.last.get(threading.get_ident())
        suspect = between(frame, last)
        self._broke(frame, suspect)
        caller = None if last is None or frame.f_code is last[0] else frame_of(frame.f_back, last[0])
        if caller is not None:  # it is in the call that has led here
            self._unnamed = caller, caller.f_lasti, suspect

    def _broke(self, frame: FrameType, suspect: Suspect | None) -> None:
        """Note who can be the cause. Handles that mean another stream on this thread are no reason to."""
        thread = threading.get_ident()
        if thread != self.thread and (self._is_not_capturing() or self._found is not None):
            return  # while the driver was asked, another thread has noticed
        self._where = suspect or Suspect(stack_of(frame))
        self._found = []  # threads that notice from now on are too late
        self._ask_no_more()
        found = [] if suspect is None else [suspect]
        if suspect is not None and thread != self.thread:
            suspect.thread = threading.current_thread().name
        self._found = found + others(thread, self.thread, self.last, self._before)
        for each in self._found:
            each.look(self._rules)
        self._moved = moved(self._before)

    def _ask_no_more(self) -> None:
        if self.watch is not None:
            self.watch.close()

    def _is_not_capturing(self) -> bool:
        with suppress(AcceleratorGraphError):
            return self.status(self.native) is CaptureStatus.NONE
        return False

    # ---- as the capture sees it ----------------------------------------------------------------

    def inside(self, capture: Capture) -> None:
        """Watch a body that the device runs, by two objects: a node out of place breaks no capture."""
        self.body = capture
        capture.observations.append(CaptureTrace(capture, self._watch_lines, pieces=self.pieces))
        self._watch_lines(capture)

    def stop(self) -> None:
        """Watch no more."""
        if self._ended:
            return
        here = threading.get_ident() == self.thread
        if not self._stopped and here and self._before is not None and not self.goes_on():
            self._broke_between(sys._getframe(1))
        self._stopped = True
        self._ask_no_more()
        events.end(self)
        self.watch = None  # they hold each other
        if here:
            if self._own is not None:
                self._own.stop(self._subject)
            self.escapes.stop()
        self.last.clear()
        self._unnamed = None
        self._ended = True

    def explained(self, error: CaptureError, cause: BaseException | None) -> CaptureError:
        """Return the error that names the call that broke the capture, as far as that is known."""
        told = self._explained(error, cause)
        if self.pieces is None:
            return told
        other = error.reason == "foreign_capture"  # perhaps only since there were pieces
        return wording.every(told, self._subject, self.pieces.found, error if other else told)

    def _explained(self, error: CaptureError, cause: BaseException | None) -> CaptureError:
        if self._found is None and cause is not None and error.reason == "illegal_call":
            return wording.refused(error, self._subject, raised_by(cause))
        if self._found is None:
            forks = self.streams.unjoined() if error.reason == "unjoined" else []
            return wording.unjoined(error, self._subject, forks) if forks else error
        assert self._where is not None
        refused = None if wording.code_of(cause) is None else cause
        found = culprits(self._found, self._rules, refused)
        return wording.broken(error, self._subject, found, self._where, cause, self._moved)

    def succeeded(self, captured: object) -> None:
        """Warn of work that went elsewhere; raise if the capture is the last of several pieces."""
        self.escapes.warn(self._subject)
        if self._own is not None and self._own.found:
            raise wording.every(CaptureError("", reason="illegal_call"), self._subject, self._own.found, None)


class _Piece(Owned):
    """What was captured ahead of a call, and how to destroy it."""

    __slots__ = ()

    def act(self) -> None:
        """Destroy the executable and the graph."""
        for destroy, made in self.value:
            destroy(made)


class Pieces(Foreseen):
    """A capture that is recorded in pieces: ahead of each call that would break it, the last piece runs."""

    def __init__(self, trace: CaptureTrace, capture: Capture, rules: Rules) -> None:
        super().__init__(capture.backend, rules)
        self._trace = trace
        self._capture = capture
        self._outer = sys.exception()
        self._made: list[object] = []

    def status(self, native: Any) -> CaptureStatus:
        """Return the status of a stream as if there were one capture."""
        inside = self._inside is not None
        return CaptureStatus.ACTIVE if inside else self._backend.capture_status(native)

    def stop(self, subject: str) -> None:
        """Have frameworks report no more. What the code raises itself gets a note of the calls."""
        self.leave()
        self._made.clear()
        if self.found:
            part_of(self._capture.observations, Labels).marks.clear()
            error = sys.exception()
            if error is not self._outer and error is not None and not isinstance(error, CaptureError):
                error.add_note(str(wording.every(CaptureError(""), subject, self.found, error)))

    def _goes_on(self) -> bool:
        return self._trace.goes_on()

    def _before(self, frame: object, suspect: Suspect) -> None:
        """Note a call, and run the piece that has been recorded ahead of it."""
        super()._before(frame, suspect)
        capture, body = self._capture, self._trace.body
        if body is not None and body.recorded() is not None:  # half a loop may not end
            super()._after()
            last = CaptureError("the device runs the body as a whole; pass native=False to find more.")
            raise wording.every(CaptureError("", reason="illegal_call"), capture.subject, self.found, last)
        recorder = capture.recorder
        for mark in part_of(capture.observations, Labels).marks:
            mark.start = -1  # it counts the nodes of one piece
        try:
            end = recorder.destroy_graph, recorder.capture_end(capture._token)
            piece = _Piece(recorder, capture.backend, [end], capture._owner)
        except DriverError as error:
            self._after()
            told = CaptureError(f"{error}", reason=error.reason, code=error.code, code_name=error.code_name)
            raise wording.every(told, capture.subject, self.found, told) from error
        self._made.append(piece)
        executable = recorder.instantiate(end[1])
        piece.value.insert(0, (recorder.destroy_executable, executable))
        recorder.replay(executable, capture.native)

    def _after(self) -> None:
        """Begin the next piece."""
        capture = self._capture
        if isinstance(capture.recorder, FrameworkRecorder):
            capture.recorder = capture.recorder.another()
        keep = partial(setattr, capture, "_token")
        any(map(keep, map(capture.recorder.capture_begin, (capture.native,), (capture.mode,))))
        super()._after()
