"""In-order queues, and what is known of their work."""

from __future__ import annotations

import threading
from time import monotonic, sleep

import pyopencl as cl

from ._driver import check, flush, translated

_SETTLING_SECONDS = 0.01
"""How long `query` gives a queue without known work to say that it is idle."""


class Queue:
    """An in-order queue of OpenCL.

    Attributes
    ----------
    queue : pyopencl.CommandQueue
        Work that is enqueued on it directly is never recorded.
    """

    __slots__ = (
        "_known", "context", "handle", "latest", "lock", "opencl_context", "ordinal", "properties", "queue",
        "version",
    )  # fmt: skip

    def __init__(self, queue: cl.CommandQueue, ordinal: int) -> None:
        self.queue: cl.CommandQueue = queue
        self.handle: int = queue.int_ptr
        self.opencl_context: cl.Context = queue.context  # kept: Intel's runtime would not keep it usable
        self.context: int = self.opencl_context.int_ptr
        self.properties: int = int(queue.properties)
        self.ordinal: int = ordinal
        self.version: tuple[int, int] = version_of(queue.device)
        self.lock: threading.RLock = threading.RLock()
        """Held while several commands are enqueued that belong together."""
        self.latest: object = object()
        """Another object after each enqueueing. Not before: a `synchronize` may come between."""
        self._known: tuple[object, cl.Event | None] = (self.latest, None)
        """What `latest` was once, and a marker behind that work; None if the work was done."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.queue!r}>"

    def enqueued(self) -> None:
        """Note that there is new work."""
        self.latest = object()

    def mark(self) -> cl.Event:
        """Return an event that marks the present end of the queue's work."""
        with translated("clEnqueueMarkerWithWaitList"):
            event = cl.enqueue_marker(self.queue)
        self.flush()  # else another queue may wait for it for ever
        return event

    def wait(self, event: cl.Event) -> None:
        """Let later work wait for an event."""
        try:
            with translated("clEnqueueBarrierWithWaitList"):
                cl.enqueue_barrier(self.queue, wait_for=[event])
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
        known, event = self._known
        if known is self.latest and event is None:
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
        if idle or known is not latest or event is None:
            event = self.mark()
            self._known = (latest, event)
        end = monotonic() + _SETTLING_SECONDS
        while not is_complete(event):
            if not idle or monotonic() > end:
                return False
            sleep(1e-5)
        self._known = (latest, None)
        return True


def version_of(device: cl.Device) -> tuple[int, int]:
    """Return a device's version of OpenCL."""
    major, _, minor = device.version.split()[1].partition(".")  # "OpenCL 3.0 PoCL ..."
    return int(major), int(minor)


def is_complete(event: cl.Event) -> bool:
    """Return True if the work that an event stands for is done, or has failed."""
    with translated("clGetEventInfo"):
        return bool(event.command_execution_status <= cl.command_execution_status.COMPLETE)
