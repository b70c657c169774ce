"""A piece of the cpu backend's work: what to call, which line enqueued it, and how it failed."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import BuiltinFunctionType, CodeType
from typing import Any

from ...errors import DriverError, driver_error

Site = tuple[CodeType, int]
"""A place in a program: a function's code, and the offset of an instruction in it."""

Call = tuple[Callable[..., object], tuple[Any, ...], dict[str, Any], Site | None]
"""A callable, its arguments, its keyword arguments, and the place where it was enqueued."""


class Failure(Exception):
    """A callable on a stream raised an exception.

    Every stream that waits for the failed one shares this object, and the first of them that is waited for
    raises the error. If it is dropped before that, the error goes to `threading.excepthook`, like any
    exception that a thread does not catch.
    """

    told: bool = True
    """Whether the error was raised or reported. True in the class, for an object whose `__init__` was
    interrupted."""

    def __init__(self, error: BaseException, call: Call | None = None) -> None:
        super().__init__()
        self.error = error
        self._work = "a callable" if call is None else repr(name_of(call[0]))
        self._site = None if call is None else call[3]
        self._later = 0
        self._thread = threading.current_thread()
        self._process = os.getpid()
        self.told = False

    def add(self, later: Failure) -> None:
        """Count a later failure of the same stream. The error only mentions their number."""
        self._later += 1
        later.told = True

    def as_error(self) -> DriverError:
        """Return the error to raise where the work is waited for."""
        self.told = True
        where = "" if self._site is None else f", enqueued at {_line(*self._site)},"
        detail = f"{self._work}{where} raised {type(self.error).__name__}"
        detail += "; the rest of its replay, if any, was skipped"
        if self._later:
            detail += f"; {self._later} more failed after it"
        error = driver_error(backend="cpu", call="launch", code=None, code_name="WORK_FAILED", detail=detail)
        error.__cause__ = self.error
        return error

    def report(self) -> None:
        """Hand the error to `threading.excepthook`, unless it was raised before."""
        if not self.told:
            error = self.as_error()
            threading.excepthook(threading.ExceptHookArgs((type(error), error, None, self._thread)))

    # `__del__` finds these in the class, since a module's names may be gone when the interpreter exits.
    _getpid = staticmethod(os.getpid)
    _is_finalizing = staticmethod(sys.is_finalizing)

    def __del__(self) -> None:
        if not self.told and not self._is_finalizing() and self._process == self._getpid():
            self.report()


def run_calls(calls: Sequence[Call]) -> None:
    """Make the calls one after another. Raises `Failure` if one of them raises."""
    try:
        for call in calls:
            function, args, how, _ = call
            function(*args, **how)
    except BaseException as error:
        raise failure_of(error, call) from None


def failure_of(error: BaseException, call: Call) -> Failure:
    """Return the failure of a call. A call that ran another graph has raised a `Failure` already."""
    return error if isinstance(error, Failure) else Failure(error, call)


def name_of(work: object) -> str:
    """Return the name of a callable, of a `functools.partial` that of its function."""
    while isinstance(work, partial):
        work = work.func
    return str(getattr(work, "__qualname__", type(work).__qualname__))


def check_callable(work: object) -> None:
    """Raise `TypeError` if `work` can't be called, or is a function whose body does not run when called."""
    if not callable(work):
        raise TypeError(
            f"launch: backend 'cpu' launches callables, and an object of type {type(work).__name__!r} is not "
            "one; pass a function."
        )
    function: Any = work
    while isinstance(function, partial):
        function = function.func
    code = code_of(function)
    if code is not None and code.co_flags & SUSPENDED:
        kind = "coroutine" if code.co_flags & _COROUTINE else "generator"
        raise TypeError(
            f"launch: {name_of(function)!r} is a {kind} function, and calling it does not run its body; "
            "launch a plain function."
        )


def code_of(function: Any) -> CodeType | None:
    """Return the code of a function, or of an object that is called; None if it is not Python's."""
    code = getattr(function, "__code__", None)
    if code is None and not isinstance(function, BuiltinFunctionType):
        code = getattr(type(function).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def whole_call(call: Call) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the function and all arguments of a call, those of a `functools.partial` included."""
    function: Any = call[0]
    args, how = call[1:3]
    while isinstance(function, partial):
        function, args, how = function.func, (*function.args, *args), {**function.keywords, **how}
    return function, args, how


def caller() -> Site | None:
    """Return the innermost place outside of this package on the call stack, if there is one.

    An offset is cheaper to get than a line number, which has to be looked up in a table.
    """
    depth = 2
    try:
        while (frame := sys._getframe(depth)).f_code.co_filename.startswith(PACKAGE):
            depth += 1  # not `f_back`: it is None if memory runs out, with the exception still pending
    except ValueError:  # the stack is not that deep
        return None
    return frame.f_code, frame.f_lasti


PACKAGE = caller.__code__.co_filename.rsplit(os.sep, 3)[0] + os.sep
"""Where this package's own code is."""

_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200  # as in `inspect`, whose import takes 7 ms
SUSPENDED = _GENERATOR | _COROUTINE | _ASYNC_GENERATOR
"""Flags of functions whose bodies do not run when they are called."""


def _line(code: CodeType, offset: int) -> str:
    for begin, end, line in code.co_lines():
        if begin <= offset < end and line is not None:
            return f"{code.co_filename}:{line}"
    return f"{code.co_filename}:{code.co_firstlineno}"
