"""What is under way: captures, in the process and on the calling thread, and measurements."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from .._interpreter.interruptions import after_fork

if TYPE_CHECKING:
    from ..backends.base import AnyBackend as Backend
    from .capture import Capture
    from .graph import BaseGraph


class _Thread(threading.local):
    def __init__(self) -> None:
        self.graphs: dict[int, BaseGraph] = {}
        self.unfinished: dict[int, Capture] = {}
        self.between: list[Any] | None = None
        self.end: object = None


live: dict[int, Capture] = {}
"""Every capture under way, in all threads, by an arbitrary key. Replays in C look whether it is empty."""

thread = _Thread()
"""`thread.graphs`: the graphs that this thread is capturing by the keys of their captures, the innermost
last. The thread holds them, so the collector never takes one midway. `thread.unfinished`: their captures.
`thread.between`: the observations of the eager call that a capture with breaks is making. `thread.end`
abandons the captures that are left when the thread ends."""


def innermost() -> Capture | None:
    """Return the capture under way that this thread has begun last."""
    return next(reversed(thread.unfinished.values()), None)


class _Measuring(threading.local):
    depth = 0


measuring = _Measuring()
"""`measuring.depth`: in how many `measure_memory` blocks this thread is."""


def disturbed_by(backend: Backend) -> bool:
    """Return True if a capture is under way on this backend."""
    return any(capture.backend is backend for capture in list(live.values()))


def _after_fork() -> None:
    live.clear()
    thread.graphs.clear()
    thread.unfinished.clear()
    thread.between = None
    thread.end = None


after_fork(_after_fork)
