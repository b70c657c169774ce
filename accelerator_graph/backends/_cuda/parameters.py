"""Reading the parameters of a graph's nodes, as bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from ..base import NodeParameters, word
from .driver import Driver
from .nodes import kind_of, node_handles

POINTER, SIZE = 1, 2
"""What stands before the address and the size of a block of parameters: ``CU_LAUNCH_PARAM_BUFFER_...``."""

_INVALID_VALUE = 1
_MOST_PARAMETERS = 1 << 12

_WITHOUT_MEMORY = frozenset(("host", "empty", "wait_event", "event_record"))

Sizes = dict[int, list[int]]
"""The sizes of each function's parameters."""


def parameters(driver: Driver, graph: Any) -> list[NodeParameters]:
    """Return the parameters of all nodes, those of child graphs included."""
    return _parameters(driver, graph, {})


def _parameters(driver: Driver, graph: Any, sizes: Sizes) -> list[NodeParameters]:
    return [_of_node(driver, node, sizes) for node in node_handles(driver, graph)]


def _of_node(driver: Driver, node: Any, sizes: Sizes) -> NodeParameters:
    kind = kind_of(driver, node)
    if kind == "graph":
        child = driver.call("cuGraphChildGraphNodeGetGraph", node)
        return NodeParameters(kind, inside=tuple(_parameters(driver, child, sizes)))
    if kind == "kernel":
        params = driver.call("cuGraphKernelNodeGetParams", node)
        blocks = tuple(ctypes.string_at(*each) for each in kernel_blocks(driver, params, sizes))
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
_FIELDS = {"CU_MEMORYTYPE_DEVICE": "Device", "CU_MEMORYTYPE_HOST": "Host", "CU_MEMORYTYPE_UNIFIED": "Device"}


def address_field(copy: Any, side: str) -> str | None:
    """Return the name of the field that has the address of one side of a copy; None for an array."""
    suffix = _FIELDS.get(getattr(copy, f"{side}MemoryType").name)
    return None if suffix is None else side + suffix


def address(copy: Any, side: str) -> int | None:
    """Return the address of one side of a copy; None for an array."""
    field = address_field(copy, side)
    return None if field is None else int(getattr(copy, field))


def kernel_blocks(driver: Driver, params: Any, sizes: Sizes) -> Iterator[tuple[int, int]]:
    """Yield address and size of each parameter of a kernel node, or of the block that holds all."""
    if int(params.kernelParams):
        function = int(params.func) or int(params.kern)
        if function not in sizes:
            sizes[function] = list(_sizes(driver, params))
        where = (ctypes.c_void_p * len(sizes[function])).from_address(int(params.kernelParams))
        yield from ((at or 0, size) for at, size in zip(where, sizes[function], strict=True))
    elif int(params.extra):
        yield _block(int(params.extra))


def _sizes(driver: Driver, params: Any) -> Iterator[int]:
    """Yield the size of each parameter: the driver answers an error for the one after the last."""
    name, function = "cuFuncGetParamInfo", params.func
    if not int(function):
        name, function = "cuKernelGetParamInfo", params.kern
    for number in range(_MOST_PARAMETERS):
        answer = driver.answer(name, function, number)
        if int(answer[0]) == _INVALID_VALUE:
            return
        yield int(driver.checked(name, answer)[1])


def _block(extra: int) -> tuple[int, int]:
    """Return address and size of the block that holds all parameters of a launch."""
    entries = ctypes.cast(extra, ctypes.POINTER(ctypes.c_void_p))
    found = {POINTER: 0, SIZE: 0}
    at = 0
    while entries[at]:
        found[entries[at]] = entries[at + 1] or 0
        at += 2
    size = ctypes.c_size_t.from_address(found[SIZE]).value if found[SIZE] else 0
    return found[POINTER], size
