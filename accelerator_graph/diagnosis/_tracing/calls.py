"""Calls into C: their names, and which of them only wait."""

from __future__ import annotations

import ast
import builtins
import dis
import linecache
from itertools import islice
from types import CodeType, FrameType, ModuleType
from typing import Any

_WAITING = frozenset(("_thread", "_queue", "time", "select", "_socket", "_signal", "posix", "nt"))
"""Modules in C whose functions wait, and call nothing that could reach a driver."""
_OF_PYTHON = frozenset(("builtins", "collections", "re"))
_CALLS = frozenset(("CALL", "CALL_KW", "CALL_FUNCTION_EX", "PRECALL"))
_IDLE = frozenset(("RESUME", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "YIELD_VALUE", "SEND"))
"""Instructions at which a thread can lose the interpreter though it is in the middle of nothing."""


def name_of(function: Any) -> str:
    """Return the name of a callable, without its module; empty for methods of Python's own types."""
    if _owner(function) in _OF_PYTHON:
        return ""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__qualname__


def only_waits(function: Any) -> bool:
    """Return True for functions of Python's own that wait, and so can't be what broke a capture."""
    owner = _owner(function)
    return (getattr(function, "__module__", None) if owner is None else owner) in _WAITING


def _owner(function: Any) -> str | None:
    """Return the module of the type that a method belongs to; None if it is not a method."""
    owner = getattr(function, "__objclass__", None)
    if owner is None:
        instance = getattr(function, "__self__", None)
        owner = None if instance is None or isinstance(instance, ModuleType) else type(instance)
    return None if owner is None else str(owner.__module__)


def in_progress(frame: FrameType) -> str | None:
    """Return the text of the call that a frame of another thread is in; None if that can't break a capture.

    Empty if it is an operator, or the text is not known.
    """
    code, at = frame.f_code, frame.f_lasti
    if at < 0:
        return None
    instruction = dis.opname[code.co_code[at]]
    if instruction in _IDLE:
        return None
    expression = _expression(code, at)
    if instruction not in _CALLS or not isinstance(expression, ast.Call):
        return ""
    if only_waits(_value(expression.func, frame)):
        return None
    return ast.unparse(expression.func)


def line_of(code: CodeType, offset: int) -> int:
    """Return the line of an instruction."""
    for start, end, line in code.co_lines():
        if start <= offset < end and line:
            return line
    return code.co_firstlineno


def _expression(code: CodeType, offset: int) -> ast.expr | None:
    """Return the expression that an instruction evaluates, from the source."""
    first, last, begin, end = next(islice(code.co_positions(), offset // 2, None), (None,) * 4)
    if first is None or last is None or begin is None or end is None:
        return None
    lines = [linecache.getline(code.co_filename, line).encode() for line in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    try:
        return ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _value(expression: ast.expr, frame: FrameType) -> Any:
    """Return the value of a name with dots, without running any code; None if that is not possible."""
    if isinstance(expression, ast.Name):
        for names in (frame.f_locals, frame.f_globals, vars(builtins)):
            if expression.id in names:
                return names[expression.id]
    elif isinstance(expression, ast.Attribute):
        owner = _value(expression.value, frame)
        if isinstance(owner, ModuleType):
            return vars(owner).get(expression.attr)
        if type(owner).__module__ in _WAITING:  # a lock, a socket, ...
            return getattr(owner, expression.attr, None)
    return None
