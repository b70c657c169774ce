"""Captures that could not be ended, whose streams are made usable again; and nodes that are added to one."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from ctypes import byref, c_void_p
from typing import Any

from ...errors import AcceleratorGraphError, UnsupportedError, explain
from ..base import Capability
from ..driver import ACTIVE, Capture
from .driver import Driver
from .events import INVALIDATED, refused
from .nodes import node_handles

_FOLLOW = 1  # hipStreamSetCaptureDependencies
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


def record_graph(driver: Driver, stream: Any, child: int) -> None:
    """Record a run of a graph on a capturing stream: its next node is a copy of the graph.

    The runtime takes allocations inside another graph, of which CUDA's driver has none. Their memory would be
    that of two executables, so they are refused here as well.
    """
    from .node import kind_of

    kinds = {kind_of(driver, node) for node in node_handles(driver, child)}
    if not _ALLOCATING.isdisjoint(kinds):
        raise UnsupportedError(
            "backend 'hip': a graph that allocates or frees memory can't be inside another one; capture its "
            "work there.",
            capability=str(Capability.CHILD_GRAPHS),
        )
    add(driver, stream, "hipGraphAddChildGraphNode", child)


def add(driver: Driver, stream: Any, function: str, what: int) -> None:
    """Record a node on a capturing stream by the function that adds it to a graph."""
    status, _, graph, before, count = driver.call("hipStreamGetCaptureInfo_v2", stream)
    if status == INVALIDATED:
        raise refused(driver, function, "invalidated", explain("invalidated"))
    node = c_void_p(driver.call(function, graph, before if count else None, count, what))
    try:
        driver.call("hipStreamUpdateCaptureDependencies", stream, byref(node), 1, _FOLLOW)
    except BaseException:
        driver.answer("hipGraphDestroyNode", node)
        raise
