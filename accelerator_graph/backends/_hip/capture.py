"""One capture, from its beginning to its graph or its abandonment."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from ctypes import byref, c_size_t, c_void_p
from typing import Any
from weakref import ref

from ..._interpreter.interruptions import Identity, this_thread
from ...errors import AcceleratorGraphError, DriverError, UnsupportedError
from .._shared import ILLEGAL_STATE, PER_THREAD_STREAM, keep, no_graph
from ..base import Capability, CaptureMode
from .driver import Driver, Graph, Handle
from .node import kind_of
from .nodes import node_count, node_handles

_ACTIVE = 1
_FOLLOW = 1  # hipStreamSetCaptureDependencies
_ALLOCATING = frozenset(("mem_alloc", "mem_free"))
_MODES = ("global", "thread_local", "relaxed")
_RELAXED = _MODES.index("relaxed")


class Capture(Handle):
    """A capture on the stream `handle`, which this thread begins."""

    __slots__ = ("mode", "over", "thread")

    def __init__(self, handle: int, device: int, mode: int) -> None:
        super().__init__(handle, device)
        self.mode: int = mode
        self.over: bool = False
        self.thread: ref[Identity] = ref(this_thread())


def begin(driver: Driver, stream: Any, mode: CaptureMode) -> Capture:
    """Begin a capture. If anything is raised, no capture is left."""
    capture = Capture(int(stream), driver.device_of(stream), _MODES.index(mode))
    try:
        with driver.current(capture.device):
            driver.call("hipStreamBeginCapture", capture.handle, capture.mode)
        return capture
    except DriverError as error:
        # The code may be that of an earlier failure, and the capture begun. After 401 it is somebody else's.
        if error.code != ILLEGAL_STATE and _status(driver, capture):
            abandon(driver, capture)
        raise
    except BaseException:  # an interrupt, which may have come after the runtime's answer
        abandon(driver, capture)
        raise


def end(driver: Driver, capture: Capture) -> Graph:
    """End a capture and return its graph. If anything is raised, neither is left."""
    graph = c_void_p()
    codes: list[int] = []
    try:
        with driver.current(capture.device):
            _end(driver, capture, graph, codes)
        driver.checked("hipStreamEndCapture", (codes[0],))
        if not graph.value:
            raise no_graph(driver.name, "hipStreamEndCapture")
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

    A capture of another thread's per-thread stream can't be ended, since no handle names that stream here.
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


def info(driver: Driver, stream: int) -> tuple[int, int] | None:
    """Return the number of the capture that a stream takes part in, and how many nodes it has recorded.

    None if there is no capture, or it is broken.
    """
    graph = c_void_p()
    status, number = driver.call("hipStreamGetCaptureInfo_v2", stream, byref(graph), None, None)
    if status != _ACTIVE or not graph.value:
        return None
    return number, node_count(driver, graph.value)


def record_graph(driver: Driver, stream: int, child: int) -> None:
    """Record a run of a graph on a capturing stream: its next node is a copy of the graph.

    The runtime takes allocations inside another graph, of which CUDA's driver has none. Their memory would be
    that of two executables, so they are refused here as well.
    """
    kinds = {kind_of(driver, node) for node in node_handles(driver, child)}
    if not _ALLOCATING.isdisjoint(kinds):
        raise UnsupportedError(
            "backend 'hip': a graph that allocates or frees memory can't be inside another one; capture its "
            "work there.",
            capability=str(Capability.CHILD_GRAPHS),
        )
    graph, place, count = c_void_p(), c_void_p(), c_size_t()
    driver.call("hipStreamGetCaptureInfo_v2", stream, byref(graph), byref(place), byref(count))
    before = place if count.value else None
    node = c_void_p(driver.call("hipGraphAddChildGraphNode", graph.value, before, count.value, child))
    try:
        driver.call("hipStreamUpdateCaptureDependencies", stream, byref(node), 1, _FOLLOW)
    except BaseException:
        driver.answer("hipGraphDestroyNode", node)
        raise


def _end(driver: Driver, capture: Capture, graph: c_void_p, codes: list[int]) -> None:
    keep(codes, driver.function("hipStreamEndCapture"), capture.handle, byref(graph))


def _over(driver: Driver, capture: Capture, graph: c_void_p, code: int | None) -> None:
    """Destroy the graph if the runtime returned one; reset the stream after a failure."""
    if code == 0:
        capture.over = True
        if graph.value:
            with suppress(AcceleratorGraphError), driver.relaxed(capture.device):
                driver.call("hipGraphDestroy", graph.value)
    else:
        # A second time, since a call for the relaxed mode may have failed.
        for mode in (driver.relaxed(capture.device), nullcontext()):
            with suppress(AcceleratorGraphError), mode:
                _reset_stream(driver, capture)
        capture.over = True
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
    status = _status(driver, capture)
    if not status:
        return
    if status == _ACTIVE:
        driver.answer("hipStreamQuery", capture.handle)  # invalidates it
    if capture.mode != _RELAXED:  # the runtime keeps no list of relaxed captures; a second end would crash
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
    """Return the status of the stream; active if the runtime does not report."""
    with suppress(AcceleratorGraphError), driver.current(capture.device):
        status: int = driver.call("hipStreamIsCapturing", capture.handle)
        return status
    return _ACTIVE
