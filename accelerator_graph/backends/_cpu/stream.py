"""The cpu backend's streams: a queue of work each, and a thread that does it in order.

Signals come at any time. Locks are re-entrant, since a handler may call the library again, and taken
by ``with`` alone; nothing waits on a `threading.Condition` or `threading.Event`, since a
KeyboardInterrupt inside those can leave their inner lock taken for ever.

When the interpreter exits, it starts no more threads, and later it freezes those that there are. Then
`Worker.deserted` is true, and the work is done by the thread that waits for it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ...errors import DriverError, driver_error
from .threads import Notices, here, start
from .work import Failure

if TYPE_CHECKING:
    from .capture import Capture

_GLANCE = 0.01
"""Seconds between two looks at what another thread does for a deserted worker."""


class Stopped(Exception):
    """The exit of the interpreter has frozen a thread in the middle of the work that is waited for."""


class Latch:
    """Something that a worker does once, and that can be waited for."""

    __slots__ = ("_lock", "failure", "is_set", "worker")

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.is_set = False
        self.failure: Failure | None = None
        """The worker's failure at that time. Everyone who waits has to be told of it."""
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Let everyone pass who waits, or will."""
        self.is_set = True
        self._lock.release()

    def wait(self) -> None:
        """Wait until it is set. A signal interrupts that and leaves the latch as it was."""
        if self.is_set:
            return
        if self.worker.deserted:
            self.worker.stand_in(self)
        else:
            with self._lock:
                pass

    def wait_until(self, deadline: float) -> None:
        """Wait, but at most until `time.monotonic` reaches `deadline`."""
        if self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._lock.release()


class Worker:
    """Work in order, on a thread that starts with the first of it."""

    __slots__ = ("_failure", "_lock", "_notices", "_pending", "_turn")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._turn = threading.Lock()  # held by the thread that does the work
        self._pending: deque[Callable[[], object]] = deque()  # the first is being done: it leaves when done
        self._notices: Notices | None = None  # None: no thread yet
        self._failure: Failure | None = None

    def submit(self, work: Callable[[], object]) -> None:
        """Do `work` after all that was submitted before."""
        notices = self._notices or self._start()
        self._pending.append(work)
        if notices is not None:
            notices.put(self._drain)

    def follow(self, latch: Latch) -> None:
        """Wait for a latch before all that is submitted later, and pass its failure on."""
        self.submit(partial(self._follow, latch))

    def mark(self) -> Latch:
        """Return a latch that is set when all that was submitted before has been done."""
        latch = Latch(self)
        if self._pending:
            self.submit(partial(self._reach, latch))
        else:
            self._reach(latch)
        return latch

    def query(self) -> bool:
        """Return True if everything has been done; raise the first failure since the last time."""
        if self._pending:
            if not self.deserted:
                return False
            self._wait("query")  # nobody else does it
        self._tell()
        return True

    def synchronize(self) -> None:
        """Wait until everything has been done; raise the first failure since the last time."""
        if getattr(here, "worker", None) is self:
            raise DriverError(
                "backend 'cpu': a callable can't synchronise the stream that it runs on, it would wait for "
                "itself; synchronise from another thread.",
                backend="cpu",
                call="synchronize",
                code_name="WOULD_DEADLOCK",
                reason="illegal_call",
            )
        self._wait("synchronize")
        self._tell()

    def finish(self, deadline: float) -> None:
        """Wait until everything has been done, for a bounded time, and report a failure."""
        self.mark().wait_until(deadline)
        if self._failure is not None:
            self._failure.report()

    def stop(self) -> None:
        """End the thread when all that was submitted has been done. Never waits."""
        if self._notices is not None:
            self.submit(self._take_failure)  # its traceback leads back to this object
            self._notices.put(None)

    @property
    def deserted(self) -> bool:
        """True if no thread will do the work that is there, since the interpreter exits."""
        return self._notices is None or sys.is_finalizing()

    def stand_in(self, latch: Latch) -> None:
        """Do the work of a deserted worker on the calling thread, until the latch is set.

        Raises
        ------
        Stopped
            A frozen thread is in the middle of it.
        """
        before = getattr(here, "worker", None)
        while not latch.is_set:
            if self._turn.acquire(timeout=0 if sys.is_finalizing() else _GLANCE):
                here.worker = self
                try:
                    if self._pending:
                        self._do_next()
                finally:
                    here.worker = before
                    self._turn.release()
            elif sys.is_finalizing():
                raise Stopped

    def _start(self) -> Notices | None:
        with self._lock:
            if self._notices is None:
                notices: Notices = SimpleQueue()
                try:
                    if start("cpu stream", notices, self):
                        self._notices = notices
                except RuntimeError as error:
                    raise driver_error(
                        backend="cpu", call="launch", code=None, code_name="NO_THREAD", detail=str(error)
                    ) from error
                except BaseException:  # a KeyboardInterrupt, after the thread has begun
                    notices.put(None)
                    raise
            return self._notices

    def _drain(self) -> None:
        here.worker = self
        try:
            with self._turn:
                while self._pending:
                    self._do_next()
        finally:
            del here.worker

    def _do_next(self) -> None:
        try:
            self._pending[0]()
        except Stopped:
            raise  # what comes next has to wait for the same
        except Failure as failure:
            self._failed(failure)
        except BaseException as error:  # SystemExit too: the thread belongs to the stream
            self._failed(Failure(error))
        self._pending.popleft()

    def _failed(self, failure: Failure) -> None:
        failure.__traceback__ = None  # leads back to this object
        first = self._failure  # which another thread may take meanwhile
        if first is None:
            self._failure = failure
        else:
            first.add(failure)

    def _reach(self, latch: Latch) -> None:
        latch.failure = self._failure
        latch.set()

    def _follow(self, latch: Latch) -> None:
        latch.wait()
        if self._failure is None:
            self._failure = latch.failure

    def _wait(self, call: str) -> None:
        try:
            self.mark().wait()
        except Stopped:
            said = (
                "the interpreter's exit has stopped the stream's thread in the middle of its work; "
                "synchronize the stream before the program ends"
            )
            raise driver_error(
                backend="cpu", call=call, code=None, code_name="THREAD_STOPPED", detail=said
            ) from None

    def _tell(self) -> None:
        failure = self._take_failure()
        if failure is not None:
            try:
                raise failure.as_error()
            finally:
                del failure  # the error's traceback leads to this frame

    def _take_failure(self) -> Failure | None:
        failure, self._failure = self._failure, None
        return failure


class Stream:
    """A stream of the cpu backend. Its thread ends after `Worker.stop`."""

    __slots__ = ("__weakref__", "capture", "worker")

    def __init__(self) -> None:
        self.worker = Worker()
        self.capture: Capture | None = None
        """The capture that it takes part in; one that has ended means none."""


class Event:
    """A mark in a stream's work: a latch, or if the stream was capturing, nodes of that capture."""

    __slots__ = ("capture", "latch", "nodes")

    def __init__(
        self,
        latch: Latch | None = None,
        capture: Capture | None = None,
        nodes: frozenset[int] = frozenset(),
    ) -> None:
        self.latch = latch
        self.capture = capture
        self.nodes = nodes
