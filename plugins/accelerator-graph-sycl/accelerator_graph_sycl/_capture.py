"""The captures in progress, and the events that lead from one stream to another."""

from __future__ import annotations

import threading
from ctypes import byref, c_uint64
from typing import Any

from accelerator_graph.errors import DriverError

from ._library import Handle, Library


class Event(Handle):
    """A point in a queue's work. `capture` is the number of the capture that it belongs to, or 0."""

    __slots__ = ("capture", "queue")

    def __init__(self, library: Library, queue: Any, capture: int) -> None:
        super().__init__(library, "delete_event")
        self.queue: Any = queue
        self.capture: int = capture


class Capture:
    """A capture that this backend began."""

    __slots__ = ("graph", "number", "origin", "recorded")

    def __init__(self, library: Library, origin: Any) -> None:
        self.graph: Handle | None = Handle(library, "delete")
        """The graph as long as the capture owns it."""
        self.number: c_uint64 = c_uint64()
        self.origin: Any = origin
        self.recorded: set[Any] = set()
        """The queues that are known to have recorded a node. The runtime crashes if others are asked."""


class Captures:
    """All captures in progress that this backend began, by number.

    The runtime lets a queue wait for an event of a capture that has ended: the queue then records into that
    capture's graph. So a wait and the end of a capture exclude each other here.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._lock = threading.RLock()
        self._open: dict[int, Capture] = {}

    def begin(self, queue: Any) -> Capture:
        """Begin a capture. If anything is raised, none has begun."""
        capture = Capture(self._library, queue)
        graph = capture.graph
        assert graph is not None
        try:
            with self._lock:
                self._library.call("begin", queue.addressof_ref(), byref(graph.slot), byref(capture.number))
                self._open[capture.number.value] = capture
        except BaseException:
            self.abandon(capture)
            raise
        return capture

    def end(self, capture: Capture) -> Handle:
        """End a capture and return its graph. If anything is raised, it has ended, too."""
        with self._lock:
            graph = capture.graph
            if graph is None:
                raise self._library.refusal("end", "other", "the capture has ended already")
            try:
                if not self._is_joined(capture, graph):
                    raise self._library.refusal("end", "unjoined")
                self._library.call("end", graph.address)
            except DriverError:
                self.abandon(capture)
                raise
            self._open.pop(capture.number.value, None)
            capture.graph = None
            return graph

    def graph_of(self, number: int) -> Handle | None:
        """Return the graph of a capture that this backend began; None for any other number."""
        capture = self._open.get(number)
        return None if capture is None else capture.graph

    def abandon(self, capture: Capture) -> None:
        """End a capture that has not ended, and discard its graph. Deleting the graph ends it."""
        with self._lock:
            self._open.pop(capture.number.value, None)
            graph, capture.graph = capture.graph, None
            if graph is not None:
                graph.close()

    def record(self, queue: Any) -> Event:
        """Return an event at the end of what a queue has enqueued, or recorded."""
        with self._lock:
            number = self._library.capture_of(queue)
            capture = self._open.get(number)
            event = Event(self._library, queue, number)
            barrier = capture is None or queue not in capture.recorded
            self._library.call("record", queue.addressof_ref(), barrier, byref(event.slot))
            if capture is not None:
                capture.recorded.add(queue)
            return event

    def wait(self, queue: Any, event: Event) -> None:
        """Let a queue wait for an event. An event of a capture takes the queue into it."""
        with self._lock:
            number = self._library.capture_of(queue)
            capture = self._open.get(event.capture)
            joins = capture is not None and number == 0
            if number != event.capture and not joins:
                raise self._library.refusal("wait_event", "foreign_capture")
            if queue != event.queue:
                graph = capture.graph if capture is not None and joins else None
                self._library.call(
                    "wait_event", queue.addressof_ref(), event.address, graph and graph.address
                )
                if capture is not None:
                    capture.recorded.add(queue)

    def _is_joined(self, capture: Capture, graph: Handle) -> bool:
        """Return True if the first queue has waited for all work of the others.

        Of queues that dpctl alone has forked, nothing is known here. The runtime waits for them.
        """
        if not capture.recorded - {capture.origin}:
            return True
        if capture.origin not in capture.recorded:
            self.record(capture.origin).close()
        return bool(self._library.ask("joined", graph.address, capture.origin.addressof_ref()))
