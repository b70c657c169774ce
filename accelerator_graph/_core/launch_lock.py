"""The lock that launches of an executable hold, from the moment when the executable is to be changed."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

from .ownership import drain

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from threading import Event

    from .replay import Runner

_PATIENCE = 0.1
"""Seconds to wait for launches that began before the executable had a lock."""


def launch_lock(runner: Runner) -> AbstractContextManager[object] | None:
    """Return the lock of the executable, which every launch holds from now on.

    None if a launch that began without the lock goes on for long. The caller must not hold the executable.
    """
    assert runner.executable is not None
    if runner.executable.lock is None:
        runner.connect(runner.executable.locked())
    if not _is_over(runner.executable.former):
        gc.collect()  # a cycle of garbage, such as an exception, may hold the former executable
        if not _is_over(runner.executable.former):
            return None
    lock: AbstractContextManager[object] | None = runner.executable.lock
    return lock


def _is_over(former: Event | None) -> bool:
    """Return True if, within some time, no launch is under way any more that began without the lock."""
    end = time.monotonic() + _PATIENCE
    while former is not None and not former.is_set():
        drain()
        if time.monotonic() > end:
            return False
        time.sleep(0)
    return True
