"""Calls of the driver of which each capture needs several: in C, where the extension was built."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from ..._interpreter.interruptions import Section

if TYPE_CHECKING:
    from typing import Protocol

    Number = Callable[..., int]

    class Driver(Protocol):
        """What the calls need of `driver.Driver`."""

        @property
        def api(self) -> Any: ...
        @property
        def success(self) -> Any: ...
        @property
        def relaxed_mode(self) -> Any: ...
        @property
        def capture_function(self) -> str: ...
        @property
        def ask_current(self) -> Number: ...
        def address(self, function: str, version: int) -> int: ...
        def call(self, function: str, *args: Any) -> Any: ...
        def keep(self, answers: list[Any], function: str, arg: Any, *before: Any) -> None: ...
        def failed(self, function: str, code: Any) -> NoReturn: ...
        def answered(self, function: str, number: int) -> NoReturn: ...
        def set_back(self, context: int) -> None: ...


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
    capture_info : callable or None
        Returns the number of a stream's capture and how many nodes it has; None if there is none or it is
        broken. None without the extension.
    relaxed : callable
        Takes a context, and returns a section that makes it current, as `Driver.current` does. Calls made
        meanwhile disturb no capture, not even this thread's.
    wait : callable
        Waits until all work on a stream is done.
    """

    __slots__ = ("capture_info", "context", "current", "relaxed", "status", "wait")

    def __init__(
        self,
        current: Number,
        context: Number,
        status: Number,
        capture_info: Callable[[Any], tuple[int, int] | None] | None,
        relaxed: Callable[[Any], Relaxed],
        wait: Callable[[Any], object],
    ) -> None:
        self.current = current
        self.context = context
        self.status = status
        self.capture_info = capture_info
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
        _capture_info(driver, extension),
        _relaxing(driver, extension),
        _waiting(driver, extension),
    )


def _capture_info(driver: Driver, extension: Any) -> Callable[[Any], tuple[int, int] | None] | None:
    with_edges = driver.address("cuStreamGetCaptureInfo", 12030)
    info = with_edges or driver.address("cuStreamGetCaptureInfo", _CUDA)
    nodes = driver.address("cuGraphGetNodes", _CUDA)
    if extension is None or not info or not nodes:
        return None

    def failed(which: int, code: int) -> NoReturn:
        driver.answered("cuGraphGetNodes" if which else driver.capture_function, code)

    made: Callable[[Any], tuple[int, int] | None] = extension.CaptureInfo(
        info, nodes, bool(with_edges), failed
    )
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

    made: Callable[[Any], Relaxed] = extension.Relaxing(*addresses, int(driver.relaxed_mode), failed)
    return made


class Relaxed(Section):
    """Makes a context current, and exchanges the thread's capture mode for the relaxed one."""

    __slots__ = ("_before", "_context", "_driver", "_mode")

    def __init__(self, driver: Driver, context: Any) -> None:
        self._driver = driver
        self._context = context
        self._before: int | None = None
        self._mode: list[tuple[Any, ...]] = []

    def begin(self) -> None:
        """Do both."""
        driver, mode = self._driver, self._mode
        current = driver.ask_current()
        if current != int(self._context):
            self._before = current
            driver.call("cuCtxSetCurrent", self._context)
        driver.keep(mode, "cuThreadExchangeStreamCaptureMode", driver.relaxed_mode)
        if mode[0][0] is not driver.success:
            driver.failed("cuThreadExchangeStreamCaptureMode", mode[0][0])

    def end(self) -> None:
        """Undo both, as far as they were done."""
        driver, mode = self._driver, self._mode
        if mode and mode[0][1] is not None:
            try:  # noqa: SIM105
                driver.api.cuThreadExchangeStreamCaptureMode(mode[0][1])
            except (RuntimeError, ValueError):
                pass
        if self._before is not None:
            driver.set_back(self._before)
