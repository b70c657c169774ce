"""Where a stream is in a capture, and child graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..driver import ACTIVE
from .driver import Driver


def position(driver: Driver, stream: Any) -> tuple[int, tuple[Any, ...]]:
    """Return the number of the capture of a stream, or 0, and the nodes that its next one will follow."""
    status, number, _, nodes, *_, count = driver.call(driver.capture_function, stream)
    if int(status) != ACTIVE:
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
    has_two = hasattr(driver.api, "cuStreamGetCaptureInfo_v3")  # CUDA 12: this one takes no data of edges
    data = () if has_two else (None,)
    driver.call("cuStreamUpdateCaptureDependencies", stream, [*nodes], *data, len(nodes), how)
