"""What can come between any two lines: a fork, the end of a thread or of the process, and a signal.

Python can handle a signal on entry to a function, before its first ``try``. An interrupt there would leave
a ``with`` block without its clean-up. So each block gets its own exit, an object that only the interpreter
holds while the block runs. If that object ends before the clean-up is done, its end does the clean-up.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar, cast
from weakref import ref

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")


# ---- forks and the exit --------------------------------------------------------------------------

_in_child: list[Callable[[], object]] = []
_at_exit: list[Callable[[], object]] = []


def after_fork(action: Callable[[], object]) -> None:
    """Make every forked child call `action` before anything else, in the order of registration.

    Systems without `os.fork` never call it.
    """
    _in_child.append(action)


def at_exit(action: Callable[[], object]) -> None:
    """Make the interpreter call `action` at exit, in the reverse order of registration."""
    _at_exit.append(action)


def _call_in_child() -> None:
    _call(_in_child)


@atexit.register
def _call_at_exit() -> None:
    _call(reversed(_at_exit))


def _call(actions: Iterable[Callable[[], object]]) -> None:
    for action in actions:
        try:
            action()
        except Exception:  # the other actions must still run
            sys.excepthook(*sys.exc_info())


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_call_in_child)


def from_a_signal_handler(error: BaseException) -> bool:
    """Return True if a signal handler written in Python has raised the exception."""
    import signal

    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in handlers:
        trace = trace.tb_next
    return trace is not None


# ---- threads -------------------------------------------------------------------------------------


class Identity:
    """Lives exactly as long as its thread, if everyone else holds it only by weak references."""

    __slots__ = ("__weakref__", "thread")

    def __init__(self) -> None:
        self.thread = threading.current_thread()


class _Thread(threading.local):
    newest: Callable[[], Any] = staticmethod(lambda: None)

    def __init__(self) -> None:
        self.identity = Identity()


thread = _Thread()
"""`thread.identity` is what `this_thread` returns, `thread.newest()` the exit of the ``with`` statement that
is being entered."""


def this_thread() -> Identity:
    """Return the identity of the calling thread.

    `threading.get_ident` can return the same number for another thread after the first has ended, and
    `threading.current_thread` then returns the same object, if Python started neither.
    """
    return thread.identity


# ---- the ends of ``with`` blocks -----------------------------------------------------------------


class _Exit:
    """Makes a new exit for each ``with`` statement."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __get__(self, obj: object, kind: type | None = None) -> Callable[..., Any]:
        """Return a new exit, which only the interpreter holds while the block runs."""
        if obj is None:
            return self._function
        leave = partial(self._function, obj)
        thread.newest = ref(leave)
        return leave


def sure_exit(function: Function) -> Function:
    """Decorate an `__exit__` whose `__enter__` calls `if_skipped`."""
    return cast("Function", _Exit(function))


def if_skipped(obj: object, action: Callable[[], object]) -> object:
    """Return a guard: if the ``with`` block of `obj` ends while the guard lives, `action` is called.

    `__enter__` calls this before it does anything, and `__exit__` drops the guard after the clean-up. The
    guard also acts if `__enter__` raises. It is None if `__enter__` was called by hand.
    """
    leave = thread.newest()
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

    __exit__: Callable[..., None] = cast("Callable[..., None]", _SectionExit(_exit))


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
