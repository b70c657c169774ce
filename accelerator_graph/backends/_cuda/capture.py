"""One capture, from its begin to the graph, or to nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from weakref import ref

from ..._interpreter.threads import this_thread
from ...errors import AcceleratorGraphError, DriverError, driver_error
from .driver import PER_THREAD_STREAM, Driver, Graph, Handle

_ILLEGAL_STATE = 401


class Capture(Handle):
    """A capture on the stream `handle`, begun by this thread."""

    __slots__ = ("over", "thread")

    def __init__(self, handle: Any, context: Any) -> None:
        super().__init__(handle, context)
        self.over = False
        self.thread = ref(this_thread())


def begin(driver: Driver, stream: Any, mode: str) -> Capture:
    """Begin a capture. If anything is raised, there is none."""
    driver_mode = getattr(driver.api.CUstreamCaptureMode, f"CU_STREAM_CAPTURE_MODE_{mode.upper()}")
    capture = Capture(stream, driver.context_of(stream))
    try:
        with driver.current(capture.context):
            driver.call("cuStreamBeginCapture", stream, driver_mode)
        return capture
    except DriverError as error:
        # the driver may have answered for an earlier failure, and begun; after 401 it is somebody else's
        if error.code != _ILLEGAL_STATE and _is_capturing(driver, capture):
            abandon(driver, capture)
        raise
    except BaseException:  # an interrupt, which may have come after the driver's answer
        abandon(driver, capture)
        raise


def end(driver: Driver, capture: Capture) -> Graph:
    """End a capture and return its graph. If anything is raised, there is neither."""
    answer: list[tuple[Any, ...]] = []
    try:
        with driver.current(capture.context):
            driver.keep(answer, "cuStreamEndCapture", capture.handle)
        handle = driver.checked("cuStreamEndCapture", answer[0])
        if not int(handle):
            raise driver_error(
                backend=driver.name,
                call="cuStreamEndCapture",
                code=None,
                code_name="no graph",
                reason="invalidated",
            )
        capture.over = True
        return Graph(handle, capture.context)
    except BaseException:
        if answer:
            _over(driver, capture, answer[0])
        else:
            abandon(driver, capture)
        raise


def abandon(driver: Driver, capture: Capture) -> None:
    """End a capture that may be over already, on any thread, and throw away what was recorded.

    Outside relaxed mode the driver keeps the graph from other threads, but ends the capture. The
    per-thread stream of another thread can't be named at all: there is nothing to be done then.
    """
    own = int(capture.handle) == PER_THREAD_STREAM
    if capture.over or (own and capture.thread() is not this_thread()):
        return
    answer: list[tuple[Any, ...]] = []
    with suppress(AcceleratorGraphError), driver.current(capture.context):
        driver.keep(answer, "cuStreamEndCapture", capture.handle)
    if not answer:  # the context could not be made current
        with suppress(AcceleratorGraphError):
            driver.keep(answer, "cuStreamEndCapture", capture.handle)
    _over(driver, capture, answer[0] if answer else (None, None))


def _is_capturing(driver: Driver, capture: Capture) -> bool:
    """Say whether the stream captures; True if the driver does not say it."""
    with suppress(AcceleratorGraphError), driver.current(capture.context):
        status = driver.call("cuStreamIsCapturing", capture.handle)
        return int(status) != 0  # CU_STREAM_CAPTURE_STATUS_NONE
    return True


def _over(driver: Driver, capture: Capture, answer: tuple[Any, ...]) -> None:
    """Note that the driver has ended a capture, and destroy the graph that it may have answered."""
    capture.over = True
    graph = answer[1]
    if graph is not None and int(graph):
        with suppress(AcceleratorGraphError), driver.relaxed(capture.context):
            driver.call("cuGraphDestroy", graph)
