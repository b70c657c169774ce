"""Captures that could not be ended, whose streams are made usable again; and graphs that are no children."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Any

from ...errors import AcceleratorGraphError, UnsupportedError
from ..base import Capability
from ..driver import ACTIVE, Capture
from .driver import Driver
from .nodes import node_handles

_ALLOCATING = frozenset(("mem_alloc", "mem_free"))


def reset(driver: Driver, capture: Capture) -> None:
    """Reset the stream of a capture that the runtime did not end."""
    # A second time, since a call for the relaxed mode may have failed.
    for mode in (driver.relaxed(capture.place), nullcontext()):
        with suppress(AcceleratorGraphError), mode:
            _reset_stream(driver, capture)
    driver.clear()


def _reset_stream(driver: Driver, capture: Capture) -> None:
    """Make a stream usable again whose capture could not be ended.

    Up to HIP 7.2 a stream whose capture was invalidated stays invalidated after the end, and the next capture
    on it loses nodes (TheRock#7869). After unjoined work, or an end by another thread, the stream and its
    forks even stay capturing. Beginning and ending another capture resets all of them; the runtime allows
    that once the old capture is invalidated.

    One effect remains: if the capture was global and its thread has ended, the runtime refuses unsafe calls
    on all threads until the stream is destroyed.
    """
    status = driver.status_of(capture)
    if not status:
        return
    if status == ACTIVE:
        driver.answer("hipStreamQuery", capture.handle)  # invalidates it
    if capture.mode != "relaxed":  # the runtime keeps no list of relaxed captures; a second end would crash
        _end_and_destroy(driver, capture)
    if driver.status_of(capture):
        driver.call("hipStreamBeginCapture", capture.handle, driver.capture_modes["relaxed"])
        _end_and_destroy(driver, capture)


def _end_and_destroy(driver: Driver, capture: Capture) -> None:
    answers: list[Any] = []
    driver.keep(answers, "hipStreamEndCapture", capture.handle)
    code, graph = answers[0]
    if not code:
        driver.call("hipGraphDestroy", int(graph))


def refuse_allocations(driver: Driver, graph: int) -> None:
    """Raise `UnsupportedError` for a graph that allocates or frees memory.

    The runtime takes such graphs inside others, and CUDA's driver does not. Their memory would be that of two
    executables.
    """
    from .node import kind_of

    kinds = {kind_of(driver, node) for node in node_handles(driver, graph)}
    if not _ALLOCATING.isdisjoint(kinds):
        raise UnsupportedError(
            "backend 'hip': a graph that allocates or frees memory can't be inside another one; capture its "
            "work there.",
            capability=str(Capability.CHILD_GRAPHS),
        )
