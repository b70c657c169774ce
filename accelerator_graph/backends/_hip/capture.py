"""One capture, from its begin to the graph, or to nothing."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from ctypes import byref, c_void_p
from typing import Any
from weakref import ref

from ..._interpreter.threads import this_thread
from ...errors import AcceleratorGraphError, DriverError, driver_error
from .driver import PER_THREAD_STREAM, Driver, Graph, Handle

_ILLEGAL_STATE = 401
_ACTIVE = 1
_MODES = ("global", "thread_local", "relaxed")
_RELAXED = _MODES.index("relaxed")


class Capture(Handle):
    """A capture on the stream `handle`, begun by this thread."""

    __slots__ = ("mode", "over", "thread")

    def __init__(self, handle: int, device: int, mode: int) -> None:
        super().__init__(handle, device)
        self.mode = mode
        self.over = False
        self.thread = ref(this_thread())


def begin(driver: Driver, stream: Any, mode: str) -> Capture:
    """Begin a capture. If anything is raised, there is none."""
    capture = Capture(int(stream), driver.device_of(stream), _MODES.index(mode))
    try:
        with driver.current(capture.device):
            driver.call("hipStreamBeginCapture", capture.handle, capture.mode)
        return capture
    except DriverError as error:
        # the runtime may have answered for an earlier failure, and begun; after 401 it is somebody else's
        if error.code != _ILLEGAL_STATE and _status(driver, capture):
            abandon(driver, capture)
        raise
    except BaseException:  # an interrupt, which may have come after the runtime's answer
        abandon(driver, capture)
        raise


def end(driver: Driver, capture: Capture) -> Graph:
    """End a capture and return its graph. If anything is raised, there is neither."""
    graph = c_void_p()
    codes: list[int] = []
    try:
        with driver.current(capture.device):
            _end(driver, capture, graph, codes)
        driver.checked("hipStreamEndCapture", (codes[0],))
        if not graph.value:
            raise driver_error(
                backend=driver.name,
                call="hipStreamEndCapture",
                code=None,
                code_name="no graph",
                reason="invalidated",
            )
        capture.over = True
        return Graph(graph.value, capture.device)
    except BaseException:
        if codes:
            _over(driver, capture, graph, codes[0])
        else:
            abandon(driver, capture)
        raise


def abandon(driver: Driver, capture: Capture) -> None:
    """End a capture that may be over already, on any thread, and throw away what was recorded.

    The per-thread stream of another thread can't be named at all: there is nothing to be done then.
    """
    own = capture.handle == PER_THREAD_STREAM
    if capture.over or (own and capture.thread() is not this_thread()):
        return
    graph = c_void_p()
    codes: list[int] = []
    with suppress(AcceleratorGraphError), driver.current(capture.device):
        _end(driver, capture, graph, codes)
    if not codes:  # the device could not be made current
        with suppress(AcceleratorGraphError):
            _end(driver, capture, graph, codes)
    _over(driver, capture, graph, codes[0] if codes else None)


def _end(driver: Driver, capture: Capture, graph: c_void_p, codes: list[int]) -> None:
    """Let the runtime end the capture: no line of ours comes between the call and the keeping of its code."""
    codes.extend(map(driver.function("hipStreamEndCapture"), (capture.handle,), (byref(graph),)))


def _over(driver: Driver, capture: Capture, graph: c_void_p, code: int | None) -> None:
    """Destroy the graph that the runtime may have answered; bring the stream back after a failure."""
    if code == 0:
        capture.over = True
        if graph.value:
            with suppress(AcceleratorGraphError), driver.relaxed(capture.device):
                driver.call("hipGraphDestroy", graph.value)
    else:
        for mode in (driver.relaxed(capture.device), nullcontext()):  # again, if a call of it failed as well
            with suppress(AcceleratorGraphError), mode:
                _settle(driver, capture)
        capture.over = True
        driver.clear()


def _settle(driver: Driver, capture: Capture) -> None:
    """Bring a stream back whose capture could not be ended.

    Up to HIP 7.2 a stream whose capture was invalidated stays so after its end, and the next capture on it
    loses nodes (TheRock#7869); with unjoined work, or ended by another thread, it even stays capturing, as
    do the streams that were forked from it. Beginning and ending another capture sets all that back, which
    the runtime allows once the old one is invalidated.

    One thing stays: if the capture was a global one and its thread has ended, all threads are refused
    unsafe calls until the stream is destroyed.
    """
    status = _status(driver, capture)
    if not status:
        return
    if status == _ACTIVE:
        driver.answer("hipStreamQuery", capture.handle)  # invalidates it
    if capture.mode != _RELAXED:  # a relaxed one is on none of the runtime's lists, and a second end crashes
        _end_and_destroy(driver, capture)
    if _status(driver, capture):
        driver.call("hipStreamBeginCapture", capture.handle, _RELAXED)
        _end_and_destroy(driver, capture)


def _end_and_destroy(driver: Driver, capture: Capture) -> None:
    graph = c_void_p()
    codes: list[int] = []
    _end(driver, capture, graph, codes)
    if codes == [0]:
        driver.call("hipGraphDestroy", graph.value)


def _status(driver: Driver, capture: Capture) -> int:
    """Return the status of the stream; active if the runtime does not say it."""
    with suppress(AcceleratorGraphError), driver.current(capture.device):
        status: int = driver.call("hipStreamIsCapturing", capture.handle)
        return status
    return _ACTIVE
