"""The interpreter's events while captures are watched, by ``sys.monitoring``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from ..._interpreter.interruptions import after_fork
from .places import PURE, is_passive, is_unwatched
from .streams import WAITS

if TYPE_CHECKING:
    from .observation import Watched

Callback = Callable[..., Any]

_monitoring: Any = getattr(sys, "monitoring", None)
_NAME = "accelerator_graph"
_IDS = (4, 3, 5, 2, 1, 0)
"""Tools in the order in which they are tried; 0 to 2 and 5 are meant for debuggers, coverage, profilers."""
_EVENTS = ("PY_START", "LINE", "PY_RETURN", "C_RETURN", "C_RAISE", "RAISE", "CALL", "PY_UNWIND")

_PURE = frozenset(map(id, PURE))

_active: dict[Watched, tuple[Callback, ...]] = {}
_lock = threading.RLock()
_tool: int | None = None


def begin(trace: Watched) -> None:
    """Watch for one more capture."""
    global _tool
    with _lock:
        if _tool is None:  # an interrupt may have left one in use
            _tool = next((each for each in _IDS if _monitoring.get_tool(each) in (None, _NAME)), None)
        if _tool is not None and _monitoring.get_tool(_tool) is None:
            _monitoring.use_tool_id(_tool, _NAME)
        _active[trace] = _callbacks(trace)
        _register()
        if trace.foreseen is not None:
            _monitoring.restart_events()  # of functions of which other captures did not want any more


def end(trace: Watched) -> None:
    """Watch for a capture no more."""
    global _tool
    with _lock:
        _active.pop(trace, None)
        _register()
        if not _active and _tool is not None:
            tool, _tool = _tool, None
            _monitoring.free_tool_id(tool)


def _register() -> None:
    if _tool is None or _monitoring.get_tool(_tool) != _NAME:
        return
    events = _monitoring.events
    wanted = events.PY_START | events.LINE | events.PY_RETURN | events.CALL | events.RAISE if _active else 0
    if any(trace.foreseen is not None for trace in _active):
        wanted |= events.PY_UNWIND
    if not wanted:
        _monitoring.set_events(_tool, 0)
    for number, name in enumerate(_EVENTS):
        each = [callbacks[number] for callbacks in _active.values() if number < len(callbacks)]
        callback = None if not each else each[0] if len(each) == 1 else _all(each)
        _monitoring.register_callback(_tool, getattr(events, name), callback)
    if wanted:
        _monitoring.set_events(_tool, wanted)


def _all(callbacks: list[Callback]) -> Callback:
    def call_all(*args: Any) -> Any:
        answer = None
        for each in callbacks:
            answer = each(*args)
        return answer

    return call_all


def _callbacks(trace: Watched) -> tuple[Callback, ...]:
    """Return what is called at each kind of event: in C, if there is the extension."""
    disable, foreseen = _monitoring.DISABLE, trace.foreseen

    def line(code: CodeType, number: int) -> Any:
        if is_unwatched(code):
            return disable
        trace.at_line(_frame_of(code), number)
        return None

    def python_returns(code: CodeType, offset: int, value: object) -> Any:
        if is_unwatched(code):
            return disable
        trace.at_return(_frame_of(code), value)
        return None

    def c_returns(code: CodeType, offset: int, function: Any, first: Any) -> None:
        if id(function) not in _PURE and not is_passive(code):  # these events can't be disabled
            trace.after_call(_frame_of(code), offset, function, first)

    def raises(code: CodeType, offset: int, error: BaseException) -> None:
        trace.at_exception(_frame_of(code), error)

    watched: tuple[Callback, ...] = line, python_returns, c_returns, raises
    made = trace.answer_in_c(*watched, disable=disable)
    if made is not None:
        watched = made.line, made.python_returns, made.c_returns, made.raises
    at_line, at_return, after_call, at_exception = watched

    def starts(code: CodeType, offset: int) -> Any:
        """Stand in for the event of the line of a one-line function, which Python 3.13 does not have."""
        if foreseen is not None and code in WAITS:
            foreseen.starts(_frame_of(code))
            return None
        one_line = {number for _, _, number in code.co_lines() if number} == {code.co_firstlineno}
        return at_line(code, code.co_firstlineno) if one_line else disable

    callbacks = starts, at_line, at_return, after_call, after_call, at_exception
    if foreseen is None:
        return callbacks

    def calls(code: CodeType, offset: int, function: Any, first: Any) -> None:
        foreseen.calls(_frame_of(code), function, first)

    def unwinds(code: CodeType, offset: int, error: BaseException) -> None:
        foreseen.ends(_frame_of(code))

    return *callbacks, calls, unwinds


def _frame_of(code: CodeType) -> FrameType:
    """Return the frame of an event, which is the innermost of that code."""
    frame = sys._getframe(2)
    while frame.f_code is not code and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()
    for trace in list(_active):
        end(trace)


after_fork(_after_fork)
