"""The lock that launches of an executable hold, from the moment when the executable is to be changed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .ownership import drain

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from .replay import Runner

_PATIENCE = 0.1
"""Seconds to wait for launches that began before the executable had a lock."""


def launch_lock(runner: Runner) -> AbstractContextManager[object] | None:
    """Return the lock of the executable, which every launch holds from now on.

    None if a launch that began without the lock goes on for long. The caller must not hold the executable.
    """
    assert runner.executable is not None
    if runner.executable.lock is None:
        over, locked = runner.executable.locked()
        runner.connect(locked)
        end = time.monotonic() + _PATIENCE
        while not over.is_set():
            drain()
            if time.monotonic() > end:
                return None
            time.sleep(0)
    lock: AbstractContextManager[object] | None = runner.executable.lock
    return lock
