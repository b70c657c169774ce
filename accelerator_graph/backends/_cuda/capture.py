"""One capture, from its beginning to its graph or its abandonment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import ref

from ..._interpreter.interruptions import Identity, this_thread
from ...errors import AcceleratorGraphError, DriverError
from .._shared import ILLEGAL_STATE, PER_THREAD_STREAM, no_graph
from ..base import CaptureMode
from .driver import Driver, Graph, Handle

_ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE


class Capture(Handle):
    """A capture on the stream `handle`, which this thread begins."""

    __slots__ = ("over", "thread")

    def __init__(self, handle: Any, context: Any) -> None:
        super().__init__(handle, context)
        self.over: bool = False
        self.thread: ref[Identity] = ref(this_thread())


def begin(driver: Driver, stream: Any, mode: CaptureMode) -> Capture:
    """Begin a capture. If anything is raised, no capture is left."""
    capture = Capture(stream, driver.context_of(stream))
    try:
        driver.call_in(capture.context, "cuStreamBeginCapture", stream, driver.capture_modes[mode])
        return capture
    except DriverError as error:
        # The code may be that of an earlier failure, and the capture begun. After 401 it is somebody else's.
        if error.code != ILLEGAL_STATE and _is_capturing(driver, capture):
            abandon(driver, capture)
        raise
    except BaseException:  # an interrupt, which may have come after the driver's answer
        abandon(driver, capture)
        raise


def end(driver: Driver, capture: Capture) -> Graph:
    """End a capture and return its graph. If anything is raised, neither is left."""
    answer: list[tuple[Any, ...]] = []
    try:
        driver.keep_in(capture.context, answer, "cuStreamEndCapture", capture.handle)
        handle = driver.checked("cuStreamEndCapture", answer[0])
        if not int(handle):
            raise no_graph(driver.name, "cuStreamEndCapture")
        capture.over = True
        return Graph(handle, capture.context)
    except BaseException:
        if answer:
            _over(driver, capture, answer[0])
        else:
            abandon(driver, capture)
        raise


def abandon(driver: Driver, capture: Capture) -> None:
    """End a capture that may be over already, on any thread, and throw away what was recorded.

    Outside relaxed mode the driver does not return the graph to another thread, but ends the capture. A
    capture of another thread's per-thread stream can't be ended, since no handle names that stream here.
    """
    own = int(capture.handle) == PER_THREAD_STREAM
    if capture.over or (own and capture.thread() is not this_thread()):
        return
    answer: list[tuple[Any, ...]] = []
    with suppress(AcceleratorGraphError), driver.current(capture.context):
        driver.keep(answer, "cuStreamEndCapture", capture.handle)
    if not answer:  # the context could not be made current
        with suppress(AcceleratorGraphError):
            driver.keep(answer, "cuStreamEndCapture", capture.handle)
    _over(driver, capture, answer[0] if answer else (None, None))


def info(driver: Driver, stream: Any) -> tuple[int, int] | None:
    """Return the number of the capture that a stream takes part in, and how many nodes it has recorded.

    None if there is no capture, or it is broken.
    """
    status, number, graph, *_ = driver.call(driver.capture_function, stream)
    if int(status) != _ACTIVE or not int(graph):
        return None
    return int(number), node_count(driver, graph)


def position(driver: Driver, stream: Any) -> tuple[int, tuple[Any, ...]]:
    """Return the number of the capture of a stream, or 0, and the nodes that its next one will follow."""
    status, number, _, nodes, *_, count = driver.call(driver.capture_function, stream)
    if int(status) != _ACTIVE:
        return 0, ()
    return int(number), tuple(nodes[:count]) if count else ()


def record_graph(driver: Driver, stream: Any, child: Any) -> None:
    """Record a run of a graph on a capturing stream: its next node is a copy of the graph."""
    _, _, graph, nodes, *_, count = driver.call(driver.capture_function, stream)
    node = driver.call("cuGraphAddChildGraphNode", graph, nodes[:count] if count else [], count, child)
    try:
        follow(driver, stream, [node], others=False)
    except BaseException:
        driver.answer("cuGraphDestroyNode", node)
        raise


def follow(driver: Driver, stream: Any, nodes: Sequence[Any], *, others: bool) -> None:
    """Let the next node recorded on a stream follow these nodes, beside the others or instead of them."""
    kinds = driver.api.CUstreamUpdateCaptureDependencies_flags
    how = kinds.CU_STREAM_ADD_CAPTURE_DEPENDENCIES if others else kinds.CU_STREAM_SET_CAPTURE_DEPENDENCIES
    data = (
        () if hasattr(driver.api, "cuStreamGetCaptureInfo_v3") else (None,)
    )  # CUDA 12: without those of edges
    driver.call("cuStreamUpdateCaptureDependencies", stream, [*nodes], *data, len(nodes), how)


def node_count(driver: Driver, graph: Any) -> int:
    """Return the number of a graph's nodes."""
    count: int = driver.call("cuGraphGetNodes", graph)[1]
    return count


def _is_capturing(driver: Driver, capture: Capture) -> bool:
    """Return True if the stream is capturing, or the driver does not report."""
    with suppress(AcceleratorGraphError), driver.current(capture.context):
        status = driver.call("cuStreamIsCapturing", capture.handle)
        return int(status) != 0  # CU_STREAM_CAPTURE_STATUS_NONE
    return True


def _over(driver: Driver, capture: Capture, answer: tuple[Any, ...]) -> None:
    """Note that the driver has ended a capture, and destroy the graph if it returned one."""
    capture.over = True
    graph = answer[1]
    if graph is not None and int(graph):
        with suppress(AcceleratorGraphError), driver.relaxed(capture.context):
            driver.call("cuGraphDestroy", graph)
