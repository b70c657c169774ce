"""Streams and events: what each of them holds, and what is known of a stream's work."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from time import monotonic, sleep
from typing import TYPE_CHECKING

import pyopencl as cl

from accelerator_graph.backends.recording import Stream as ExplicitStream

from ._driver import NAMES, check, flush, name_of, other_context, translated

if TYPE_CHECKING:
    from ._commands import Command

_SETTLING_SECONDS = 0.01
"""How long a queue without known work has to say that it is idle."""

_WRONG_ARGUMENTS = frozenset((-8, -53, -54, -55, -56, -63))
"""The codes for overlapping copies, and for sizes and offsets of kernels."""


class Stream(ExplicitStream):
    """An in-order queue as a stream. There is one object for each queue, however often the queue is passed.

    Attributes
    ----------
    queue : pyopencl.CommandQueue
        Work that is enqueued on it directly is never recorded.
    """

    __slots__ = (
        "_known", "context", "handle", "latest", "lock", "opencl_context",
        "ordinal", "place", "properties", "queue", "version",
    )  # fmt: skip

    def __init__(self, queue: cl.CommandQueue, ordinal: int) -> None:
        super().__init__()
        self.queue: cl.CommandQueue = queue
        self.handle: int = queue.int_ptr
        self.opencl_context: cl.Context = queue.context  # kept: Intel's runtime would not keep it usable
        self.context: int = self.opencl_context.int_ptr
        self.properties: int = int(queue.properties)
        self.ordinal: int = ordinal
        self.place: Hashable = (self.context, ordinal)
        major, _, minor = queue.device.version.split()[1].partition(".")  # "OpenCL 3.0 PoCL ..."
        self.version: tuple[int, int] = int(major), int(minor)
        self.lock: threading.RLock = threading.RLock()
        """Held while several commands are enqueued that belong together."""
        self.latest: object = object()
        """Another object after each enqueueing. Not before: a `synchronize` may come between."""
        self._known: tuple[object, cl.Event | None] = (self.latest, None)
        """What `latest` was once, and a marker behind that work; None if the work was done."""

    def __repr__(self) -> str:
        return f"<Stream of {self.queue!r}>"

    def enqueue(self, command: Command) -> None:
        """Enqueue a command. ValueError if OpenCL refuses its sizes or offsets."""
        with self.lock:
            try:
                code = command.on(self.handle)()
                if code in _WRONG_ARGUMENTS:
                    raise ValueError(f"OpenCL refuses the sizes or offsets: {name_of(code)}.")
                check(NAMES[command.kind], code)
            finally:
                self.latest = object()

    def mark(self) -> cl.Event:
        """Return an event that marks the present end of the queue's work."""
        with translated("clEnqueueMarkerWithWaitList"):
            event = cl.enqueue_marker(self.queue)
        self.flush()  # else another queue may wait for it for ever
        return event

    def follow(self, mark: cl.Event) -> None:
        """Let later work wait for an event of the same context."""
        if mark.context.int_ptr != self.context:
            detail = "streams of two contexts can't wait for each other; make one with like= the other"
            raise other_context("wait_event", detail)
        try:
            with translated("clEnqueueBarrierWithWaitList"):
                cl.enqueue_barrier(self.queue, wait_for=[mark])
        finally:
            self.latest = object()

    def flush(self) -> None:
        """Hand all enqueued work to the device."""
        check("clFlush", flush(self.handle))

    def synchronize(self) -> None:
        """Wait until all work on the queue is done."""
        latest = self.latest
        with translated("clFinish"):
            self.queue.finish()
        self._known = (latest, None)

    def unfinished(self) -> cl.Event | None:
        """Return a marker behind the known work; None if that is done."""
        if self._known == (self.latest, None):
            return None
        event = self.mark()
        return None if is_complete(event) else event

    def query(self) -> bool:
        """Return True if all work on the queue is done.

        A marker on an idle queue may take a moment to complete. The moment is granted only if no known work
        is in progress.
        """
        latest, (known, event) = self.latest, self._known
        idle = known is latest and event is None
        if known is not latest or event is None:
            event = self.mark()
            self._known = (latest, event)
        end = monotonic() + _SETTLING_SECONDS
        while not is_complete(event):
            if not idle or monotonic() > end:
                return False
            sleep(1e-5)
        self._known = (latest, None)
        return True


def is_complete(event: cl.Event) -> bool:
    """Return True if the work that an event stands for is done, or has failed."""
    with translated("clGetEventInfo"):
        return bool(event.command_execution_status <= cl.command_execution_status.COMPLETE)
