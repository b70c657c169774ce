"""Launching an executable, its runs one after another.

The runtime lets runs of one executable on different streams overlap, and they would use the same memory.
Where the latest run is, the executable knows as a stream, whose end is marked when another one has to
wait for it; of the per-thread stream, which no other thread can name, each end is marked at once.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_void_p
from functools import partial

from ...errors import CaptureError, DriverError
from ..base import LaunchFunction, SameStream
from .driver import PER_THREAD_STREAM, SPECIAL_STREAMS, Driver
from .runs import Executable


def launcher(driver: Driver, executable: Executable, stream: int) -> Callable[[], None]:
    """Return the launch of an executable on a stream as a callable, for one thread at a time.

    The default streams are those of the device that is current, so it has to be the right one.
    """
    if stream == PER_THREAD_STREAM:
        return partial(_launch_and_mark, driver, executable)
    launch = driver.function("hipGraphLaunch")
    failed = partial(driver.failed, "hipGraphLaunch")
    handle, target = c_void_p(executable.handle), c_void_p(stream)

    def replay() -> None:
        if executable.stream != stream or executable.settling:
            _wait_for_the_last_run(driver, executable, stream)
            executable.move(stream)
            _forget_mark(driver, executable)
        code = launch(handle, target)
        if code:
            failed(code)

    def replay_on_device() -> None:
        with driver.current(executable.device):
            replay()

    return replay_on_device if stream in SPECIAL_STREAMS else replay


def launch_function(driver: Driver, executable: Executable, stream: int) -> LaunchFunction | None:
    """Return the launch as a function in C: good as long as the executable has run on this stream last."""
    if stream in SPECIAL_STREAMS:
        return None
    launch, capturing = driver.address("hipGraphLaunch"), driver.address("hipStreamIsCapturing")
    if not launch or not capturing:
        return None
    failed = partial(driver.failed, "hipGraphLaunch")
    return LaunchFunction(launch, failed, SameStream(addressof(executable.latest)), capturing)


def _launch_and_mark(driver: Driver, executable: Executable) -> None:
    """Launch on the per-thread stream. An end that can't be marked is waited for."""
    with driver.current(executable.device):
        _wait_for_the_last_run(driver, executable, PER_THREAD_STREAM)
        driver.call("hipGraphLaunch", executable.handle, PER_THREAD_STREAM)
        try:
            event = driver.new_event(PER_THREAD_STREAM)
        except BaseException as error:
            driver.answer("hipStreamSynchronize", PER_THREAD_STREAM)
            if isinstance(error, DriverError):
                return
            raise
        _forget_mark(driver, executable)
        executable.event = event
        executable.move(None)


def _wait_for_the_last_run(driver: Driver, executable: Executable, stream: int) -> None:
    """Let a stream wait for the latest run of an executable, which was launched on another one."""
    if executable.stream == stream:
        return
    with driver.current(executable.device):
        if executable.stream is None:
            if executable.event:
                driver.call("hipStreamWaitEvent", stream, executable.event, 0)
            return
        event = _end_of(driver, executable.stream)
        if event:
            try:
                driver.call("hipStreamWaitEvent", stream, event, 0)
            finally:
                driver.answer("hipEventDestroy", event)


def _forget_mark(driver: Driver, executable: Executable) -> None:
    event, executable.event = executable.event, 0
    if event:
        driver.answer("hipEventDestroy", event)


def _end_of(driver: Driver, stream: int) -> int:
    """Mark the present end of a stream; 0 if it is gone: destroying it has waited for its work."""
    if stream not in SPECIAL_STREAMS:
        if not driver.has_stream(stream):
            return 0
        if driver.call("hipStreamIsCapturing", stream):
            raise CaptureError(
                f"replay: the graph's last run is on the stream {stream:#x}, which is being captured by now, "
                "so this one can't wait for it; synchronize that stream before capture_begin(), or replay "
                "on this one first.",
                reason="illegal_call",
            )
    return driver.new_event(stream)
