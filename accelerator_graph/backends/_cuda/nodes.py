"""Looking into a captured graph."""

from __future__ import annotations

from typing import Any

from ...errors import AcceleratorGraphError
from ..base import GraphEdge, GraphNode
from .driver import Driver


def node_handles(driver: Driver, graph: Any) -> list[Any]:
    """Return the handles of a graph's nodes."""
    count = node_count(driver, graph)
    if count == 0:
        return []
    handles: list[Any] = driver.call("cuGraphGetNodes", graph, count)[0]
    return handles


def node_count(driver: Driver, graph: Any) -> int:
    """Return the number of a graph's nodes."""
    count: int = driver.call("cuGraphGetNodes", graph)[1]
    return count


def root_count(driver: Driver, graph: Any) -> int:
    """Return the number of a graph's nodes that depend on no other node."""
    count: int = driver.call("cuGraphGetRootNodes", graph, 0)[1]
    return count


def list_nodes(driver: Driver, graph: Any) -> tuple[list[GraphNode], list[GraphEdge]]:
    """Return a graph's nodes and the dependencies between them."""
    handles = node_handles(driver, graph)
    nodes = []
    for index, handle in enumerate(handles):
        kind = kind_of(driver, handle)
        nodes.append(GraphNode(index, kind, _kernel_name(driver, handle) if kind == "kernel" else ""))
    # For CUDA 12 the binding has two functions. The one without the suffix refuses edges that have data.
    function = "cuGraphGetEdges_v2" if hasattr(driver.api, "cuGraphGetEdges_v2") else "cuGraphGetEdges"
    count = driver.call(function, graph)[-1]
    if count == 0:
        return nodes, []
    sources, targets = driver.call(function, graph, count)[:2]
    index_of = {int(handle): index for index, handle in enumerate(handles)}
    edges = [
        GraphEdge(index_of[int(source)], index_of[int(target)])
        for source, target in zip(sources, targets, strict=True)
    ]
    return nodes, edges


def kind_of(driver: Driver, node: Any) -> str:
    """Return the kind of a node: the driver's name for it in lower case."""
    try:
        kind = driver.call("cuGraphNodeGetType", node)
    except ValueError:  # a driver that is newer than the binding
        return "unknown"
    name: str = kind.name
    return name.removeprefix("CU_GRAPH_NODE_TYPE_").lower()


def _kernel_name(driver: Driver, node: Any) -> str:
    """Return the name of a kernel node's function, or an empty string if it is not known."""
    try:
        params = driver.call("cuGraphKernelNodeGetParams", node)
        if int(params.func):
            name = driver.call("cuFuncGetName", params.func)
        else:
            name = driver.call("cuKernelGetName", params.kern)
    except AcceleratorGraphError:
        return ""
    return name.decode(errors="replace") if name else ""
