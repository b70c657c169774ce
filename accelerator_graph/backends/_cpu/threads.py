"""How the cpu backend starts threads, and which worker a thread works for."""

from __future__ import annotations

import sys
import threading

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
