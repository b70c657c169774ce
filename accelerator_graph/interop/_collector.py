"""The cyclic garbage collector, paused while a capture is under way.

Left on, it comes upon dead graphs, streams and arrays of anybody's at any line of the captured code, and to
destroy these is refused in a capture and breaks it, or is recorded in it.
"""

from __future__ import annotations

import gc
import os
import threading

_captures: set[object] = set()
_ours = False
"""It was on, and will be again."""
_lock = threading.RLock()


def pause(capture: object) -> None:
    """Switch the collector off, in all threads, until nothing is captured any more. Again: nothing."""
    global _ours
    with _lock:
        _ours = _ours and bool(_captures)
        _captures.add(capture)
        if gc.isenabled():
            _ours = True
            gc.disable()


def resume(capture: object) -> None:
    """Say that a capture is over; after the last one the collector is on if it was before. Again: nothing."""
    global _ours
    with _lock:
        _captures.discard(capture)
        if _ours and not _captures:
            gc.enable()
            _ours = False


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()
    for capture in list(_captures):
        resume(capture)


os.register_at_fork(after_in_child=_after_fork)
