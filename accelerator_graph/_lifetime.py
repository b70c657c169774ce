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
from itertools import chain, starmap
from typing import TYPE_CHECKING, Any, Protocol

from ._fast_path import new_lock
from ._process import after_fork, at_exit
from .errors import DriverError

if TYPE_CHECKING:
    from .backends.base import Backend
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


class Life:
    """Lives as long as a thread does, whoever made that thread. Idents are used again, this is not."""

    __slots__ = ("__weakref__",)


class _Capture(Protocol):
    @property
    def stream(self) -> Stream: ...
    def who(self) -> str: ...
    def thread_ended(self) -> None: ...


class _Thread(threading.local):
    def __init__(self) -> None:
        self.life = Life()
        self.capturing: list[Retaining] = []
        self.unfinished: dict[int, _Capture] = {}
        watch(self.life, _thread_ended, self.unfinished)


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
_ONCE: tuple[tuple[()]] = ((),)


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


def _thread_ended(unfinished: dict[int, _Capture]) -> None:
    """Abandon what a thread was capturing when it ended."""
    while unfinished:
        key = next(iter(unfinished))
        unfinished[key].thread_ended()
        unfinished.pop(key, None)


def _capturing(backend: Backend) -> bool:
    base = getattr(backend, "base", backend)
    return base in [capture.stream._backend for capture in list(captures.values())]


def _move(source: deque[_Watch], target: deque[_Watch]) -> None:
    """Move the first one. No signal is handled between its removal and its arrival, and no memory needed."""
    target.extend(starmap(source.popleft, _ONCE))


def drain() -> None:
    """Destroy what is due. Never raises on account of a driver.

    What could not be destroyed because of an interrupt, or for lack of memory or stack, stays due. Its
    backend may be asked a second time for what it has destroyed already.
    """
    if not _pending:
        return
    taken: deque[_Watch] = deque()
    postponed: deque[_Watch] = deque()
    left = chain(taken, postponed)
    try:
        while _pending:
            _move(_pending, taken)
            due = taken[0]
            if due.backend is not None and due.backend.destroy_disturbs_captures and _capturing(due.backend):
                _move(taken, postponed)
                continue
            try:
                due.act()
            except DriverError:
                pass  # nobody asked for this call, and nothing can be done about its failure
            except (MemoryError, RecursionError):
                return
            except Exception:
                sys.excepthook(*sys.exc_info())
            _watches.discard(due)
            taken.clear()
            del due  # and so what its value kept, which may be due next
    except IndexError:
        pass  # another thread took the last one
    finally:
        _pending.extend(left)


thread = _Thread()
"""`thread.life` goes with the thread.

`thread.capturing`: the graphs that this thread is capturing. It holds them, so that none is collected midway.
`thread.unfinished`: their captures by key; what is left when the thread ends is abandoned by `drain`."""


def _after_fork() -> None:
    global forks
    forks += 1
    _watches.clear()
    _pending.clear()
    captures.clear()
    thread.capturing.clear()
    thread.unfinished.clear()
    for each in list(tracked):
        each._after_fork()


def _at_exit() -> None:
    _watches.clear()
    _pending.clear()


after_fork(_after_fork)
at_exit(_at_exit)
