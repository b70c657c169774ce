"""Which captures this library has under way, in the process and on the calling thread."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from .._interpreter.process import after_fork

if TYPE_CHECKING:
    from typing import Protocol

    from ..backends.base import AnyBackend as Backend
    from ..interop.base import Collective
    from .labels import Mark
    from .progress import Progress

    class Retaining(Protocol):
        """A graph, for those who keep objects alive with it."""

        def retain(self, obj: Any) -> Any:
            """Keep an object alive until the graph is reset."""

    class LiveCapture(Protocol):
        """A capture that has begun and not ended."""

        backend: Backend
        """The backend of the captured stream, even where a framework records."""
        native: Any
        """The captured stream, as the backend knows it."""
        labels: list[Mark]
        """The labels, in the order in which they began."""
        collectives: list[Collective]
        """The collectives of the captured work, in order."""
        progress: Progress | None
        """Marks which labels a replay has reached, if that was asked for."""

        def relaxed(self) -> AbstractContextManager[object]:
            """Return a context in which this thread does not disturb the capture."""

        def recorded(self) -> int | None:
            """Return how many nodes there are so far; None if that is not known."""

        def who(self) -> str:
            """Return who is capturing, and the way out: a clause for a message."""

        def thread_ended(self) -> None:
            """Abandon the capture, since its thread has ended."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.graphs: dict[int, Retaining] = {}
        self.unfinished: dict[int, LiveCapture] = {}
        self.end: object = None


live: dict[int, LiveCapture] = {}
"""Every capture under way, in all threads, by an arbitrary key. Replays in C look whether it is empty."""

thread = _Thread()
"""`thread.graphs`: the graphs that this thread is capturing by the keys of their captures, the innermost
last. The thread holds them, so the collector never takes one midway. `thread.unfinished`: their captures.
`thread.end` abandons those that are left when the thread ends."""


def disturbed_by(backend: Backend) -> bool:
    """Return True if a capture is under way on this backend."""
    return any(capture.backend is backend for capture in list(live.values()))


def _after_fork() -> None:
    live.clear()
    thread.graphs.clear()
    thread.unfinished.clear()
    thread.end = None


after_fork(_after_fork)
