"""The cpu backend's threads, and what becomes of them when the interpreter exits."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ..._interpreter.process import at_exit

if TYPE_CHECKING:
    from .stream import Worker

Notices = SimpleQueue[Callable[[], None] | None]

_EXIT_SECONDS = 1.0

here = threading.local()
"""``here.worker`` is the `Worker` whose work this thread is doing, if any."""


class WorkerThread(threading.Thread):
    """A thread that serves a queue of notices until it finds None in it.

    It is a daemon, so work that takes long, or for ever, does not delay the interpreter's exit.
    """

    def __init__(self, name: str, notices: Notices, worker: Worker | None = None) -> None:
        super().__init__(name=f"accelerator_graph {name}", daemon=True)
        self.notices = notices
        self.worker = worker

    def run(self) -> None:
        """Call each notice."""
        while (notice := self.notices.get()) is not None:
            notice()
            del notice  # what it refers to must not live until the next one comes


def start(name: str, notices: Notices, worker: Worker | None = None) -> bool:
    """Start a thread. Return False if the interpreter is exiting and starts none any more.

    Raises
    ------
    RuntimeError
        The system has no more threads.
    """
    if sys.is_finalizing():  # Python 3.11 would wait for ever for the thread to begin
        return False
    try:
        WorkerThread(name, notices, worker).start()
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        return False
    return True


@at_exit
def _finish() -> None:
    """Let work complete within a bounded time. The threads go on until the interpreter freezes them."""
    deadline = time.monotonic() + _EXIT_SECONDS
    for thread in threading.enumerate():
        if isinstance(thread, WorkerThread) and thread.worker is not None:
            thread.worker.finish(deadline)
