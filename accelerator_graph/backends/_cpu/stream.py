"""The cpu backend's streams and events: what each of them holds."""

from __future__ import annotations

from ..recording import Capture
from .worker import Latch, Worker


class Stream:
    """A stream. Its thread ends after `Worker.stop`."""

    __slots__ = ("__weakref__", "capture", "worker")

    def __init__(self) -> None:
        self.worker: Worker = Worker()
        self.capture: Capture | None = None
        """The capture that the stream takes part in. A capture that has ended counts as none."""


class Event:
    """A point in a stream's work: a latch or, if the stream was capturing, nodes of that capture."""

    __slots__ = ("capture", "latch", "nodes")

    def __init__(
        self,
        latch: Latch | None = None,
        capture: Capture | None = None,
        nodes: frozenset[int] = frozenset(),
    ) -> None:
        self.latch: Latch | None = latch
        self.capture: Capture | None = capture
        self.nodes: frozenset[int] = nodes
