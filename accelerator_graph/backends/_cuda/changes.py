"""Changing the nodes of an executable."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ..base import NodeSetter
from . import nodes
from .driver import Driver, Executable, Graph
from .parameters import POINTER, SIZE, address_field, kernel_blocks

_TARGET, _VALUE = (0, 8), (16, 4)
"""Offset and size of what can be changed in ``CUDA_MEMSET_NODE_PARAMS``."""

_ADDRESSES = {"srcHost": 40, "srcDevice": 48, "dstHost": 128, "dstDevice": 136}
"""The offsets of the addresses in ``CUDA_MEMCPY3D``."""


def node_setter(driver: Driver, graph: Graph, executable: Executable, index: int) -> NodeSetter | None:
    """Return what changes one kernel, copy or fill; None for other nodes.

    Copies and fills of several rows, and copies of arrays, can only be enabled and disabled.
    """
    node = nodes.node_handles(driver, graph.handle)[index]
    make = _SETTERS.get(nodes.kind_of(driver, node))
    return None if make is None else make(driver, graph, executable, node)


def _kernel_setter(driver: Driver, graph: Graph, executable: Executable, node: Any) -> NodeSetter:
    params = driver.call("cuGraphKernelNodeGetParams", node)
    blocks = [ctypes.string_at(*each) for each in kernel_blocks(driver, params, {})]
    buffers = [ctypes.create_string_buffer(each, len(each)) for each in blocks]
    starts = [ctypes.addressof(each) for each in buffers]
    array: Any = None
    size = ctypes.c_size_t(len(blocks[0]) if blocks else 0)
    if int(params.kernelParams):
        array = (ctypes.c_void_p * len(starts))(*starts)
        params.kernelParams = ctypes.addressof(array)
    elif blocks:
        array = (ctypes.c_void_p * 5)(POINTER, starts[0], SIZE, ctypes.addressof(size), None)
        params.extra = ctypes.addressof(array)
    if not int(params.func) and not int(params.ctx):
        params.ctx = graph.context
    apply = _call(
        driver, (buffers, array, size), "cuGraphExecKernelNodeSetParams", executable.handle, node, params
    )
    return NodeSetter(zip(starts, map(len, blocks), strict=True), apply, _switch(driver, executable, node))


def _copy_setter(driver: Driver, graph: Graph, executable: Executable, node: Any) -> NodeSetter:
    params = driver.call("cuGraphMemcpyNodeGetParams", node)
    fields = [address_field(params, side) for side in ("dst", "src")]
    plain = None not in fields and params.Height <= 1 and params.Depth <= 1
    params.Height = params.Depth = 1
    places = [(_ADDRESSES[str(field)], 8) for field in fields] if plain else []
    function = "cuGraphExecMemcpyNodeSetParams"
    return _setter(driver, graph, executable, node, params, places, function)


def _fill_setter(driver: Driver, graph: Graph, executable: Executable, node: Any) -> NodeSetter:
    params = driver.call("cuGraphMemsetNodeGetParams", node)
    places = [_TARGET, _VALUE] if params.height <= 1 else []
    return _setter(driver, graph, executable, node, params, places, "cuGraphExecMemsetNodeSetParams")


def _setter(
    driver: Driver,
    graph: Graph,
    executable: Executable,
    node: Any,
    params: Any,
    places: list[tuple[int, int]],
    function: str,
) -> NodeSetter:
    """Return a setter that writes into a struct of the binding."""
    start = params.getPtr()
    apply = _call(driver, None, function, executable.handle, node, params, graph.context)
    blocks = [(start + offset, size) for offset, size in places]
    return NodeSetter(blocks, apply, _switch(driver, executable, node))


_SETTERS: dict[str, Callable[[Driver, Graph, Executable, Any], NodeSetter]] = {
    "kernel": _kernel_setter,
    "memcpy": _copy_setter,
    "memset": _fill_setter,
}


def _switch(driver: Driver, executable: Executable, node: Any) -> Callable[[bool], None]:
    def enable(wanted: bool) -> None:
        driver.call("cuGraphNodeSetEnabled", executable.handle, node, wanted)

    return enable


def _call(driver: Driver, keeps: object, function: str, *args: Any) -> Callable[[], None]:
    """Return a call of a function that answers nothing, which keeps an object alive."""
    api, success = getattr(driver.api, function), driver.success

    def call(_keeps: object = keeps) -> None:
        try:
            (code,) = api(*args)
        except (RuntimeError, ValueError) as error:
            driver.broke(function, error)
        if code is not success:
            driver.failed(function, code)

    return call
