"""Deferred destruction: owners put themselves in a queue when they die, and `drain` destroys what they own.

An object can die in any thread, in the middle of any capture, while a lock is held or a signal arrives. All
that happens then is an append to a queue, which the library empties at the next ordinary call.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import starmap
from sys import getrefcount
from typing import TYPE_CHECKING, Any, cast

from .._interpreter.interruptions import after_fork, at_exit, from_a_signal_handler
from ..errors import DriverError
from .capture_table import disturbed_by, live

if TYPE_CHECKING:
    from ..backends.base import AnyBackend as Backend
    from ..backends.base import Recorder
    from ..interop.base import FrameworkRecorder


class Ref(weakref.ref[Any]):
    """A weak reference that is only equal to itself, even if its object can't be hashed."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


graphs: set[Ref] = set()
"""The graphs and graphed functions that there are, each added as ``Ref(graph, forget)``: a forked child marks
them as unusable. A `WeakSet` would take ten times as long, in Python."""
forget = graphs.discard

forks = 0
"""The number of forks between this process and the first one."""

_queue: deque[Finalizer] = deque()
due: Sequence[Finalizer] = _queue
"""What `drain` has to look at: nothing most of the time."""
_ONCE: tuple[tuple[()]] = ((),)


class Finalizer:
    """Makes `drain` call `act` once nobody holds this object any more.

    The garbage collector sees everything that the object refers to, so cycles through it are collected. All
    of that lives until the call was made. A forked child calls nothing for objects that its parent made, and
    nothing is called when the interpreter exits.

    Parameters
    ----------
    backend : Backend or None
        The backend whose captures `act` may disturb.
    value : object
        What it is about.
    *keeps : object
        What has to outlive the value. Finalizers among these act after this one.
    """

    __slots__ = ("_forks", "_hold", "backend", "keeps", "value")

    _hold: object
    keeps: object

    def __init__(self, backend: Backend | None, value: Any, *keeps: object) -> None:
        self.backend = backend
        self.value = value
        self.keeps = keeps and (*keeps, *[each._hold for each in keeps if isinstance(each, Finalizer)])
        self._hold = object()  # those that keep this one refer to it as well
        self._forks = forks  # last: without it, an interrupt came before

    __del__ = lru_cache(maxsize=0)(_queue.append)  # a method in C: no signal is handled in it

    def act(self) -> None:
        """Destroy the value, or whatever else is due."""
        raise NotImplementedError

    def disturbs_captures(self) -> bool:
        """Return True if `act` must wait for the end of the captures on its backend."""
        return self.backend is not None and self.backend.destroy_disturbs_captures

    def would_disturb(self) -> bool:
        """Return True if `act` would disturb a capture that is under way now."""
        return self.backend is not None and self.disturbs_captures() and disturbed_by(self.backend)


class Callback(Finalizer):
    """Makes `drain` call ``action(value)`` once nobody holds this object any more.

    Parameters
    ----------
    action : callable
        What to call.
    backend, value, *keeps
        As for `Finalizer`.
    """

    __slots__ = ("action",)

    def __init__(
        self, action: Callable[[Any], object], value: Any, backend: Backend | None = None, *keeps: object
    ) -> None:
        self.action = action
        super().__init__(backend, value, *keeps)

    def act(self) -> None:
        """Call the action."""
        self.action(self.value)


class Owned(Finalizer):
    """Holds something that its recorder made and has to destroy, once. Subclasses say how.

    Parameters
    ----------
    recorder : Recorder
        The backend, or the framework's recorder that stands in for it.
    backend, value, *keeps
        As for `Finalizer`.
    """

    __slots__ = ("recorder",)

    backend: Backend

    def __init__(self, recorder: Recorder, backend: Backend, value: Any, *keeps: object) -> None:
        self.recorder = recorder  # the rest as in `Finalizer`: each capture makes two
        self.backend = backend
        self.value = value
        for each in keeps:
            if isinstance(each, Finalizer):
                keeps = (*keeps, each._hold)
        self.keeps = keeps
        self._hold = object()
        self._forks = forks

    def disturbs_captures(self) -> bool:
        """Return what the recorder says."""
        return self.recorder.destroy_disturbs_captures

    @property
    def native(self) -> Any:
        """The backend's own object, for the backend to read and to measure."""
        return self.value if self.recorder is self.backend else self.value.native

    def lent(self) -> Any | None:
        """Return the backend's own object if the backend may run and change it; None if its recorder must."""
        recorder = self.recorder
        if recorder is self.backend:
            return self.value
        return self.value.native if cast("FrameworkRecorder", recorder).lends(self.value) else None


def tracked() -> list[Any]:
    """Return the graphs and graphed functions that there are."""
    return [graph for each in list(graphs) if (graph := each()) is not None]


def drain() -> None:
    """Destroy what is due. Never raises on account of a driver.

    What a signal handler raises, or a lack of memory or stack, leaves the rest for the next time. A recorder
    may then be asked a second time to destroy what it has destroyed already.
    """
    if not _queue:
        return
    taken: deque[Finalizer] | tuple[()] = ()
    waiting = 0  # were looked at since the last one acted
    try:
        taken = deque()
        while waiting < len(_queue):
            # `starmap` moves it without memory, and no signal is handled between its removal and its arrival
            taken.extend(starmap(_queue.popleft, _ONCE))
            due = taken[0]
            try:
                if getattr(due, "_forks", None) != forks:
                    pass  # it was made before a fork, or an interrupt left it half made
                elif getrefcount(due._hold) > _UNSHARED or (live and due.would_disturb()):  # or it is kept
                    waiting += 1
                    _queue.extend(starmap(taken.popleft, _ONCE))
                    continue
                else:
                    due.act()
            except DriverError:
                pass  # nobody asked for this call, and nothing can be done about its failure
            except (MemoryError, RecursionError):
                return
            except Exception as error:
                if from_a_signal_handler(error):
                    raise
                sys.excepthook(*sys.exc_info())
            taken.clear()
            due.keeps = ()  # not earlier: it may have to act again
            waiting = 0
            del due  # and with it the objects that its value kept, which may be due next
    except (IndexError, MemoryError):
        pass  # another thread took the last one, or there was no memory for `taken`
    finally:
        if taken:  # `extend` by an empty list may run out of memory, too
            _queue.extend(taken)


_sample = Callback(print, None)
_UNSHARED = getrefcount(_sample._hold)


def _after_fork() -> None:
    global forks
    forks += 1
    _queue.clear()
    for graph in tracked():
        graph._after_fork()


def _at_exit() -> None:
    del Finalizer.__del__
    _queue.clear()


after_fork(_after_fork)
at_exit(_at_exit)
