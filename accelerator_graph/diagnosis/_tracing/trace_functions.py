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

from ..._core.extension import fast
from ..._interpreter.interruptions import after_fork
from .places import callers, is_passive, is_unwatched

if TYPE_CHECKING:
    from ..._core._fast import Watch
    from .observation import Watched

_active: list[Watched] = []
_lock = threading.RLock()


def begin(trace: Watched) -> None:
    """Watch for one more capture, which has begun on this thread."""
    trace.answer_in_c(_event)
    with _lock:
        _active.append(trace)
        _count()
        if threading.gettrace() is None and threading.getprofile() is None:
            threading.settrace(_trace)
            threading.setprofile(_profile)
    if trace.watch is not None:
        _watch_this_thread(trace.watch)
        return
    if sys.gettrace() is None:
        for frame in callers(sys._getframe(1)):
            if frame.f_trace is None:
                frame.f_trace = _trace
        sys.settrace(_trace)
    if sys.getprofile() is None:
        sys.setprofile(_profile)


def _watch_this_thread(watch: Watch) -> None:
    """Have C answer the events of this thread, unless somebody else watches it."""
    if sys.gettrace() is None or _is_ours(sys.gettrace()):
        watch.trace_lines()
    if sys.getprofile() is None or _is_ours(sys.getprofile()):
        watch.trace_calls()


def _is_ours(function: object) -> bool:
    """Return True for what this module sets as a trace or profile function."""
    return function in (_trace, _profile) or (fast is not None and isinstance(function, fast.Watch))


def _count() -> None:
    """Tell the watches in C whether another capture is watched."""
    for each in _active:
        if each.watch is not None:
            each.watch.alone = len(_active) == 1


def end(trace: Watched) -> None:
    """Watch for a capture no more."""
    with _lock:
        if trace in _active:
            _active.remove(trace)
        _count()
        if not _active and threading.gettrace() is _trace:
            threading.settrace(None)
        if not _active and threading.getprofile() is _profile:
            threading.setprofile(None)
    if get_ident() != trace.thread:
        return
    others = [each for each in _active if each.thread == trace.thread]
    if others and others[-1].watch is not None:
        _watch_this_thread(others[-1].watch)
    elif not others:
        _leave()
        for frame in callers(sys._getframe(1)):
            if frame.f_trace is _trace:
                frame.f_trace = None


def _leave() -> None:
    """Watch this thread no more."""
    if _is_ours(sys.gettrace()):
        sys.settrace(None)
    if _is_ours(sys.getprofile()):
        sys.setprofile(None)


def _event(frame: FrameType, event: str, arg: Any) -> Any:
    return _profile(frame, event, arg) if event.startswith("c_") else _trace(frame, event, arg)


def _trace(frame: FrameType, event: str, arg: Any) -> Any:
    if is_unwatched(frame.f_code):
        return None
    if not _active:
        _leave()
    for trace in _active:
        if event == "call" and trace.foreseen is not None:
            trace.foreseen.starts(frame)
        elif event == "line":
            trace.at_line(frame, frame.f_lineno)
        elif event == "return":
            trace.at_return(frame, arg)
        elif event == "exception":
            trace.at_exception(frame, arg[1])
    return _trace


def _profile(frame: FrameType, event: str, arg: Any) -> None:
    if not event.startswith("c_") or is_passive(frame.f_code):
        return
    for trace in _active:
        if event != "c_call":
            trace.after_call(frame, frame.f_lasti, arg, getattr(arg, "__self__", None))
        elif trace.foreseen is not None:
            trace.foreseen.calls(frame, arg, None)


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()
    for trace in list(_active):
        end(trace)


after_fork(_after_fork)
