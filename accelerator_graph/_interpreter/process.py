"""The process: hooks for forks and the exit, an identity for each thread, its heap, and what it can read."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

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


class Identity:
    """Lives exactly as long as its thread, if everyone else holds it only by weak references."""

    __slots__ = ("__weakref__", "thread")

    def __init__(self) -> None:
        self.thread = threading.current_thread()


class _Thread(threading.local):
    def __init__(self) -> None:
        self.identity = Identity()


thread = _Thread()
"""`thread.identity` is what `this_thread` returns."""


def this_thread() -> Identity:
    """Return the identity of the calling thread.

    `threading.get_ident` can return the same number for another thread after the first has ended, and
    `threading.current_thread` then returns the same object, if Python started neither.
    """
    return thread.identity


def heap_bytes() -> int | None:
    """Return the bytes that the C library has given out; None where it does not report.

    Python's own small objects are not among them, and neither is memory that a library maps itself.
    """
    ask = _function()
    if ask is None:
        return None
    info = ask()
    return int(info.uordblks + info.hblkhd)


def is_readable(address: int) -> bool | None:
    """Return whether the system lets the process read the memory at an address; None where it does not tell.

    False is no proof of anything by itself: memory of a device can't be read by the host.
    """
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                span, access, *_ = line.split(maxsplit=2)
                start, end = (int(each, 16) for each in span.split("-"))
                if start <= address < end:
                    return access.startswith("r")
    except (OSError, ValueError):  # not on Linux
        return None
    return False


@cache
def _function() -> Callable[[], Any] | None:
    """Return ``mallinfo2`` of the GNU C library 2.33 and later."""
    import ctypes

    class Information(ctypes.Structure):
        _fields_ = (
            *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
            *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
        )

    try:
        function = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError, TypeError):  # TypeError: on Windows
        return None
    function.restype, function.argtypes = Information, ()
    return function
