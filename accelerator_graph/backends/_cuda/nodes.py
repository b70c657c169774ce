"""The nodes of a graph as handles, their kinds, and the dependencies between them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .driver import Driver


def node_handles(driver: Driver, graph: Any) -> list[Any]:
    """Return the handles of a graph's nodes."""
    count = node_count(driver, graph)
    if count == 0:
        return []
    handles: list[Any] = driver.call("cuGraphGetNodes", graph, count)[0]
    return handles


def node_handle(driver: Driver, graph: Any, index: int) -> Any:
    """Return the handle of one node, without those of the nodes behind it."""
    return driver.call("cuGraphGetNodes", graph, index + 1)[0][index]


def node_count(driver: Driver, graph: Any) -> int:
    """Return the number of a graph's nodes."""
    count: int = driver.call("cuGraphGetNodes", graph)[1]
    return count


def kind_of(driver: Driver, node: Any) -> str:
    """Return the kind of a node: the driver's name for it in lower case."""
    try:
        kind = driver.call("cuGraphNodeGetType", node)
    except ValueError:  # a driver that is newer than the binding
        return "unknown"
    return _in_lower_case(kind)


def kind_name(driver: Driver, number: int) -> str:
    """Return the kind of the nodes that have this number as their type."""
    try:
        return _in_lower_case(driver.api.CUgraphNodeType(number))
    except ValueError:  # a driver that is newer than the binding
        return "unknown"


def _in_lower_case(kind: Any) -> str:
    name: str = kind.name
    return name.removeprefix("CU_GRAPH_NODE_TYPE_").lower()


# ---- dependencies --------------------------------------------------------------------------------
# Up to cuda-python 13.3.0 the binding's own function returns data whose memory it has released
# (cuda-python#1804), so the driver's is called.

_EDGES = "cuGraphGetEdges"
_WORD = 8
"""The size of a handle, and of a ``CUgraphEdgeData``."""
_TYPE = 2
"""The place of `type` in it."""


def dependencies(driver: Driver, graph: Any, handles: Sequence[Any]) -> list[tuple[int, int, bytes]]:
    """Return the dependencies between the nodes of a graph, whose handles these are.

    A dependency is the index of its source, that of its target, and its ``CUgraphEdgeData``.
    """
    *ends, data = raw_edges(driver, int(graph))
    index_of = {int(handle): index for index, handle in enumerate(handles)}
    sources, targets = (map(index_of.__getitem__, memoryview(each).cast("Q")) for each in ends)
    return list(
        zip(sources, targets, (data[at : at + _WORD] for at in range(0, len(data), _WORD)), strict=True)
    )


def is_programmatic(data: bytes) -> bool:
    """Return True if the target of a dependency with this data may begin before the source has ended."""
    return data[_TYPE] != 0


def raw_edges(driver: Driver, graph: int) -> tuple[bytes, bytes, bytes]:
    """Return the sources, the targets and the data of a graph's dependencies."""
    from .raw_calls import calls_of

    function, count = calls_of(driver).edges, array("Q", (0,))
    if function is None:
        driver.broke(_EDGES, RuntimeError(f"there is no {_EDGES} of CUDA 12.3"))
    place = count.buffer_info()[0]
    driver.check(_EDGES, function(graph, None, None, None, place))
    found = [array("Q", bytes(_WORD * count[0])) for _ in range(3)]
    if count[0]:
        driver.check(_EDGES, function(graph, *(each.buffer_info()[0] for each in found), place))
    sources, targets, data = (each.tobytes() for each in found)
    return sources, targets, data
