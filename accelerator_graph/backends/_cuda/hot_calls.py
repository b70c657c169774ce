"""Calls of the driver of which each capture needs several: in C, where the extension was built."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from ..driver import Relaxed

if TYPE_CHECKING:
    from .driver import Driver

    Number = Callable[..., int]
    Capture = Callable[[Any], tuple[int, int] | None]

_RELAXING = ("cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode")
"""The functions that `Relaxed` calls, numbered as in `fast/relaxed.h`."""

_CUDA = 12000
"""The version of CUDA whose functions are called."""


class HotCalls:
    """The calls. Those in C do the same as those in Python.

    Attributes
    ----------
    current : callable
        Returns the address of the current context; 0 if there is none.
    context : callable
        Returns the number of a context, which no other context ever gets.
    status : callable
        Returns the capture status of a stream.
    capture : callable
        Returns the number of a stream's capture and how many nodes it has; None if there is none or it is
        broken.
    relaxed : callable
        Takes a context, and returns a section that makes it current, as `Driver.current` does. Calls made
        meanwhile disturb no capture, not even this thread's.
    wait : callable
        Waits until all work on a stream is done.
    """

    __slots__ = ("capture", "context", "current", "relaxed", "status", "wait")

    def __init__(
        self,
        current: Number,
        context: Number,
        status: Number,
        capture: Capture,
        relaxed: Callable[[Any], Relaxed],
        wait: Callable[[Any], object],
    ) -> None:
        self.current = current
        self.context = context
        self.status = status
        self.capture = capture
        self.relaxed = relaxed
        self.wait = wait


def hot_calls(driver: Driver, extension: Any) -> HotCalls:
    """Return the calls, in C if there is an extension and the driver reports the addresses."""

    def asking(function: str) -> Number:
        address = driver.address(function, _CUDA)
        if extension is None or not address:
            return lambda *handle: int(driver.call(function, *handle))
        made: Number = extension.Ask(address, partial(driver.answered, function))
        return made

    return HotCalls(
        asking("cuCtxGetCurrent"),
        asking("cuCtxGetId"),
        asking("cuStreamIsCapturing"),
        _capture(driver, extension),
        _relaxing(driver, extension),
        _waiting(driver, extension),
    )


def _capture(driver: Driver, extension: Any) -> Capture:
    with_edges = driver.address("cuStreamGetCaptureInfo", 12030)
    info = with_edges or driver.address("cuStreamGetCaptureInfo", _CUDA)
    nodes = driver.address("cuGraphGetNodes", _CUDA)
    if extension is None or not info or not nodes:
        return driver.capture_info

    def failed(which: int, code: int) -> NoReturn:
        driver.answered(driver.names.nodes if which else driver.capture_function, code)

    made: Capture = extension.CaptureInfo(info, nodes, bool(with_edges), failed)
    return made


def _waiting(driver: Driver, extension: Any) -> Callable[[Any], object]:
    function = "cuStreamSynchronize"
    address = driver.address(function, _CUDA)
    if extension is None or not address:
        return partial(driver.call, function)
    made: Callable[[Any], object] = extension.Ask(address, partial(driver.answered, function), waits=True)
    return made


def _relaxing(driver: Driver, extension: Any) -> Callable[[Any], Relaxed]:
    addresses = [driver.address(function, _CUDA) for function in _RELAXING]
    if extension is None or not all(addresses):
        return partial(Relaxed, driver)

    def failed(which: int, code: int) -> NoReturn:
        driver.answered(_RELAXING[which], code)

    made: Callable[[Any], Relaxed] = extension.Relaxing(
        *addresses, int(driver.capture_modes["relaxed"]), failed
    )
    return made
