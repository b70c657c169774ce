"""Watching one capture: whether it is still in progress is asked at every line and every return from C."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...backends.base import CaptureStatus
from ...errors import AcceleratorGraphError, CaptureError
from . import wording
from .calls import name_of
from .escapes import Escapes
from .forks import Forks
from .places import callers, stack_of
from .suspects import Moment, Suspect, after_call, between, name_thread, others, reduced

if TYPE_CHECKING:
    from ..._core.capture import Capture

if sys.version_info >= (3, 12):
    from . import monitoring as events
else:
    from . import trace_functions as events


class CaptureTrace:
    """Watches a capture that has just begun on this thread.

    Nothing but the status of the captured stream is asked, which disturbs no capture and is legal on every
    thread.

    Parameters
    ----------
    capture : Capture
        The capture.
    """

    def __init__(self, capture: Capture) -> None:
        self.thread = threading.get_ident()
        self.last: dict[int, Moment] = {}
        """By thread: the last moment at which the capture was still in progress."""
        self.forks = Forks(capture.backend, capture.native)
        self.escapes = Escapes(capture.backend, capture.native, capture.stream.device)
        self.stopped = False
        self._subject = capture.subject
        self._backend = capture.backend
        self._native = capture.native
        self._status: Callable[[Any], CaptureStatus] = capture.backend.capture_status
        self._found: list[Suspect] | None = None
        self._where: Suspect | None = None
        self._unnamed: tuple[FrameType, int, Suspect] | None = None
        """The frame, the instruction and the suspect of a call that has not returned yet."""
        self._collecting: FrameType | None = None
        gc.callbacks.append(self._collection)
        events.begin(self)

    def goes_on(self, thread: int) -> bool:
        """Return True if the capture is still in progress."""
        if self._found is not None:
            return False
        try:
            status = self._status(self._native)
        except AcceleratorGraphError:  # the device is lost
            return False
        # on another thread, some handles mean another stream, which is not capturing
        return status is CaptureStatus.ACTIVE or (status is CaptureStatus.NONE and thread != self.thread)

    def broke_in_call(self, frame: FrameType, thread: int, function: Any, raised: bool) -> None:
        """Note that the capture was found broken after a call into C."""
        if self._found is None:
            found = after_call(frame, function, raised)
            self._broke(thread, found, found or Suspect(stack_of(frame)))
        elif self._unnamed is not None and self._unnamed[:2] == (frame, frame.f_lasti):
            self._unnamed[2].name = name_of(function)
            self._unnamed[2].raised = raised
            self._unnamed = None

    def broke_between(self, frame: FrameType, thread: int) -> None:
        """Note that the capture was found broken after a line, or an operator."""
        if self._found is None:
            last = self.last.get(thread)
            found = between(frame, last)
            self._broke(thread, found, found)
            for caller in callers(frame.f_back):
                if last is not None and caller.f_code is last[0] and frame.f_code is not last[0]:
                    self._unnamed = caller, caller.f_lasti, found  # the call that has led to this frame
                    break

    def _broke(self, thread: int, suspect: Suspect | None, where: Suspect) -> None:
        self._found = []  # threads that notice from now on are too late
        self._where = where
        found = [] if suspect is None else [suspect]
        if suspect is not None and thread != self.thread:
            name_thread(suspect, thread)
        for other in others(thread):
            found.append(other)
        self._found = reduced(found)

    def _collection(self, phase: str, info: object) -> None:
        """Ask before and after a garbage collection, which destroys objects in the middle of any line."""
        if self.stopped or threading.get_ident() != self.thread:
            return
        frame = sys._getframe(1)
        if self._found is not None or self.goes_on(self.thread):
            return
        if phase == "start":
            self.broke_between(frame, self.thread)
        else:
            suspect = Suspect(stack_of(frame), collecting=True)
            self._broke(self.thread, suspect, suspect)

    # ---- as the capture sees it ----------------------------------------------------------------

    def stop(self) -> None:
        """Watch no more."""
        if self.stopped:
            return
        if threading.get_ident() == self.thread and self._found is None and not self.goes_on(self.thread):
            self.broke_between(sys._getframe(1), self.thread)
        self.stopped = True
        events.end(self)
        if threading.get_ident() == self.thread:
            self.escapes.stop()
        if self._collection in gc.callbacks:
            gc.callbacks.remove(self._collection)
        self.last.clear()
        self._unnamed = None

    def explained(self, error: CaptureError, cause: BaseException | None) -> CaptureError:
        """Return the error that names the call that broke the capture, as far as that is known."""
        if self._found is None:
            forks = self.forks.unjoined() if error.reason == "unjoined" else []
            return wording.unjoined(error, self._subject, forks) if forks else error
        found = self._found
        for each in found:
            if not each.thread and wording.code_of(cause) is not None:
                each.raised = True  # the driver has refused a call of this thread, which is the cause
                found = [each]
        if found:
            return wording.broken(error, self._subject, found, cause)
        assert self._where is not None
        return wording.unknown(error, self._subject, self._where)

    def succeeded(self) -> None:
        """Warn of work that went elsewhere."""
        self.escapes.warn(self._subject)
