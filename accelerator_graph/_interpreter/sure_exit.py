"""Ends of ``with`` blocks that no signal can skip.

Python can handle a signal on entry to a function, before its first ``try``. An interrupt there would leave
a ``with`` block without its clean-up. So each block gets its own exit, an object that only the interpreter
holds while the block runs. If that object ends before the clean-up is done, its end does the clean-up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast
from weakref import ref

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")


class _Thread(threading.local):
    newest: Callable[[], Any] = staticmethod(lambda: None)


_thread = _Thread()
"""`_thread.newest()` returns the exit of the ``with`` statement that is being entered."""


class _Exit:
    """Makes a new exit for each ``with`` statement."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __get__(self, obj: object, kind: type | None = None) -> Callable[..., Any]:
        """Return a new exit, which only the interpreter holds while the block runs."""
        if obj is None:
            return self._function
        leave = partial(self._function, obj)
        _thread.newest = ref(leave)
        return leave


def sure_exit(function: Function) -> Function:
    """Decorate an `__exit__` whose `__enter__` calls `if_skipped`."""
    return cast("Function", _Exit(function))


def if_skipped(obj: object, action: Callable[[], object]) -> object:
    """Return a guard: if the ``with`` block of `obj` ends while the guard lives, `action` is called.

    `__enter__` calls this before it does anything, and `__exit__` drops the guard after the clean-up. The
    guard also acts if `__enter__` raises. It is None if `__enter__` was called by hand.
    """
    leave = _thread.newest()
    if leave is None or leave.args[0] is not obj:
        return None
    return ref(leave, lambda _: action())


class _SectionExit(_Exit):
    """Makes the exit of a section, and has its end call `end` if nothing else has."""

    def __get__(self, obj: Any, kind: type | None = None) -> Callable[..., Any]:
        if obj is None:
            return self._function
        leave = partial(self._function, obj)
        obj._guard = ref(leave, lambda _: obj.end())
        return leave


class Section:
    """A context whose `end` is called even if an interrupt arrives at any moment. Subclasses have both."""

    __slots__ = ("__weakref__", "_guard")

    _guard: object

    def begin(self) -> None:
        """Called on entry. If it raises, `end` is still called."""
        raise NotImplementedError

    def end(self) -> None:
        """Undo everything that `begin` has done so far. May be called twice."""
        raise NotImplementedError

    def run(self, work: Callable[..., Result], *args: Any) -> Result:
        """Return ``work(*args)``, done inside: a ``with`` statement takes three times as long."""
        try:
            self.begin()
            return work(*args)
        finally:
            try:
                self.end()
            except BaseException:  # an interrupt
                self.end()
                raise

    def __enter__(self) -> None:
        try:
            self.begin()
        except BaseException:
            self.end()
            raise

    def _exit(self, *exc: object) -> None:
        self.end()
        self._guard = None

    __exit__ = cast("Callable[..., None]", _SectionExit(_exit))


class Between(Section):
    """A section that begins with one call and ends with another."""

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: Callable[[], object], end: Callable[[], object]) -> None:
        self._begin = begin
        self._end = end

    def begin(self) -> None:
        """Make the first call."""
        self._begin()

    def end(self) -> None:
        """Make the second call."""
        self._end()
