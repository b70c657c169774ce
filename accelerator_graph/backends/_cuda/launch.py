"""Launches an executable: the driver itself lets its runs come one after another."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from .._shared import SPECIAL_STREAMS
from ..base import LaunchFunction, SameContext
from .driver import Driver, Executable


def launcher(driver: Driver, executable: Executable, stream: Any) -> Callable[[], None]:
    """Return the launch of an executable on a stream as a callable.

    A special stream means one of the current context, so the right context has to be current.
    """
    if int(stream) in SPECIAL_STREAMS:
        return partial(_launch_in_context, driver, executable, stream)
    launch, success = driver.api.cuGraphLaunch, driver.success
    failed, broke = driver.launch_failed, driver.launch_broke
    handle = executable.handle

    def replay() -> None:
        try:
            (code,) = launch(handle, stream)
        except (RuntimeError, ValueError) as error:
            broke(error)
        else:
            if code is not success:
                failed(code)

    return replay


def launch_function(driver: Driver, executable: Executable, stream: Any) -> LaunchFunction | None:
    """Return ``cuGraphLaunch``; for a special stream, on condition that the right context is current."""
    found = driver.launch_found
    if int(stream) in SPECIAL_STREAMS:
        if not driver.current_address or not found.address:
            return None
        return _in_context(found.address, found.failed, driver.current_address, int(executable.context))
    return found if found.address else None


@lru_cache(maxsize=16)
def _in_context(address: int, failed: Callable[[int], object], current: int, context: int) -> LaunchFunction:
    """Return the launch on condition that a context is current: one object for all executables."""
    return LaunchFunction(address, failed, SameContext(current, context))


def _launch_in_context(driver: Driver, executable: Executable, stream: Any) -> None:
    with driver.current(executable.context):
        driver.call("cuGraphLaunch", executable.handle, stream)
