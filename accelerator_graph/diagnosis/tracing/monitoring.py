"""The interpreter's events while captures are watched, by ``sys.monitoring``."""

from __future__ import annotations

import sys
import threading
from threading import get_ident
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .observation import CaptureTrace

_monitoring: Any = getattr(sys, "monitoring", None)
_NAME = "accelerator_graph"
_IDS = (4, 3, 5, 2, 1, 0)
"""Tools in the order in which they are tried; 0 to 2 and 5 are meant for debuggers, coverage, profilers."""

_active: list[CaptureTrace] = []
_lock = threading.RLock()
_tool: int | None = None


def begin(trace: CaptureTrace) -> None:
    """Watch for one more capture."""
    global _tool
    with _lock:
        _active.append(trace)
        if _tool is None:
            _tool = next((each for each in _IDS if _monitoring.get_tool(each) is None), None)
            if _tool is not None:
                _start(_tool)


def end(trace: CaptureTrace) -> None:
    """Watch for a capture no more."""
    global _tool
    with _lock:
        if trace in _active:
            _active.remove(trace)
        if not _active and _tool is not None:
            tool, _tool = _tool, None
            _monitoring.set_events(tool, 0)
            _monitoring.free_tool_id(tool)


def _start(tool: int) -> None:
    events = _monitoring.events
    _monitoring.use_tool_id(tool, _NAME)
    _monitoring.register_callback(tool, events.LINE, _on_line)
    _monitoring.register_callback(tool, events.PY_RETURN, _on_return)
    _monitoring.register_callback(tool, events.C_RETURN, _on_c_return)
    _monitoring.register_callback(tool, events.C_RAISE, _on_c_raise)
    _monitoring.set_events(tool, events.LINE | events.PY_RETURN | events.CALL)


def _on_line(code: CodeType, line: int) -> None:
    thread = get_ident()
    for trace in _active:
        if trace.goes_on(thread):
            trace.last[thread] = (code, line, True)
        else:
            trace.broke_between(sys._getframe(1), thread)


def _on_return(code: CodeType, offset: int, value: object) -> None:
    thread = get_ident()
    for trace in _active:
        frame = sys._getframe(1)
        if trace.goes_on(thread):
            trace.forks.after_python(frame)
            caller = frame.f_back
            if caller is not None:
                trace.last[thread] = (caller.f_code, caller.f_lasti, False)
        else:
            trace.broke_between(frame, thread)


def _on_c_return(code: CodeType, offset: int, function: Any, first: Any) -> None:
    thread = get_ident()
    for trace in _active:
        if trace.goes_on(thread):
            trace.forks.after_c(function, first, sys._getframe(1))
            if trace.escapes.asks and thread == trace.thread:
                trace.escapes.after_call(function, first)
            trace.last[thread] = (code, offset, False)
        else:
            trace.broke_in_call(sys._getframe(1), thread, function, False)


def _on_c_raise(code: CodeType, offset: int, function: Any, first: Any) -> None:
    thread = get_ident()
    for trace in _active:
        if trace.goes_on(thread):
            trace.last[thread] = (code, offset, False)
        else:
            trace.broke_in_call(sys._getframe(1), thread, function, True)
