"""The interpreter's events while captures are watched, by trace and profile functions: before Python 3.12.

Profile functions see no calls of functions that Cython has made, so there the line is the answer. If a
debugger or a coverage tool has set a trace function, it stays, and lines are not watched.
"""

from __future__ import annotations

import sys
import threading
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any

from .places import callers

if TYPE_CHECKING:
    from .observation import CaptureTrace

_active: list[CaptureTrace] = []
_lock = threading.RLock()
_before: Any = None
"""The functions for new threads that were set before."""


def begin(trace: CaptureTrace) -> None:
    """Watch for one more capture, which has begun on this thread."""
    global _before
    with _lock:
        _active.append(trace)
        if len(_active) == 1:
            _before = threading.gettrace(), threading.getprofile()
            if _before == (None, None):
                threading.settrace(_trace)
                threading.setprofile(_profile)
    if sys.gettrace() is None:
        for frame in callers(sys._getframe(1)):
            if frame.f_trace is None:
                frame.f_trace = _trace
        sys.settrace(_trace)
    if sys.getprofile() is None:
        sys.setprofile(_profile)


def end(trace: CaptureTrace) -> None:
    """Watch for a capture no more."""
    with _lock:
        if trace in _active:
            _active.remove(trace)
        if not _active and threading.gettrace() is _trace:
            threading.settrace(None)
            threading.setprofile(None)
    if get_ident() == trace.thread and not any(each.thread == trace.thread for each in _active):
        _leave()
        for frame in callers(sys._getframe(1)):
            if frame.f_trace is _trace:
                frame.f_trace = None


def _leave() -> None:
    """Watch this thread no more."""
    if sys.gettrace() is _trace:
        sys.settrace(None)
    if sys.getprofile() is _profile:
        sys.setprofile(None)


def _trace(frame: FrameType, event: str, arg: object) -> Any:
    thread = get_ident()
    if not _active:
        _leave()
    for trace in _active:
        if event not in ("line", "return"):
            pass
        elif not trace.goes_on(thread):
            trace.broke_between(frame, thread)
        elif event == "line":
            trace.last[thread] = (frame.f_code, frame.f_lineno, True)
        else:
            trace.forks.after_python(frame)
            if frame.f_back is not None:
                trace.last[thread] = (frame.f_back.f_code, frame.f_back.f_lasti, False)
    return _trace


def _profile(frame: FrameType, event: str, arg: Any) -> None:
    if event not in ("c_return", "c_exception"):
        return
    thread = get_ident()
    for trace in _active:
        if trace.goes_on(thread):
            trace.forks.after_c(arg, getattr(arg, "__self__", None), frame)
            if trace.escapes.asks and thread == trace.thread:
                trace.escapes.after_call(arg, getattr(arg, "__self__", None))
            trace.last[thread] = (frame.f_code, frame.f_lasti, False)
        else:
            trace.broke_in_call(frame, thread, arg, event == "c_exception")
