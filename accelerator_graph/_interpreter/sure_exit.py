"""Ends of ``with`` blocks that no signal can skip.

A signal may be handled on entry to a function, before its first ``try``: an interrupt there would leave a
``with`` block without its clean-up. Each block therefore gets an exit of its own, an object that only the
interpreter holds while the block runs. If it goes before the clean-up is done, that is done then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast
from weakref import ref

Function = TypeVar("Function", bound=Callable[..., Any])


class _Thread(threading.local):
    newest: Callable[[], Any] = staticmethod(lambda: None)


_thread = _Thread()
"""`_thread.newest()`: the exit that the ``with`` statement being entered will call."""


class _Exit:
    """Makes an exit each time that a ``with`` statement asks for one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __get__(self, obj: object, kind: type | None = None) -> Callable[..., Any]:
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

    To be called by `__enter__` before anything is done; `__exit__` lets go of the guard when all is undone.
    It also acts if `__enter__` raises. The guard is None if `__enter__` was called by hand.
    """
    leave = _thread.newest()
    if leave is None or leave.args[0] is not obj:
        return None
    return ref(leave, lambda _: action())


class Between:
    """A context that begins with one call and ends with another, even if an interrupt comes at any moment.

    Parameters
    ----------
    begin : callable
        Called on entry. If it raises, `end` is called all the same.
    end : callable
        Takes back what `begin` has done so far. May be called twice.
    """

    __slots__ = ("__weakref__", "_begin", "_end", "_guard")

    def __init__(self, begin: Callable[[], object], end: Callable[[], object]) -> None:
        self._begin = begin
        self._end = end
        self._guard: object = None

    def __enter__(self) -> None:
        self._guard = if_skipped(self, self._end)
        try:
            self._begin()
        except BaseException:
            self._end()
            raise

    @sure_exit
    def __exit__(self, *exc: object) -> None:
        self._end()
        self._guard = None
