"""The cpu backend's streams: a queue of work each, and a thread that does it in order.

Signals come at any time. Locks are re-entrant, since a handler may call the library again, and taken
by ``with`` alone; nothing waits on a `threading.Condition` or `threading.Event`, since a
KeyboardInterrupt inside those can leave their inner lock taken for ever.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from .._process import at_exit
from ..errors import DriverError, driver_error

if TYPE_CHECKING:
    from ._cpu_capture import Capture

_EXIT_SECONDS = 1.0

here = threading.local()
"""``here.worker`` is the `Worker` whose work this thread is doing, if any."""


class Latch:
    """Something that happens once, and that can be waited for."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Let everyone pass who waits, or will."""
        self._lock.release()

    def wait(self) -> None:
        """Wait until it is set. A signal interrupts that and leaves the latch as it was."""
        with self._lock:
            pass


class WorkerThread(threading.Thread):
    """A thread that serves a queue of notices until it finds None in it.

    The interpreter's exit asks all of them to stop and waits for a bounded time. They are daemons,
    so work that goes on for longer, or for ever, holds up nobody.
    """

    def __init__(self, name: str, notices: SimpleQueue[Callable[[], None] | None]) -> None:
        super().__init__(name=f"accelerator_graph {name}", daemon=True)
        self.notices = notices

    def run(self) -> None:
        """Call each notice."""
        while (notice := self.notices.get()) is not None:
            notice()
            del notice  # what it refers to must not live until the next one comes


@at_exit
def _stop_all() -> None:
    threads = [thread for thread in threading.enumerate() if isinstance(thread, WorkerThread)]
    for thread in threads:
        thread.notices.put(None)
    deadline = time.monotonic() + _EXIT_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


class Worker:
    """Work in order, on a thread that starts with the first of it."""

    __slots__ = ("_failure", "_lock", "_notices", "_pending")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pending: deque[Callable[[], object]] = deque()  # the first is being done: it leaves when done
        self._notices: SimpleQueue[Callable[[], None] | None] | None = None  # None: no thread yet
        self._failure: BaseException | None = None

    def submit(self, work: Callable[[], object]) -> None:
        """Do `work` after all that was submitted before."""
        notices = self._notices or self._start()
        self._pending.append(work)
        notices.put(self._drain)

    def idle(self) -> bool:
        """Say whether everything has been done."""
        return not self._pending

    def mark(self) -> Latch:
        """Return a latch that is set when all that was submitted before has been done."""
        latch = Latch()
        if self._pending:
            self.submit(latch.set)
        else:
            latch.set()
        return latch

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
        self.mark().wait()
        failure = self._take_failure()
        if failure is not None:
            said = f"a callable raised {type(failure).__name__}; the rest of its replay, if any, was skipped"
            raise driver_error(
                backend="cpu", call="launch", code=None, code_name="WORK_FAILED", detail=said
            ) from failure

    def stop(self) -> None:
        """End the thread when all that was submitted has been done. Never waits."""
        if self._notices is not None:
            self.submit(self._take_failure)  # its traceback leads back to this object
            self._notices.put(None)

    def _start(self) -> SimpleQueue[Callable[[], None] | None]:
        with self._lock:
            if self._notices is None:
                notices: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
                try:
                    WorkerThread("cpu stream", notices).start()
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
            while self._pending:
                try:
                    self._pending[0]()
                except BaseException as error:  # SystemExit too: the thread belongs to the stream
                    self._failed(error)
                self._pending.popleft()
        finally:
            del here.worker

    def _failed(self, error: BaseException) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = error

    def _take_failure(self) -> BaseException | None:
        with self._lock:
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
