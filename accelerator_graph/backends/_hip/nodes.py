"""Looking into a captured graph."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_void_p

from ...errors import AcceleratorGraphError
from ..base import GraphEdge, GraphNode
from .driver import Driver

_KINDS = [
    "kernel",
    "memcpy",
    "memset",
    "host",
    "graph",
    "empty",
    "wait_event",
    "event_record",
    "ext_semas_signal",
    "ext_semas_wait",
    "mem_alloc",
    "mem_free",
    "memcpy_from_symbol",
    "memcpy_to_symbol",
    "batch_mem_op",
]
"""The kinds of nodes in the order of ``hipGraphNodeType``, by the names that CUDA uses."""


class _KernelParameters(ctypes.Structure):
    """`hipKernelNodeParams`."""

    _fields_ = (
        ("block", ctypes.c_uint * 3),
        ("extra", c_void_p),
        ("function", c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("parameters", c_void_p),
        ("shared_bytes", ctypes.c_uint),
    )


def node_handles(driver: Driver, graph: int) -> list[int]:
    """Return the handles of a graph's nodes."""
    count = c_size_t(node_count(driver, graph))
    if not count.value:
        return []
    handles = (c_void_p * count.value)()
    driver.call("hipGraphGetNodes", graph, handles, byref(count))
    return list(handles[: count.value])  # type: ignore[arg-type]


def node_count(driver: Driver, graph: int) -> int:
    """Return the number of a graph's nodes."""
    count = c_size_t()
    driver.call("hipGraphGetNodes", graph, None, byref(count))
    return count.value


def root_count(driver: Driver, graph: int) -> int:
    """Return the number of a graph's nodes that depend on no other node."""
    count = c_size_t()
    driver.call("hipGraphGetRootNodes", graph, None, byref(count))
    return count.value


def list_nodes(driver: Driver, graph: int) -> tuple[list[GraphNode], list[GraphEdge]]:
    """Return a graph's nodes and the dependencies between them."""
    handles = node_handles(driver, graph)
    nodes = []
    for index, handle in enumerate(handles):
        kind = kind_of(driver, handle)
        nodes.append(GraphNode(index, kind, _kernel_name(driver, handle) if kind == "kernel" else ""))
    index_of = {handle: index for index, handle in enumerate(handles)}
    edges = [GraphEdge(index_of[source], index_of[target]) for source, target in dependencies(driver, graph)]
    return nodes, edges


def dependencies(driver: Driver, graph: int) -> list[tuple[int, int]]:
    """Return the handles of the nodes at both ends of each edge."""
    count = c_size_t()
    driver.call("hipGraphGetEdges", graph, None, None, byref(count))
    if not count.value:
        return []
    sources, targets = (c_void_p * count.value)(), (c_void_p * count.value)()
    driver.call("hipGraphGetEdges", graph, sources, targets, byref(count))
    return list(zip(sources, targets, strict=True))


def kind_of(driver: Driver, node: int) -> str:
    """Return the kind of a node."""
    kind = driver.call("hipGraphNodeGetType", node)
    return _KINDS[kind] if 0 <= kind < len(_KINDS) else "unknown"


def _kernel_name(driver: Driver, node: int) -> str:
    """Return the name of a kernel node's function, or an empty string if it is not known.

    The function was either compiled into the program, and the runtime has a table of those, or was loaded
    from a module.
    """
    parameters = _KernelParameters()
    try:
        driver.call("hipGraphKernelNodeGetParams", node, byref(parameters))
        if not parameters.function:
            return ""
        name = driver.function("hipKernelNameRefByPtr")(parameters.function, None)
        name = name or driver.function("hipKernelNameRef")(parameters.function)
    except AcceleratorGraphError:
        return ""
    return name.decode(errors="replace") if name else ""
