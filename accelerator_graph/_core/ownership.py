"""Who destroys what, and when: deferred destruction, forks, and the interpreter's exit.

An object may die in any thread, in the middle of anybody's capture, while a lock is held or a signal
arrives. So nothing runs then but an append to a queue; the queue is drained at the next ordinary call.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from itertools import starmap
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Protocol

from .._interpreter.process import after_fork, at_exit
from ..errors import DriverError
from ..interop.base import Recorder
from .extension import new_lock

if TYPE_CHECKING:
    from ..backends.base import Backend
    from .streams import Stream


class Retaining(Protocol):
    """A graph, for those who keep things alive with it."""

    def retain(self, obj: Any) -> Any:
        """Keep an object alive until the graph is reset."""


class _Tracked(Protocol):
    def _after_fork(self) -> None: ...


captures: dict[int, _Capture] = {}
"""Every capture that this library has under way, in all threads, by an arbitrary key."""

tracked: weakref.WeakSet[_Tracked] = weakref.WeakSet()
"""What has to be told in a forked child that it must not be used any more."""

forks = 0
"""How many forks there were between this process and the first one."""


class _Capture(Protocol):
    @property
    def stream(self) -> Stream: ...
    def who(self) -> str: ...
    def thread_ended(self) -> None: ...


_pending: deque[Finalizer] = deque()
_ONCE: tuple[tuple[()]] = ((),)


class Finalizer:
    """Has `drain` call ``action(value)`` once nobody holds this object any more.

    The garbage collector sees everything it refers to, so what leads back to it can still be collected.
    All of that lives until the call was made. Nothing is called in a forked child for what its parent
    made, and nothing when the interpreter exits.

    Parameters
    ----------
    action : callable or str
        A name means the backend's method, which need not be held then.
    value : object
        What `action` is called with.
    backend : Backend, optional
        Its captures may have to end first (`Backend.destroy_disturbs_captures`).
    *keeps : object
        What has to outlive the value. Finalizers among these are called after this one.
    """

    __slots__ = ("_forks", "_hold", "action", "backend", "keeps", "value")

    _hold: object
    keeps: object

    def __init__(
        self,
        action: Callable[[Any], object] | str,
        value: Any,
        backend: Backend | None = None,
        *keeps: object,
    ) -> None:
        self.action = action
        self.value = value
        self.backend = backend
        self.keeps = [(each, each._hold) if isinstance(each, Finalizer) else each for each in keeps]
        self._hold = object()  # those that keep this one refer to it as well
        self._forks = forks  # last: without it, an interrupt came before

    __del__ = lru_cache(maxsize=0)(_pending.append)  # a method in C: no signal is handled in it

    def has_to_wait(self) -> bool:
        """Return True if it is kept by a finalizer that was not called, or a capture would be disturbed."""
        if getrefcount(self._hold) > _UNSHARED:
            return True
        backend = self.backend
        return backend is not None and backend.destroy_disturbs_captures and _capturing(backend)

    def act(self) -> None:
        """Call the action."""
        action = getattr(self.backend, self.action) if isinstance(self.action, str) else self.action
        action(self.value)

    def is_void(self) -> bool:
        """Return True if it was made before a fork, or an interrupt left it half made."""
        return getattr(self, "_forks", None) != forks


class Owned(Finalizer):
    """An object that has to be destroyed once: when nobody holds this owner any more.

    Parameters
    ----------
    backend : Backend
        Whose object it is.
    destroy : str
        Name of the backend's method that takes `value`; called by `drain`.
    value : object
        What is owned.
    *keeps : object
        What has to outlive it.
    """

    __slots__ = ("last", "lock")

    backend: Backend

    def __init__(self, backend: Backend, destroy: str, value: Any, *keeps: object) -> None:
        super().__init__(destroy, value, backend, *keeps)
        self.lock = new_lock()
        self.last: object = None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.capturing: list[Retaining] = []
        self.unfinished: dict[int, _Capture] = {}
        self.end = Finalizer(_thread_ended, self.unfinished)


def _thread_ended(unfinished: dict[int, _Capture]) -> None:
    """Abandon what a thread was capturing when it ended."""
    while unfinished:
        key = next(iter(unfinished))
        unfinished[key].thread_ended()
        unfinished.pop(key, None)


def _capturing(backend: Backend) -> bool:
    return _driver_of(backend) in [capture.stream._backend for capture in list(captures.values())]


def _move(source: deque[Finalizer], target: deque[Finalizer]) -> None:
    """Move the first one. No signal is handled between its removal and its arrival, and no memory needed."""
    target.extend(starmap(source.popleft, _ONCE))


def drain() -> None:
    """Destroy what is due. Never raises on account of a driver.

    What could not be destroyed because of an interrupt, or for lack of memory or stack, stays due. Its
    backend may be asked a second time for what it has destroyed already.
    """
    if not _pending:
        return
    taken: deque[Finalizer] | tuple[()] = ()
    waiting = 0  # were looked at since the last one was called
    try:
        taken = deque()
        while waiting < len(_pending):
            _move(_pending, taken)
            due = taken[0]
            try:
                if due.is_void():
                    pass
                elif due.has_to_wait():
                    waiting += 1
                    _move(taken, _pending)
                    continue
                else:
                    due.act()
            except DriverError:
                pass  # nobody asked for this call, and nothing can be done about its failure
            except (MemoryError, RecursionError):
                return
            except Exception:
                sys.excepthook(*sys.exc_info())
            taken.clear()
            due.keeps = ()  # only now: until then it may be called again
            waiting = 0
            del due  # and so what its value kept, which may be due next
    except (IndexError, MemoryError):
        pass  # another thread took the last one, or there was no memory for `taken`
    finally:
        _pending.extend(taken)


thread = _Thread()
"""`thread.capturing`: the graphs that this thread is capturing. It holds them, so none is collected midway.
`thread.unfinished`: their captures by key; what is left when the thread ends is abandoned by `drain`."""

_UNSHARED = getrefcount(thread.end._hold)


def _driver_of(backend: Backend | Recorder) -> Backend:
    """Return the backend that a framework's recorder stands in for; any other is its own."""
    return backend.base if isinstance(backend, Recorder) else backend


def _after_fork() -> None:
    global forks
    forks += 1
    _pending.clear()
    captures.clear()
    thread.capturing.clear()
    thread.unfinished.clear()
    thread.end = Finalizer(_thread_ended, thread.unfinished)
    for each in list(tracked):
        each._after_fork()


def _at_exit() -> None:
    del Finalizer.__del__
    _pending.clear()


after_fork(_after_fork)
at_exit(_at_exit)
