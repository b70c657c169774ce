"""Changing where the copies of an executable read from."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial

from . import nodes
from .driver import Driver, Executable, Graph

_SET = "cuGraphExecMemcpyNodeSetParams"
_SET_TYPE = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
_SIZE = 200  # of CUDA_MEMCPY3D
_OFFSETS = {"HOST": 40, "DEVICE": 48, "UNIFIED": 48}
"""Where ``srcHost`` and ``srcDevice`` are in it, by the kind of the source's memory."""


def source_setter(
    driver: Driver, graph: Graph, executable: Executable, index: int
) -> Callable[[int], None] | None:
    """Return a callable that changes the source of one copy; None for other nodes, and for arrays.

    The driver is called without the binding, whose setters take twice as long. It wants memory of the same
    kind as before.
    """
    node, address = nodes.node_handles(driver, graph.handle)[index], driver.address_of(_SET)
    if not address or nodes.kind_of(driver, node) != "memcpy":
        return None
    params = driver.call("cuGraphMemcpyNodeGetParams", node)
    offset = _OFFSETS.get(params.srcMemoryType.name.rpartition("_")[2])
    if offset is None or params.Height > 1:
        return None
    params.Height = params.Depth = 1
    copy = ctypes.create_string_buffer(ctypes.string_at(params.getPtr(), _SIZE), _SIZE)
    source = ctypes.c_uint64.from_buffer(copy, offset)  # keeps the copy alive
    handles = executable.handle, node, ctypes.addressof(copy), graph.context
    change = partial(_SET_TYPE(address), *(ctypes.c_void_p(int(each)) for each in handles))

    def set_source(address: int) -> None:
        source.value = address
        code = change()
        if code:
            driver.answered(_SET, code)

    return set_source
