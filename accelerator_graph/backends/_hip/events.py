"""Events, and the streams that wait for them.

During a capture the runtime notes at each wait which stream forked which. If streams have waited for each
other, or for themselves, the runtime follows these notes for ever at the end of the capture, and the process
dies (rocm-systems#11369). So this module only passes the wait on by which a stream enters a capture, and
turns every later wait into dependencies on nodes. If an event does not belong to the waiting stream's
capture, the runtime answers success but forgets the order: this module raises an error.
"""

from __future__ import annotations

from ...errors import UnsupportedError, explain
from ..base import CaptureStatus
from ..driver import LEGACY_STREAMS, Event
from .driver import Driver

_DEVICES_TOGETHER = 7_02_00000
"""The version from which captures over two devices work: 6.4.3 crashes when it instantiates one."""


def refuse_other_device(driver: Driver, device: int, event: Event) -> None:
    """Raise `UnsupportedError` for a fork to another device where that would end the process later on."""
    if driver.version >= _DEVICES_TOGETHER or device == event.place:
        return
    raise UnsupportedError(
        "backend 'hip': HIP 6.4 crashes on a graph over two devices; capture a graph for each device, or use "
        "HIP 7.2."
    )


def record(driver: Driver, stream: int, device: int, timed: bool) -> Event:
    """Mark the present end of a stream's work."""
    here = driver.position(stream)
    if here.status is CaptureStatus.INVALIDATED:
        raise driver.refused("record_event", "invalidated", explain("invalidated"))
    event = driver.new_event(stream, timed)
    return Event(event, device, here.capture, here.nodes)


def wait(driver: Driver, stream: int, event: Event) -> None:
    """Let later work on a stream wait for an event. Raises an error where the order would be lost."""
    here = driver.position(stream)
    if event.capture and stream in LEGACY_STREAMS:
        raise driver.refused(
            "wait_event",
            "default_stream",
            "the null stream can't wait for an event of a capture; wait on a stream of your own",
        )
    if here.status is CaptureStatus.INVALIDATED:
        raise driver.refused("wait_event", "invalidated", explain("invalidated"))
    if here.capture != event.capture and here.capture:
        raise driver.refused(
            "wait_event",
            "foreign_capture",
            "the event was not recorded in the capture that the stream takes part in; record it there, or "
            "wait for it before the capture begins",
        )
    if not here.capture:
        driver.call("hipStreamWaitEvent", stream, event.handle, 0)
        if driver.position(stream).capture != event.capture:
            raise driver.refused(
                "wait_event",
                "foreign_capture",
                "the capture that the event was recorded in is over; wait for a replay of its graph instead",
            )
    elif event.nodes:
        driver.follow(stream, event.nodes, others=True)
