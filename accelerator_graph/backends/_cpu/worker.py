"""What stands behind a stream of the cpu backend: a queue of work, and a thread that does it in order.

A signal may arrive at any time. Locks are re-entrant, since a signal handler may call the library again,
and are only taken by ``with``. Nothing waits on a `threading.Condition` or a `threading.Event`: a
KeyboardInterrupt inside those can leave their inner lock taken for ever.

When the interpreter exits, it starts no more threads, and later it freezes the existing ones. From then on
`Worker.deserted` is true, and the thread that waits for the work does it.
"""

from __future__ import annotations

import operator
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from ..._interpreter.interruptions import at_exit
from ...errors import DriverError, driver_error
from .work import Failure

here = threading.local()
"""``here.worker`` is the `Worker` whose work this thread is doing, if any."""


def start(thread: threading.Thread) -> bool:
    """Start a thread. Return False if the interpreter exits and starts no more threads.

    Raises
    ------
    RuntimeError
        The system has no more threads.
    """
    if sys.is_finalizing():  # Python 3.11 would wait for ever for the thread to begin
        return False
    try:
        thread.start()
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        return False
    return True


_EXIT_SECONDS = 1.0
"""How long the interpreter's exit waits for work to complete."""

_POLL_SECONDS = 0.01
"""How often a thread that waits for a deserted worker looks whether another thread has done the work."""


class Stopped(Exception):
    """The interpreter's exit has frozen a thread in the middle of its work."""


class Latch:
    """A point in a worker's queue that others can wait for."""

    __slots__ = ("_lock", "failure", "is_set", "time", "worker")

    def __init__(self, worker: Worker) -> None:
        self.worker: Worker = worker
        self.is_set: bool = False
        self.failure: Failure | None = None
        """The worker's failure at that point, which streams that wait for the latch take over."""
        self.time: int = 0
        """When the worker reached it, in nanoseconds."""
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self) -> None:
        """Be reached by the worker: as a piece of its work."""
        self.failure = self.worker._failure
        self.time = time.perf_counter_ns()
        self.set()

    def set(self) -> None:
        """Let all threads pass that wait now or later."""
        self.is_set = True
        self._lock.release()

    def wait(self) -> None:
        """Wait until it is set. A signal can interrupt the wait, and the latch stays as it was."""
        if self.is_set:
            return
        if self.worker.deserted:
            self.worker.stand_in(self)
        else:
            with self._lock:
                pass

    def synchronize(self) -> None:
        """Wait for the work before it. Its failures are left to the stream."""
        if not self.is_set and getattr(here, "worker", None) is self.worker:
            raise _would_deadlock("synchronize")
        self.worker._wait(self, "synchronize")

    def query(self) -> bool:
        """Return True if the work before it is done. Its failures are left to the stream."""
        if not self.is_set and self.worker.deserted:
            self.worker._wait(self, "query")  # no other thread would do the work before it
        return self.is_set

    def wait_until(self, deadline: float) -> None:
        """Wait until it is set, or `time.monotonic` reaches `deadline`."""
        if self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._lock.release()


