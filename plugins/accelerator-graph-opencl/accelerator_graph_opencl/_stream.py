"""Streams and events: what each of them holds."""

from __future__ import annotations

import pyopencl as cl

from accelerator_graph.backends.recording import Capture
from accelerator_graph.errors import DriverError, driver_error

from ._commands import Command
from ._queue import Queue

_WRONG_ARGUMENTS = frozenset((-8, -53, -54, -55, -56, -63))
"""The codes for overlapping copies, and for sizes and offsets of kernels."""


class Stream(Queue):
    """A queue as a stream. There is one object for each queue, however often the queue is passed."""

    __slots__ = ("__weakref__", "capture")

    def __init__(self, queue: cl.CommandQueue, ordinal: int) -> None:
        super().__init__(queue, ordinal)
        self.capture: Capture | None = None
        """The capture that the stream takes part in. A capture that has ended counts as none."""

    def enqueue(self, command: Command) -> None:
        """Enqueue a command. ValueError if OpenCL refuses its sizes or offsets."""
        with self.lock:
            try:
                command.enqueue(self.handle)
            except DriverError as error:
                if error.code in _WRONG_ARGUMENTS:
                    raise ValueError(f"OpenCL refuses the sizes or offsets: {error}") from error
                raise
            finally:
                self.enqueued()

    def record(self) -> Event:
        """Return an event for the present end of the work."""
        return Event(self, self.mark())

    def follow(self, event: Event) -> None:
        """Let later work wait for an event that was recorded outside of captures."""
        if event.context != self.context:
            raise driver_error(
                backend="opencl",
                call="wait_event",
                code=None,
                code_name="CL_INVALID_CONTEXT",
                detail="streams of two contexts can't wait for each other; make one with like= the other",
            )
        if event.marker is not None:
            self.wait(event.marker)


class Event:
    """A point in a stream's work: a marker or, if the stream was capturing, nodes of that capture."""

    __slots__ = ("capture", "context", "marker", "nodes")

    def __init__(
        self,
        stream: Stream,
        marker: cl.Event | None = None,
        capture: Capture | None = None,
        nodes: frozenset[int] = frozenset(),
    ) -> None:
        self.context: int = stream.context
        self.marker: cl.Event | None = marker
        self.capture: Capture | None = capture
        self.nodes: frozenset[int] = nodes
