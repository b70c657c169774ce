"""Events, and the streams that wait for them.

During a capture the runtime notes at each wait which stream forked which. If streams have waited for each
other, or for themselves, the runtime follows these notes for ever at the end of the capture, and the process
dies (rocm-systems#11369). So this module only passes the wait on by which a stream enters a capture, and
turns every later wait into dependencies on nodes. If an event does not belong to the waiting stream's
capture, the runtime answers success but forgets the order: this module raises an error.
"""

from __future__ import annotations

from ctypes import c_void_p
from typing import NamedTuple

from ...errors import DriverError, Reason, UnsupportedError, explain
from ..driver import LEGACY_STREAMS
from ..driver import Event as BaseEvent
from .driver import Driver

_DEVICES_TOGETHER = 7_02_00000
"""The version from which captures over two devices work: 6.4.3 crashes when it instantiates one."""
INVALIDATED = 2
_ADD = 0  # hipStreamAddCaptureDependencies


class Event(BaseEvent):
    """An event. If it was recorded in a capture, it has that capture's number and the nodes before it."""

    __slots__ = ("capture", "nodes")

    def __init__(self, handle: int, place: int, capture: int, nodes: tuple[int, ...]) -> None:
        super().__init__(handle, place)
        self.capture: int = capture
        self.nodes: tuple[int, ...] = nodes


class ExternalEvent(Event):
    """An event that crosses the border of a capture."""

    __slots__ = ()


class Position(NamedTuple):
    """Where a stream is in a capture."""

    status: int
    capture: int
    """The runtime's unique number of the capture; 0 if there is none or it is invalidated."""
    nodes: tuple[int, ...]
    """The nodes that the stream's next one will follow."""


_NOWHERE = Position(0, 0, ())


def position(driver: Driver, stream: int) -> Position:
    """Return where a stream is in a capture. The legacy stream never is in one; asking it may answer 906."""
    if stream in LEGACY_STREAMS:
        return _NOWHERE
    status, capture, _, nodes, count = driver.call("hipStreamGetCaptureInfo_v2", stream)
    if not count or not nodes:
        return Position(status, capture, ())
    return Position(status, capture, tuple((c_void_p * count).from_address(nodes)))


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
    here = position(driver, stream)
    if here.status == INVALIDATED:
        raise refused(driver, "record_event", "invalidated", explain("invalidated"))
    event = driver.new_event(stream, timed)
    return Event(event, device, here.capture, here.nodes)


def wait(driver: Driver, stream: int, event: Event) -> None:
    """Let later work on a stream wait for an event. Raises an error where the order would be lost."""
    here = position(driver, stream)
    if event.capture and stream in LEGACY_STREAMS:
        raise refused(
            driver,
            "wait_event",
            "default_stream",
            "the null stream can't wait for an event of a capture; wait on a stream of your own",
        )
    if here.status == INVALIDATED:
        raise refused(driver, "wait_event", "invalidated", explain("invalidated"))
    if here.capture != event.capture and here.capture:
        raise refused(
            driver,
            "wait_event",
            "foreign_capture",
            "the event was not recorded in the capture that the stream takes part in; record it there, or "
            "wait for it before the capture begins",
        )
    if not here.capture:
        driver.call("hipStreamWaitEvent", stream, event.handle, 0)
        if position(driver, stream).capture != event.capture:
            raise refused(
                driver,
                "wait_event",
                "foreign_capture",
                "the capture that the event was recorded in is over; wait for a replay of its graph instead",
            )
    elif event.nodes:
        nodes = (c_void_p * len(event.nodes))(*event.nodes)
        driver.call("hipStreamUpdateCaptureDependencies", stream, nodes, len(event.nodes), _ADD)


def refused(driver: Driver, call: str, reason: Reason, fact: str) -> DriverError:
    """Return the error of a call that the runtime would have accepted or not explained."""
    return DriverError(
        f"backend {driver.name!r}: {call}: {fact}.", backend=driver.name, call=call, reason=reason
    )
