"""Changing the parameters of an executable's nodes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from ..base import Change, changed
from . import nodes
from .driver import Driver, Executable, Graph
from .parameters import POINTER, SIZE, address_field, kernel_blocks

Setter = Callable[[Sequence[Change]], None]


def node_setter(driver: Driver, graph: Graph, executable: Executable, index: int) -> Setter | None:
    """Return a callable that changes parameters of one kernel, copy or fill; None for other nodes.

    None as well for copies and fills of several rows, and for copies of arrays.
    """
    node = nodes.node_handles(driver, graph.handle)[index]
    make = _SETTERS.get(nodes.kind_of(driver, node))
    return None if make is None else make(driver, graph, executable, node)


def _kernel_setter(driver: Driver, graph: Graph, executable: Executable, node: Any) -> Setter:
    params = driver.call("cuGraphKernelNodeGetParams", node)
    blocks = [ctypes.string_at(*each) for each in kernel_blocks(driver, params, {})]
    buffers = [ctypes.create_string_buffer(each, len(each)) for each in blocks]
    starts = [ctypes.addressof(each) for each in buffers]
    size = ctypes.c_size_t(len(blocks[0]) if blocks else 0)
    if int(params.kernelParams):
        array = (ctypes.c_void_p * len(starts))(*starts)
        params.kernelParams = ctypes.addressof(array)
    elif blocks:
        array = (ctypes.c_void_p * 5)(POINTER, starts[0], SIZE, ctypes.addressof(size), None)
        params.extra = ctypes.addressof(array)
    if not int(params.func) and not int(params.ctx):
        params.ctx = graph.context
    call = _call(driver, "cuGraphExecKernelNodeSetParams", executable.handle, node, params)

    def fill(contents: Sequence[bytes], _kept: object = (array, size)) -> None:
        for buffer, content in zip(buffers, contents, strict=True):
            ctypes.memmove(buffer, content, len(content))

    return _setter(blocks, fill, call)


def _copy_setter(driver: Driver, graph: Graph, executable: Executable, node: Any) -> Setter | None:
    params = driver.call("cuGraphMemcpyNodeGetParams", node)
    fields = [address_field(params, side) for side in ("dst", "src")]
    if None in fields or params.Height > 1:
        return None
    params.Height = params.Depth = 1
    call = _call(driver, "cuGraphExecMemcpyNodeSetParams", executable.handle, node, params, graph.context)

    def fill(contents: Sequence[bytes]) -> None:
        for field, content in zip(fields, contents, strict=True):
            setattr(params, str(field), int.from_bytes(content, "little"))

    return _setter([_bytes(getattr(params, str(field)), 8) for field in fields], fill, call)


def _fill_setter(driver: Driver, graph: Graph, executable: Executable, node: Any) -> Setter | None:
    params = driver.call("cuGraphMemsetNodeGetParams", node)
    if params.height > 1:
        return None
    call = _call(driver, "cuGraphExecMemsetNodeSetParams", executable.handle, node, params, graph.context)

    def fill(contents: Sequence[bytes]) -> None:
        params.dst, params.value = (int.from_bytes(each, "little") for each in contents)

    return _setter([_bytes(params.dst, 8), _bytes(params.value, 4)], fill, call)


_SETTERS: dict[str, Callable[[Driver, Graph, Executable, Any], Setter | None]] = {
    "kernel": _kernel_setter,
    "memcpy": _copy_setter,
    "memset": _fill_setter,
}


def _bytes(number: Any, size: int) -> bytes:
    return int(number).to_bytes(size, "little")


def _call(driver: Driver, function: str, *args: Any) -> Callable[[], None]:
    """Return a call of a function that answers nothing; the arguments may change between calls."""
    api, success = getattr(driver.api, function), driver.success

    def call() -> None:
        try:
            (code,) = api(*args)
        except (RuntimeError, ValueError) as error:
            driver.broke(function, error)
        if code is not success:
            driver.failed(function, code)

    return call


def _setter(
    blocks: Sequence[bytes], fill: Callable[[Sequence[bytes]], None], call: Callable[[], None]
) -> Setter:
    """Return what changes some bytes of the blocks, and remembers them unless the driver refuses."""
    now = list(blocks)

    def set_parameters(changes: Sequence[Change]) -> None:
        wanted = changed(now, changes)
        fill(wanted)
        call()
        now[:] = wanted

    return set_parameters
