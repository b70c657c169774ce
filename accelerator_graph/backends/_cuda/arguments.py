"""The numbers among the parameters of a graph's nodes that could be addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from .driver import Driver
from .nodes import kind_of, node_handles

_WORD = 8
_POINTER, _SIZE = 1, 2
"""What stands before the address and the size of a block of parameters: ``CU_LAUNCH_PARAM_BUFFER_...``."""

_INVALID_VALUE = 1
_MOST_PARAMETERS = 1 << 12

_WITHOUT_MEMORY = frozenset(("host", "empty", "wait_event", "event_record"))


def addresses(driver: Driver, graph: Any) -> set[int] | None:
    """Return the aligned words of all parameters, those of child graphs included.

    None if there is a node whose parameters the driver does not tell.
    """
    found: set[int] = set()
    sizes: dict[int, list[int]] = {}
    for node in node_handles(driver, graph):
        kind = kind_of(driver, node)
        if kind == "kernel":
            found.update(_words_of_kernel(driver, node, sizes))
        elif kind == "memset":
            fill = driver.call("cuGraphMemsetNodeGetParams", node)  # owns the memory that `dst` reads
            found.add(int(fill.dst))
        elif kind == "memcpy":
            copy = driver.call("cuGraphMemcpyNodeGetParams", node)
            found.update(map(int, (copy.dstDevice, copy.srcDevice, copy.dstHost, copy.srcHost)))
        elif kind == "mem_alloc":
            allocation = driver.call("cuGraphMemAllocNodeGetParams", node)
            found.add(int(allocation.dptr))
        elif kind == "mem_free":
            found.add(int(driver.call("cuGraphMemFreeNodeGetParams", node)))
        elif kind == "graph":
            inside = addresses(driver, driver.call("cuGraphChildGraphNodeGetGraph", node))
            if inside is None:
                return None
            found |= inside
        elif kind not in _WITHOUT_MEMORY:
            return None
    return found


def _words_of_kernel(driver: Driver, node: Any, sizes: dict[int, list[int]]) -> Iterator[int]:
    params = driver.call("cuGraphKernelNodeGetParams", node)
    if int(params.kernelParams):
        function = int(params.func) or int(params.kern)
        if function not in sizes:
            sizes[function] = list(_sizes(driver, params))
        count = len(sizes[function])
        where = (ctypes.c_void_p * count).from_address(int(params.kernelParams))
        for address, size in zip(where, sizes[function], strict=True):
            yield from _words(address, size)
    elif int(params.extra):
        yield from _words(*_block(int(params.extra)))


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
    found = {_POINTER: 0, _SIZE: 0}
    at = 0
    while entries[at]:
        found[entries[at]] = entries[at + 1] or 0
        at += 2
    size = ctypes.c_size_t.from_address(found[_SIZE]).value if found[_SIZE] else 0
    return found[_POINTER], size


def _words(address: int | None, size: int) -> Iterator[int]:
    if address and size >= _WORD:
        yield from (ctypes.c_uint64 * (size // _WORD)).from_address(address)
