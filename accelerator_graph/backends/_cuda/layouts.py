"""The parameters of kernels and copies, as the driver's own structs have them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from ..base import Argument
from .driver import Driver

POINTER, SIZE = 1, 2
"""What stands before the address and the size of a block of parameters: ``CU_LAUNCH_PARAM_BUFFER_...``."""

_INVALID_VALUE = 1
_MOST_PARAMETERS = 1 << 12

Layouts = dict[int, list[tuple[int, int]]]
"""Offset and size of each of a function's parameters."""

_FIELDS = {"CU_MEMORYTYPE_DEVICE": "Device", "CU_MEMORYTYPE_HOST": "Host", "CU_MEMORYTYPE_UNIFIED": "Device"}


def address_field(copy: Any, side: str) -> str | None:
    """Return the name of the field that has the address of one side of a copy; None for an array."""
    suffix = _FIELDS.get(getattr(copy, f"{side}MemoryType").name)
    return None if suffix is None else side + suffix


def address(copy: Any, side: str) -> int | None:
    """Return the address of one side of a copy; None for an array."""
    field = address_field(copy, side)
    return None if field is None else int(getattr(copy, field))


def is_plain(copy: Any) -> bool:
    """Return True for a copy of one row between memories that are not arrays."""
    one_row = copy.Height <= 1 and copy.Depth <= 1
    return one_row and None not in (address_field(copy, "dst"), address_field(copy, "src"))


def kernel_blocks(driver: Driver, params: Any, layouts: Layouts) -> Iterator[tuple[int, int]]:
    """Yield address and size of each parameter of a kernel node, or of the block that holds all."""
    if int(params.kernelParams):
        found = layout(driver, params, layouts)
        where = (ctypes.c_void_p * len(found)).from_address(int(params.kernelParams))
        yield from ((at or 0, size) for at, (_, size) in zip(where, found, strict=True))
    elif int(params.extra):
        yield _block(int(params.extra))


def layout(driver: Driver, params: Any, layouts: Layouts) -> list[tuple[int, int]]:
    """Return offset and size of each parameter of a kernel node's function.

    Raises `UnsupportedError` if the driver is too old to tell that.
    """
    function = int(params.func) or int(params.kern)
    if function not in layouts:
        layouts[function] = list(_layout(driver, params))
    return layouts[function]


def _layout(driver: Driver, params: Any) -> Iterator[tuple[int, int]]:
    """Yield offset and size of each parameter: the driver answers an error for the one after the last."""
    name, function = "cuFuncGetParamInfo", params.func
    if not int(function):
        name, function = "cuKernelGetParamInfo", params.kern
    for number in range(_MOST_PARAMETERS):
        answer = driver.answer(name, function, number)
        if int(answer[0]) == _INVALID_VALUE:
            return
        offset, size = driver.checked(name, answer)
        yield int(offset), int(size)


def places(driver: Driver, params: Any, layouts: Layouts) -> list[Argument]:
    """Return where each of a kernel's arguments lies among `kernel_blocks`.

    Raises `UnsupportedError` if the driver is too old to tell that.
    """
    found = layout(driver, params, layouts)
    if int(params.kernelParams):
        return [Argument(block, 0, size) for block, (_, size) in enumerate(found)]
    return [Argument(0, offset, size) for offset, size in found]


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
