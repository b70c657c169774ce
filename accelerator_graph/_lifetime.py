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
from typing import TYPE_CHECKING, Any, Protocol

from ._fast_path import new_lock
from ._process import after_fork, at_exit
from .errors import DriverError
from .interop.base import Recorder

if TYPE_CHECKING:
    from .backends.base import Backend


class Retaining(Protocol):
    """A graph, for those who keep things alive with it."""

    def retain(self, obj: Any) -> Any:
        """Keep an object alive until the graph is reset."""


class _Tracked(Protocol):
    def _after_fork(self) -> None: ...


captures: dict[int, Backend] = {}
"""The backend of every capture that this library has under way, in all threads, by an arbitrary key."""

tracked: weakref.WeakSet[_Tracked] = weakref.WeakSet()
"""What has to be told in a forked child that it must not be used any more."""

forks = 0
"""How many forks there were between this process and the first one."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.capturing: list[Retaining] = []


thread = _Thread()
"""`thread.capturing`: the graphs that this thread is capturing. It holds them, so that none is
collected midway; if the thread ends, they are let go."""


class _Watch(weakref.ref[Any]):
    """What is to be done when an object is gone. The callback is the queue's own `append`, in C."""

    __slots__ = ("action", "backend", "keeps", "value")
    __hash__ = object.__hash__
    __eq__ = object.__eq__  # references to one object are equal otherwise, as long as it lives

    backend: Backend | None
    action: Callable[[Any], object] | str
    value: Any
    keeps: object

    def act(self) -> None:
        """Do it."""
        action = getattr(self.backend, self.action) if isinstance(self.action, str) else self.action
        action(self.value)


_watches: set[_Watch] = set()
_pending: deque[_Watch] = deque()
_append = _pending.append


def watch(
    obj: object,
    action: Callable[[Any], object] | str,
    value: Any,
    backend: Backend | None = None,
    keeps: object = None,
) -> None:
    """Have `drain` call `action(value)` once `obj` is gone, and let go of what it keeps after that.

    A name means the backend's method, which need not be held then. With a backend given, its captures may
    have to end first (`Backend.destroy_disturbs_captures`). Nothing is called in a forked child for what its
    parent made, and nothing when the interpreter exits.
    """
    ref = _Watch(obj, _append)
    ref.backend, ref.action, ref.value, ref.keeps = backend, action, value, keeps
    _watches.add(ref)


class Owned:
    """An object that has to be destroyed once: when nobody holds this owner any more.

    Parameters
    ----------
    backend : Backend
        Whose object it is.
    destroy : str
        Name of the backend's method that takes `value`; called by `drain`.
    value : object
        What is owned.
    keeps : object
        What has to outlive it: let go after `destroy` was called.
    """

    __slots__ = ("__weakref__", "backend", "last", "lock", "value")

    def __init__(self, backend: Backend, destroy: str, value: Any, keeps: object = None) -> None:
        self.backend = backend
        self.value = value
        self.lock = new_lock()
        self.last: object = None
        watch(self, destroy, value, backend, keeps)


def drain() -> None:
    """Destroy what is due. Never raises on account of a driver."""
    if not _pending:
        return
    postponed = []
    try:
        while _pending:
            due = _pending.popleft()
            if (
                due.backend is not None
                and due.backend.destroy_disturbs_captures
                and _driver_of(due.backend) in captures.values()
            ):
                postponed.append(due)
                continue
            _watches.discard(due)
            try:
                due.act()
            except DriverError:
                pass  # nobody asked for this call, and nothing can be done about its failure
            except Exception:
                sys.excepthook(*sys.exc_info())
            del due  # and so what its value kept, which may be due next
    except IndexError:
        pass  # another thread took the last one
    finally:
        _pending.extend(postponed)


def _driver_of(backend: Backend | Recorder) -> Backend:
    """Return the backend that a framework's recorder stands in for; any other is its own."""
    return backend.base if isinstance(backend, Recorder) else backend


def _after_fork() -> None:
    global forks
    forks += 1
    _watches.clear()
    _pending.clear()
    captures.clear()
    thread.capturing.clear()
    for each in list(tracked):
        each._after_fork()


def _at_exit() -> None:
    _watches.clear()
    _pending.clear()


after_fork(_after_fork)
at_exit(_at_exit)
