"""Changing the nodes of an executable."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...errors import UnsupportedError
from ..base import Argument, NodeSetter, SameContext, SetFunction
from . import nodes
from .driver import Driver, Executable
from .layouts import POINTER, SIZE, Layouts, address_field, is_plain, kernel_blocks, places
from .raw_calls import calls_of

_TARGET, _VALUE = (0, 8), (16, 4)
"""Offset and size of what can be changed in ``CUDA_MEMSET_NODE_PARAMS``."""

_ADDRESSES = {"srcHost": 40, "srcDevice": 48, "dstHost": 128, "dstDevice": 136}
"""The offsets of the addresses in ``CUDA_MEMCPY3D``."""


def setter_of(driver: Driver, handle: Any, executable: Executable, context: Any) -> NodeSetter | None:
    """Return what changes one kernel, copy or fill; None for other nodes, and for fills of several rows.

    The node may be one of a child graph. Copies of several rows and of arrays can only be enabled and
    disabled; kernels as well if the driver is too old to tell their arguments. Fills can't be disabled: with
    driver 580 their neighbours lose their order, and the context can be lost.
    """
    make = _SETTERS.get(nodes.kind_of(driver, handle))
    return None if make is None else make(_Node(driver, handle, executable.handle, context))


class _Node(NamedTuple):
    """A node of an executable."""

    driver: Driver
    handle: Any
    executable: Any
    context: Any

    def enable(self, wanted: bool) -> None:
        """Let later runs do the node's work, or leave it out."""
        args = "cuGraphNodeSetEnabled", self.executable, self.handle, wanted
        self.driver.call_in(self.context, *args)

    def in_struct(
        self,
        kind: str,
        params: Any,
        fields: Sequence[tuple[int, int]],
        function: str,
        nbytes: int,
        can_be_disabled: bool = True,
    ) -> NodeSetter:
        """Return a setter that writes into a struct of the binding."""
        calls = calls_of(self.driver)
        start = params.getPtr()
        apply = _call(self, function, params, self.context)
        check = _Check(self.driver, params, self.context)
        blocks = [(start + at, size) for at, size in fields]
        enable = self.enable if can_be_disabled else None
        address = calls.set_memcpy if kind == "memcpy" else calls.set_memset
        in_c = self.in_c(address, start, int(self.context))
        return NodeSetter(kind, blocks, apply, enable, check, nbytes=nbytes, function=in_c)

    def in_c(self, address: int, *arguments: int) -> SetFunction | None:
        """Return a function that sets the parameters, as it is called from C; None without a condition."""
        current = self.driver.current_address
        arguments = int(self.executable), int(self.handle), *arguments
        return SetFunction(address, arguments, SameContext(current, int(self.context))) if current else None


def _kernel_setter(node: _Node) -> NodeSetter:
    driver = node.driver
    params = driver.call("cuGraphKernelNodeGetParams", node.handle)
    layouts: Layouts = {}
    blocks: list[bytes] = []
    arguments: list[Argument] | None = None
    try:
        blocks = [ctypes.string_at(*each) for each in kernel_blocks(driver, params, layouts)]
        arguments = places(driver, params, layouts)
    except UnsupportedError:
        pass
    buffers = [ctypes.create_string_buffer(each, len(each)) for each in blocks]
    starts = [ctypes.addressof(each) for each in buffers]
    array: Any = None
    size = ctypes.c_size_t(len(blocks[0]) if blocks else 0)
    if blocks and int(params.kernelParams):
        array = (ctypes.c_void_p * len(starts))(*starts)
        params.kernelParams = ctypes.addressof(array)
    elif blocks:
        array = (ctypes.c_void_p * 5)(POINTER, starts[0], SIZE, ctypes.addressof(size), None)
        params.extra = ctypes.addressof(array)
    function, kept = "cuGraphExecKernelNodeSetParams", (buffers, array, size)
    apply = _call(node, function, params, keeps=kept)
    places_of = zip(starts, map(len, blocks), strict=True)
    in_c = node.in_c(calls_of(driver).set_kernel, params.getPtr())
    return NodeSetter("kernel", places_of, apply, node.enable, arguments=arguments, function=in_c)


def _copy_setter(node: _Node) -> NodeSetter:
    params = node.driver.call("cuGraphMemcpyNodeGetParams", node.handle)
    sides = ("dst", "src") if is_plain(params) else ()
    fields = [(_ADDRESSES[str(address_field(params, side))], 8) for side in sides]
    params.Height = params.Depth = 1
    return node.in_struct("memcpy", params, fields, "cuGraphExecMemcpyNodeSetParams", params.WidthInBytes)


def _fill_setter(node: _Node) -> NodeSetter | None:
    params = node.driver.call("cuGraphMemsetNodeGetParams", node.handle)
    if params.height > 1:
        return None
    nbytes = params.elementSize * params.width
    function = "cuGraphExecMemsetNodeSetParams"
    return node.in_struct("memset", params, [_TARGET, _VALUE], function, nbytes, can_be_disabled=False)


_SETTERS: dict[str, Callable[[_Node], NodeSetter | None]] = {
    "kernel": _kernel_setter,
    "memcpy": _copy_setter,
    "memset": _fill_setter,
}


class _Check:
    """Refuses addresses and values that the driver takes although they are wrong."""

    def __init__(self, driver: Driver, params: Any, context: Any) -> None:
        self._driver = driver
        self._params = params
        self._context = context

    def __call__(self, after: Sequence[bytes]) -> None:
        params = self._params
        if hasattr(params, "elementSize"):
            target, value = (int.from_bytes(each, "little") for each in after)
            if value >= 1 << 8 * params.elementSize:
                raise ValueError(
                    f"the fill has elements of {params.elementSize} bytes, and {value} does not fit into "
                    "them; pass a smaller value."
                )
            self._compare(int(params.dst), target)
        else:
            for side, new in zip(("dst", "src"), after, strict=True):
                old = getattr(params, str(address_field(params, side)))
                self._compare(int(old), int.from_bytes(new, "little"))

    def _compare(self, old: int, new: int) -> None:
        if old == new:
            return
        with self._driver.current(self._context):
            (was, before), (now, context) = self._place(old), self._place(new)
        if was != now:
            raise ValueError(
                f"the memory at {new:#x} is not of the kind that was captured, of the device or of the host; "
                "pass memory of that kind, or capture again."
            )
        if before and context and before != context:
            raise ValueError(
                f"the memory at {new:#x} belongs to another context than the one that was captured; pass "
                "memory of that context, or capture again."
            )

    def _place(self, address: int) -> tuple[int, int]:
        """Return the type and the context of memory; 0 for what is not known."""
        kinds = self._driver.api.CUpointer_attribute
        wanted = [kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, kinds.CU_POINTER_ATTRIBUTE_CONTEXT]
        kind, context = self._driver.call("cuPointerGetAttributes", len(wanted), wanted, address)
        return int(kind), int(context)


def _call(node: _Node, function: str, *args: Any, keeps: object = None) -> Callable[[], None]:
    """Return a call of a function about a node, which keeps an object alive.

    The node's context is current meanwhile: without any, driver 580 crashes in
    ``cuGraphExecKernelNodeSetParams``.
    """
    driver, context = node.driver, node.context
    api, success = getattr(driver.api, function), driver.success
    args = node.executable, node.handle, *args

    def call(_keeps: object = keeps) -> None:
        with driver.current(context):
            try:
                (code,) = api(*args)
            except (RuntimeError, ValueError) as error:
                driver.broke(function, error)
            if code is not success:
                driver.failed(function, code)

    return call
