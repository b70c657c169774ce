"""Launches an executable so that its runs come one after another.

The runtime lets runs of one executable on different streams overlap, and they would use the same memory. So
the executable remembers the stream of its latest run, and when another stream has to wait for that run, an
event is recorded on the remembered stream. No other thread can name a per-thread stream: there an event is
recorded after each run.

The book of latest runs is kept by stream: all runs on a stream are over once the stream was seen to be idle.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_void_p
from functools import partial
from threading import RLock
from typing import Any
from weakref import WeakSet

from ...errors import CaptureError, DriverError
from ..base import LaunchFunction, SameStream
from ..driver import PER_THREAD_STREAM, SPECIAL_STREAMS, DriverBackend
from ..driver import Executable as BaseExecutable
from .driver import Driver

_lock = RLock()
_running: dict[int, WeakSet[Executable]] = {}
"""The executables whose latest run may be going on, by its stream. Guarded by `_lock`, as what they note."""


_NONE: WeakSet[Executable] = WeakSet()


class Executable(BaseExecutable):
    """An instantiated graph, and where its latest run ends, if it has run: on a stream or at an event."""

    __slots__ = ("__weakref__", "event", "latest", "settling", "stream")

    def __init__(self, handle: int, place: int) -> None:
        super().__init__(handle, place)
        self.stream: int | None = None
        """The stream of the latest run; None if no stream has to be waited for."""
        self.event: int = 0
        """An event at the end of the latest run, which was on the per-thread stream; 0 if there is none."""
        self.settling: object = None
        """Not None while `settle` asks about the stream. The next run has to be noted then."""
        self.latest: c_void_p = c_void_p()
        """The same as `stream`, for launches in C; null if the next run has to be noted."""

    def move(self, stream: int | None) -> None:
        """Note on which stream the latest run is; None if no stream has to be waited for."""
        with _lock:
            self.latest.value = None
            runs = _NONE if self.stream is None else _running.get(self.stream, _NONE)
            runs.discard(self)
            if self.stream is not None and not runs:  # a signal handler may have done the same meanwhile
                _running.pop(self.stream, None)
            self.stream = stream
            self.settling = None
            if stream is not None:
                _running.setdefault(stream, WeakSet()).add(self)
            self.latest.value = stream


def has_runs(stream: int) -> bool:
    """Return True if the latest run of an executable is on the stream and may be going on."""
    return bool(_running.get(stream))


def settle(stream: int, is_done: Callable[[], bool]) -> None:
    """Note that the runs on a stream are over if `is_done` says so. Runs that begin meanwhile are not."""
    mark = object()
    with _lock:
        ran = list(_running.get(stream, ()))
        for executable in ran:
            executable.latest.value = None
            executable.settling = mark
    if is_done():
        with _lock:
            for executable in ran:
                if executable.settling is mark:
                    executable.move(None)


# ---- launches ------------------------------------------------------------------------------------


def launcher(backend: DriverBackend, executable: Executable, stream: Any) -> Callable[[], None]:
    """Return the launch of an executable on a stream as a callable, for one thread at a time.

    A special stream means one of the current device, so the right device has to be current.
    """
    driver: Any = backend.driver
    number = int(stream)
    if number == PER_THREAD_STREAM:
        return partial(_launch_and_mark, driver, executable)
    launch = driver.function("hipGraphLaunch")
    failed = driver.launch_failed
    handle, target = c_void_p(executable.handle), c_void_p(number)

    def replay() -> None:
        if executable.stream != number or executable.settling:
            _wait_for_the_last_run(driver, executable, number)
            executable.move(number)
            _drop_event(driver, executable)
        code = launch(handle, target)
        if code:
            failed(code)

    return partial(driver.within, executable.place, replay) if number in SPECIAL_STREAMS else replay


def launch_function(driver: Driver, executable: Executable, stream: int) -> LaunchFunction | None:
    """Return ``hipGraphLaunch``, on condition that the latest run of the executable was on this stream."""
    if stream in SPECIAL_STREAMS:
        return None
    launch, capturing = driver.address("hipGraphLaunch"), driver.address("hipStreamIsCapturing")
    if not launch or not capturing:
        return None
    return LaunchFunction(launch, driver.launch_failed, SameStream(addressof(executable.latest)), capturing)


def _launch_and_mark(driver: Driver, executable: Executable) -> None:
    """Launch on the per-thread stream, and record an event there, or else wait for the run to end."""
    with driver.current(executable.place):
        _wait_for_the_last_run(driver, executable, PER_THREAD_STREAM)
        driver.call("hipGraphLaunch", executable.handle, PER_THREAD_STREAM)
        try:
            event = driver.new_event(PER_THREAD_STREAM)
        except BaseException as error:
            driver.answer("hipStreamSynchronize", PER_THREAD_STREAM)
            if isinstance(error, DriverError):
                return
            raise
        _drop_event(driver, executable)
        executable.event = event
        executable.move(None)


def _wait_for_the_last_run(driver: Driver, executable: Executable, stream: int) -> None:
    """Let a stream wait for the latest run of an executable, if that was launched on another stream."""
    if executable.stream == stream or (executable.stream is None and not executable.event):
        return
    with driver.current(executable.place):
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


def _drop_event(driver: Driver, executable: Executable) -> None:
    event, executable.event = executable.event, 0
    if event:
        driver.answer("hipEventDestroy", event)


def _end_of(driver: Driver, stream: int) -> int:
    """Return an event at the present end of a stream; 0 if the stream was destroyed, after its work."""
    if stream not in SPECIAL_STREAMS:
        if not driver.has_stream(stream):
            return 0
        if driver.call("hipStreamIsCapturing", stream):
            raise CaptureError(
                f"replay: the graph's last run is on the stream {stream:#x}, which is being captured now, so "
                "this stream can't wait for it; synchronize that stream before capture_begin(), or replay on "
                "this one first.",
                reason="illegal_call",
            )
    event: int = driver.new_event(stream)
    return event
