"""One node of a graph: what the runtime reports about it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint, c_void_p

from ...errors import AcceleratorGraphError
from ..base import GraphContents, GraphEdge, GraphNode
from .driver import Driver
from .nodes import Edge, dependencies, in_order, node_handles

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


_COPIES_TELL = 7_02_00000
"""The first version of the runtime that reports the parameters of copies: 6.4.3 answers with garbage."""


class KernelParameters(ctypes.Structure):
    """`hipKernelNodeParams`."""

    _fields_ = (
        ("block", c_uint * 3),
        ("extra", c_void_p),
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("parameters", c_void_p),
        ("shared_bytes", c_uint),
    )


class _FillParameters(ctypes.Structure):
    """`hipMemsetParams`."""

    _fields_ = (
        ("target", c_void_p),
        ("element_bytes", c_uint),
        ("height", c_size_t),
        ("pitch", c_size_t),
        ("value", c_uint),
        ("width", c_size_t),
    )


class _Side(ctypes.Structure):
    """One side of a `hipMemcpy3DParms`."""

    _fields_ = (
        ("array", c_void_p),
        ("position", c_size_t * 3),
        ("address", c_void_p),
        ("pitch", c_size_t),
        ("width", c_size_t),
        ("height", c_size_t),
    )


class _CopyParameters(ctypes.Structure):
    """`hipMemcpy3DParms`."""

    _fields_ = (("source", _Side), ("target", _Side), ("extent", c_size_t * 3), ("kind", c_uint))


class _HostParameters(ctypes.Structure):
    """`hipHostNodeParams`."""

    _fields_ = (("function", c_void_p), ("data", c_void_p))


class _AllocationParameters(ctypes.Structure):
    """`hipMemAllocNodeParams`, of which the properties of the pool come first."""

    _fields_ = (
        ("properties", ctypes.c_byte * 88),
        ("access", c_void_p),
        ("accesses", c_size_t),
        ("nbytes", c_size_t),
        ("address", c_void_p),
    )


def list_nodes(driver: Driver, graph: int) -> GraphContents:
    """Return a graph's nodes and the dependencies between them, and those of the graphs inside.

    Graphs inside are not changed, so their nodes are listed as the runtime does it.
    """
    return _listed(driver, *in_order(driver, graph))


def _listed(driver: Driver, handles: list[int], pairs: list[Edge]) -> GraphContents:
    nodes = [_read(driver, index, handle) for index, handle in enumerate(handles)]
    index_of = {handle: index for index, handle in enumerate(handles)}
    edges = [GraphEdge(index_of[source], index_of[target]) for source, target in pairs]
    return nodes, edges


def kind_of(driver: Driver, node: int) -> str:
    """Return the kind of a node."""
    kind = driver.call("hipGraphNodeGetType", node)
    return _KINDS[kind] if 0 <= kind < len(_KINDS) else "unknown"


def _read(driver: Driver, index: int, handle: int) -> GraphNode:
    """Return one node; without parameters where the runtime does not report them."""
    node = GraphNode(index, kind_of(driver, handle))
    read = _READERS.get(node.kind)
    if read is None:
        return node
    try:
        return read(driver, node, handle)
    except AcceleratorGraphError:
        return node


def _kernel(driver: Driver, node: GraphNode, handle: int) -> GraphNode:
    found = KernelParameters()
    driver.call("hipGraphKernelNodeGetParams", handle, byref(found))
    return node._replace(
        name=_name(driver, found.function),
        grid=tuple(found.grid),
        block=tuple(found.block),
        shared_bytes=found.shared_bytes,
    )


def _name(driver: Driver, function: int | None) -> str:
    """Return the name of a kernel, or an empty string if it is not known.

    It was either compiled into the program, and the runtime has a table of those, or was loaded from one.
    """
    if not function:
        return ""
    try:
        name = driver.function("hipKernelNameRefByPtr")(function, None)
        name = name or driver.function("hipKernelNameRef")(function)
    except AcceleratorGraphError:
        return ""
    return name.decode(errors="replace") if name else ""


def _memset(driver: Driver, node: GraphNode, handle: int) -> GraphNode:
    found = _FillParameters()
    driver.call("hipGraphMemsetNodeGetParams", handle, byref(found))
    nbytes = found.element_bytes * found.width * max(found.height, 1)
    return node._replace(target=found.target, nbytes=nbytes, value=found.value)


def _memcpy(driver: Driver, node: GraphNode, handle: int) -> GraphNode:
    if driver.version < _COPIES_TELL:
        return node
    found = _CopyParameters()
    driver.call("hipGraphMemcpyNodeGetParams", handle, byref(found))
    width, height, depth = found.extent
    return node._replace(
        target=found.target.address,
        source=found.source.address,
        nbytes=width * max(height, 1) * max(depth, 1),
    )


def _host(driver: Driver, node: GraphNode, handle: int) -> GraphNode:
    found = _HostParameters()
    driver.call("hipGraphHostNodeGetParams", handle, byref(found))
    return node._replace(target=found.function)


def _mem_alloc(driver: Driver, node: GraphNode, handle: int) -> GraphNode:
    found = _AllocationParameters()
    driver.call("hipGraphMemAllocNodeGetParams", handle, byref(found))
    return node._replace(target=found.address, nbytes=found.nbytes)


def _mem_free(driver: Driver, node: GraphNode, handle: int) -> GraphNode:
    return node._replace(target=driver.call("hipGraphMemFreeNodeGetParams", handle))


def _graph(driver: Driver, node: GraphNode, handle: int) -> GraphNode:
    body = driver.call("hipGraphChildGraphNodeGetGraph", handle)
    return node._replace(bodies=(_listed(driver, node_handles(driver, body), dependencies(driver, body)),))


_READERS: dict[str, Callable[[Driver, GraphNode, int], GraphNode]] = {
    "kernel": _kernel,
    "memset": _memset,
    "memcpy": _memcpy,
    "host": _host,
    "mem_alloc": _mem_alloc,
    "mem_free": _mem_free,
    "graph": _graph,
}
