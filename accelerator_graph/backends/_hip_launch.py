"""Launching an executable, its runs one after another.

The runtime lets runs of one executable on different streams overlap, and they would use the same memory.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_void_p
from functools import partial

from ..errors import DriverError
from ._hip_driver import SPECIAL_STREAMS, Driver, Executable


def launcher(driver: Driver, executable: Executable, stream: int) -> Callable[[], None]:
    """Return the launch of an executable on a stream as a callable, for one thread at a time.

    The default streams are those of the device that is current, so it has to be the right one.
    """
    if stream in SPECIAL_STREAMS:
        return partial(_launch_on_device, driver, executable, stream)
    launch = driver.function("hipGraphLaunch")
    failed = partial(driver.failed, "hipGraphLaunch")
    handle, target = c_void_p(executable.handle), c_void_p(stream)

    def replay() -> None:
        if executable.stream != stream:
            _wait_for_the_last_run(driver, executable, stream)
            executable.stream = stream
        code = launch(handle, target)
        if code:
            failed(code)

    return replay


def _launch_on_device(driver: Driver, executable: Executable, stream: int) -> None:
    """Launch on a default stream. Another thread can't name that, so the end of the run is marked at once."""
    with driver.current(executable.device):
        _wait_for_the_last_run(driver, executable, stream)
        driver.call("hipGraphLaunch", executable.handle, stream)
        try:
            executable.event = driver.new_event(stream)
        except DriverError:  # an end that can't be marked is waited for
            driver.call("hipStreamSynchronize", stream)


def _wait_for_the_last_run(driver: Driver, executable: Executable, stream: int) -> None:
    """Let a stream wait for the latest run of an executable that was launched on another one."""
    with driver.current(executable.device):
        if executable.stream:
            event = _end_of(driver, executable.stream)
            try:
                if event:
                    driver.call("hipStreamWaitEvent", stream, event, 0)
            finally:
                if event:
                    driver.answer("hipEventDestroy", event)
            executable.stream = 0
        elif executable.event:
            driver.call("hipStreamWaitEvent", stream, executable.event, 0)
            event, executable.event = executable.event, 0
            driver.answer("hipEventDestroy", event)


def _end_of(driver: Driver, stream: int) -> int:
    """Mark the present end of a stream. If it is gone or capturing, its earlier work has been waited for."""
    if not driver.has_stream(stream) or driver.call("hipStreamIsCapturing", stream):
        return 0
    return driver.new_event(stream)
