"""The cpu backend's streams, events and captures: what each of them holds."""

from __future__ import annotations

import threading

from ..base import CaptureMode, CaptureStatus
from .graph import Node
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


class Capture:
    """What has been recorded, and by which streams."""

    __slots__ = ("branches", "ends", "mode", "nodes", "origin", "status", "thread")

    def __init__(self, origin: Stream, mode: CaptureMode) -> None:
        self.origin: Stream = origin
        self.mode: CaptureMode = mode
        self.thread: threading.Thread = threading.current_thread()
        self.nodes: list[Node] = []
        self.ends: dict[Stream, frozenset[int]] = {}
        """The nodes that the next node of each stream will depend on."""
        self.branches: dict[Stream, int] = {}
        """A number for each stream: the branch of the graph that its nodes belong to."""
        self.status: CaptureStatus = CaptureStatus.NONE
        """NONE before the beginning and after the end: assigning it is what begins and ends the capture."""
        self.join(origin, frozenset())

    def join(self, stream: Stream, nodes: frozenset[int]) -> None:
        """Let the next node of a stream depend on these nodes, too."""
        self.ends[stream] = self.ends.get(stream, frozenset()) | nodes
        self.branches.setdefault(stream, len(self.branches))

    def clear(self) -> None:
        """Forget the streams and what was recorded."""
        self.ends = {}
        self.branches = {}
        self.nodes = []

    def forbids_waiting(self, thread: threading.Thread) -> bool:
        """Return True if `thread` must not wait even for streams that don't take part."""
        if self.status is CaptureStatus.NONE:
            return False
        return self.mode == "global" or (self.mode == "thread_local" and self.thread is thread)

    def is_joined(self) -> bool:
        """Return True if the origin has waited for all work of the forked streams."""
        last = set(range(len(self.nodes))).difference(*(node.after for node in self.nodes))
        return last <= self.ends[self.origin]
