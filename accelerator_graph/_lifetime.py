"""Who destroys what, and when: deferred destruction, forks, and the interpreter's exit.

A finalizer may run in any thread, in the middle of anybody's capture, while a lock is held. So it
does nothing but append to a queue; the queue is drained at the next ordinary call.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from .errors import DriverError

if TYPE_CHECKING:
    from .api import Graph
    from .backends.base import Backend


class _Tracked(Protocol):
    def _after_fork(self) -> None: ...


captures: dict[int, Backend] = {}
"""The backend of every capture that this library has under way, in all threads, by an arbitrary key."""

tracked: WeakSet[_Tracked] = WeakSet()
"""Everything that must not be used in a forked child."""

_pending: deque[tuple[Backend | None, Callable[[Any], object], Any]] = deque()
_generation = 0
_exiting = False


class _Thread(threading.local):
    def __init__(self) -> None:
        self.capturing: list[Graph] = []


thread = _Thread()
"""`thread.capturing`: the graphs that this thread is capturing. It holds them, so that none is
collected midway; if the thread ends, they are let go."""


def generation() -> int:
    """Return a number that differs between a process and its forked children."""
    return _generation


def defer(backend: Backend | None, action: Callable[[Any], object], value: Any, made_in: int) -> None:
    """Queue `action(value)`. Safe in a finalizer: takes no lock, runs nothing, never raises.

    With a backend given, its captures may have to end first (`Backend.destroy_disturbs_captures`).
    Dropped in a forked child of the process that made the value, and when the interpreter exits.
    """
    if made_in == _generation and not _exiting:
        _pending.append((backend, action, value))


class Owned:
    """An object that has to be destroyed once: when nobody holds this owner any more.

    Parameters
    ----------
    backend : Backend
        Whose object it is.
    destroy : callable
        Takes `value`; called by `drain`.
    value : object
        What is owned.
    keeps : object
        What has to outlive it: released after `value` was queued.
    """

    __slots__ = ("__weakref__", "_destroy", "_generation", "backend", "keeps", "lock", "value")

    def __init__(
        self, backend: Backend, destroy: Callable[[Any], object], value: Any, keeps: object = None
    ) -> None:
        lock, generation = threading.RLock(), _generation
        self.backend, self._destroy, self.value, self.keeps = backend, destroy, value, keeps
        self.lock, self._generation = lock, generation

    def __del__(self, defer: Callable[..., None] = defer) -> None:
        if hasattr(self, "_generation"):
            defer(self.backend, self._destroy, self.value, self._generation)


def drain() -> None:
    """Destroy what finalizers have queued. Never raises on account of a driver."""
    for _ in range(len(_pending)):
        try:
            entry = _pending.popleft()
        except IndexError:
            return
        backend, action, value = entry
        if backend is not None and backend.destroy_disturbs_captures and backend in captures.values():
            _pending.append(entry)
            continue
        try:
            action(value)
        except DriverError:
            pass  # nobody asked for this call, and nothing can be done about its failure
        except Exception:
            sys.excepthook(*sys.exc_info())


def _after_fork() -> None:
    global _generation
    _generation += 1
    _pending.clear()
    captures.clear()
    thread.capturing.clear()
    for each in list(tracked):
        each._after_fork()


def _at_exit() -> None:
    global _exiting
    _exiting = True
    _pending.clear()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
