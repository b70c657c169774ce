"""Reading the parameters of a graph's nodes, as bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ..base import NodeParameters, word
from .driver import Driver
from .layouts import Layouts, address, kernel_blocks
from .nodes import kind_of, node_handles

_WITHOUT_MEMORY = frozenset(("host", "empty", "wait_event", "event_record"))


def parameters(driver: Driver, graph: Any) -> list[NodeParameters]:
    """Return the parameters of all nodes, those of child graphs included."""
    return _parameters(driver, graph, {})


def _parameters(driver: Driver, graph: Any, layouts: Layouts) -> list[NodeParameters]:
    return [_of_node(driver, node, layouts) for node in node_handles(driver, graph)]


def _of_node(driver: Driver, node: Any, layouts: Layouts) -> NodeParameters:
    kind = kind_of(driver, node)
    if kind == "graph":
        child = driver.call("cuGraphChildGraphNodeGetGraph", node)
        return NodeParameters(kind, inside=tuple(_parameters(driver, child, layouts)))
    if kind == "kernel":
        params = driver.call("cuGraphKernelNodeGetParams", node)
        blocks = tuple(ctypes.string_at(*each) for each in kernel_blocks(driver, params, layouts))
        return NodeParameters(kind, blocks, _shape(params))
    read = _READ.get(kind)
    if read is not None:
        return read(driver, kind, node)
    return NodeParameters(kind, () if kind in _WITHOUT_MEMORY else None)


def _shape(params: Any) -> tuple[int, ...]:
    grid = params.gridDimX, params.gridDimY, params.gridDimZ
    block = params.blockDimX, params.blockDimY, params.blockDimZ
    return (int(params.func) or int(params.kern), *grid, *block, params.sharedMemBytes)


def _of_fill(driver: Driver, kind: str, node: Any) -> NodeParameters:
    fill = driver.call("cuGraphMemsetNodeGetParams", node)
    blocks = word(int(fill.dst)), int(fill.value).to_bytes(4, "little")
    return NodeParameters(kind, blocks, (fill.elementSize, fill.width, fill.height, fill.pitch))


def _of_copy(driver: Driver, kind: str, node: Any) -> NodeParameters:
    copy = driver.call("cuGraphMemcpyNodeGetParams", node)
    target, source = address(copy, "dst"), address(copy, "src")
    if target is None or source is None:
        return NodeParameters(kind, None)
    offsets = [getattr(copy, side + name) for side in ("dst", "src") for name in _SIDE]
    rest = (copy.dstMemoryType.name, copy.srcMemoryType.name, copy.WidthInBytes, copy.Height, copy.Depth)
    return NodeParameters(kind, (word(target), word(source)), (*rest, *offsets))


def _of_allocation(driver: Driver, kind: str, node: Any) -> NodeParameters:
    params = driver.call("cuGraphMemAllocNodeGetParams", node)
    return NodeParameters(kind, (word(int(params.dptr)),), params.bytesize)


def _of_release(driver: Driver, kind: str, node: Any) -> NodeParameters:
    return NodeParameters(kind, (word(int(driver.call("cuGraphMemFreeNodeGetParams", node))),))


_READ: dict[str, Callable[[Driver, str, Any], NodeParameters]] = {
    "memset": _of_fill,
    "memcpy": _of_copy,
    "mem_alloc": _of_allocation,
    "mem_free": _of_release,
}
_SIDE = ("XInBytes", "Y", "Z", "Pitch", "Height")
