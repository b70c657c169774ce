"""The nodes of a graph: how many, their handles, and their kinds."""

from __future__ import annotations

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


def root_count(driver: Driver, graph: Any) -> int:
    """Return the number of a graph's nodes that depend on no other node."""
    count: int = driver.call("cuGraphGetRootNodes", graph, 0)[1]
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