class Worker:
    """Does work in order, on a thread that starts with the first piece."""

    __slots__ = ("_failure", "_lock", "_pending", "_turn", "_wake")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._turn = threading.Lock()  # held by the thread that does the work
        self._pending: deque[Callable[[], object]] = deque()  # the first entry leaves when it has been done
        self._wake: SimpleQueue[bool] | None = None  # None: the thread has not been started
        self._failure: Failure | None = None

    def submit(self, work: Callable[[], object]) -> None:
        """Do `work` after everything that was submitted before."""
        wake = self._wake or self._start()
        if wake is None:
            self._pending.append(work)
        else:  # at once: after an interrupt in between, the thread would sleep beside its work
            calls: tuple[Callable[[Any], object], ...] = self._pending.append, wake.put
            any(map(operator.call, calls, (work, True)))

    def submission(self, work: Callable[[], object]) -> tuple[Callable[[], object], ...]:
        """Return calls, of functions of C, that do what `submit` does."""
        wake = self._wake or self._start()
        woken = () if wake is None else (partial(wake.put, True),)
        return partial(self._pending.append, work), *woken

    def follow(self, latch: Latch) -> None:
        """Wait for a latch before doing what is submitted later, and take over its failure."""
        self.submit(partial(self._follow, latch))

    def mark(self) -> Latch:
        """Return a latch that is set when everything that was submitted before has been done."""
        latch = Latch(self)
        if self._pending:
            self.submit(latch)
        else:
            latch()
        return latch

    def query(self) -> bool:
        """Return True if everything has been done; raise the first failure that was not raised yet."""
        if not self._is_done():
            if not self.deserted:
                return False
            self._wait(self.mark(), "query")  # no other thread would do it
        self._raise_failure()
        return True

    def synchronize(self) -> None:
        """Wait until everything has been done; raise the first failure that was not raised yet."""
        if getattr(here, "worker", None) is self:
            raise _would_deadlock("synchronize")
        self._wait(self.mark(), "synchronize")
        self._raise_failure()

    def finish(self, deadline: float) -> None:
        """Wait until everything has been done or the deadline has passed; report a failure."""
        self.mark().wait_until(deadline)
        if self._failure is not None:
            self._failure.report()

    def stop(self) -> None:
        """End the thread when everything that was submitted has been done. Never waits."""
        if self._wake is not None:
            self.submit(self._take_failure)  # the failure's traceback leads back to this object
            self._wake.put(False)

    @property
    def deserted(self) -> bool:
        """True if no thread will do the pending work, since the interpreter exits."""
        return self._wake is None or sys.is_finalizing()

    def stand_in(self, latch: Latch) -> None:
        """Do a deserted worker's work on the calling thread, until the latch is set.

        Raises
        ------
        Stopped
            A frozen thread is in the middle of this work.
        """
        before = getattr(here, "worker", None)
        while not latch.is_set:
            if self._turn.acquire(timeout=0 if sys.is_finalizing() else _POLL_SECONDS):
                here.worker = self
                try:
                    if self._pending:
                        self._do_next()
                finally:
                    here.worker = before
                    self._turn.release()
            elif sys.is_finalizing():
                raise Stopped

    def drain(self) -> None:
        """Do all pending work on the calling thread."""
        with self._turn:
            while self._pending:
                self._do_next()

    def _start(self) -> SimpleQueue[bool] | None:
        with self._lock:
            if self._wake is None:
                wake: SimpleQueue[bool] = SimpleQueue()
                try:
                    if start(WorkerThread(self, wake)):
                        self._wake = wake
                except BaseException as error:
                    wake.put(False)  # an interrupt, or a lack of stack, may come after the thread has begun
                    if not isinstance(error, RuntimeError) or isinstance(error, RecursionError):
                        raise
                    raise driver_error(
                        backend="cpu", call="launch", code=None, code_name="NO_THREAD", detail=str(error)
                    ) from error
            return self._wake

    def _is_done(self) -> bool:
        """Return True if at most a latch is left that was reached, and not yet taken off the queue."""
        try:
            last = self._pending[-1]
        except IndexError:
            return True
        return isinstance(last, Latch) and last.is_set

    def _do_next(self) -> None:
        try:
            self._pending[0]()
        except Stopped:
            raise  # this work stays pending, and so does what comes after it
        except Failure as failure:
            self._failed(failure)
        except BaseException as error:  # SystemExit too: the thread belongs to the stream
            self._failed(Failure(error))
        self._pending.popleft()

    def _failed(self, failure: Failure) -> None:
        failure.__traceback__ = None  # it leads back to this object
        first = self._failure  # read once: another thread may take it meanwhile
        if first is None or first.told:
            self._failure = failure
        else:
            first.add(failure)

    def _follow(self, latch: Latch) -> None:
        latch.wait()
        if self._failure is None or self._failure.told:
            self._failure = latch.failure

    def _wait(self, latch: Latch, call: str) -> None:
        try:
            latch.wait()
        except Stopped:
            detail = (
                "the interpreter's exit has stopped the stream's thread in the middle of its work; "
                "synchronize the stream before the program ends"
            )
            raise driver_error(
                backend="cpu", call=call, code=None, code_name="THREAD_STOPPED", detail=detail
            ) from None

    def _raise_failure(self) -> None:
        failure = self._take_failure()
        if failure is not None and not failure.told:
            raise failure.as_error()

    def _take_failure(self) -> Failure | None:
        failure, self._failure = self._failure, None
        return failure


class WorkerThread(threading.Thread):
    """The thread of a worker. As a daemon it never delays the interpreter's exit."""

    def __init__(self, worker: Worker, wake: SimpleQueue[bool]) -> None:
        super().__init__(name="accelerator_graph cpu stream", daemon=True)
        self.worker = worker
        self._wake = wake

    def run(self) -> None:
        """Work whenever there is something to do."""
        here.worker = self.worker
        while self._wake.get():
            self.worker.drain()


@at_exit
def _finish() -> None:
    """Let work complete within a bounded time. The threads go on until the interpreter freezes them."""
    deadline = time.monotonic() + _EXIT_SECONDS
    for thread in threading.enumerate():
        if isinstance(thread, WorkerThread):
            thread.worker.finish(deadline)


def _would_deadlock(call: str) -> DriverError:
    return DriverError(
        "backend 'cpu': a callable can't synchronize the stream that it runs on, since it would wait for "
        "itself; synchronize from another thread.",
        backend="cpu",
        call=call,
        code_name="WOULD_DEADLOCK",
        reason="illegal_call",
    )
