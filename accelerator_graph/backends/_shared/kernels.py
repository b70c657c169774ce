"""A kernel's geometry and arguments, as ``cuLaunchKernel`` and ``hipModuleLaunchKernel`` take them."""

from __future__ import annotations

import ctypes
from operator import index
from typing import Any

from ..._interpreter import integer

_WAY_OUT = "pass a ctypes scalar such as ctypes.c_int(3), or a NumPy scalar"


def geometry(grid: Any, block: Any, shared_bytes: Any) -> tuple[int, ...]:
    """Return the dimensions of the grid and of a block, and the bytes of dynamic shared memory."""
    dimensions = (*_extent(grid, "grid"), *_extent(block, "block"))
    size = integer(shared_bytes, "shared_bytes")
    if not 0 <= size < 1 << 32:
        raise ValueError(f"shared_bytes must be 0 to 2**32 - 1, not {size}.")
    return (*dimensions, size)


def _extent(value: Any, name: str) -> tuple[int, ...]:
    """Return three dimensions for an int or a sequence of up to three."""
    try:
        sizes = tuple(map(index, value)) if isinstance(value, tuple | list) else (index(value),)
    except TypeError:
        raise TypeError(f"{name} must be an int or a tuple of up to three, not {value!r}.") from None
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1 or max(sizes) >= 1 << 32:
        raise ValueError(f"{name} must have one to three dimensions of 1 to 2**32 - 1, not {value!r}.")
    return (*sizes, 1, 1)[:3]


def kernel_handle(kernel: Any) -> int:
    """Return the handle of a kernel: an int, an object of the binding, or one with `handle`."""
    handle = getattr(kernel, "handle", kernel)
    try:
        if isinstance(handle, bool | float | str):
            raise TypeError
        address = int(handle)
    except (TypeError, ValueError):
        raise TypeError(
            f"{type(kernel).__name__!r} object is not a kernel; pass a kernel that was loaded from a module, "
            "its handle as an int, or an object whose `handle` is one."
        ) from None
    if not 0 < address < 1 << 64:
        raise ValueError(f"{address} is not the handle of a kernel; pass one that has been loaded.")
    return address


class Arguments:
    """The arguments of one launch: an array of pointers to their values, which it keeps alive."""

    __slots__ = ("_array", "_values", "pointer")

    pointer: int
    """Address of the array; 0 if there are no arguments."""

    def __init__(self, args: tuple[Any, ...], pointer_type: type) -> None:
        self._values = [_value(arg, position, pointer_type) for position, arg in enumerate(args)]
        self._array = (ctypes.c_void_p * len(args))(*map(ctypes.addressof, self._values))
        self.pointer = ctypes.addressof(self._array) if args else 0


def _value(arg: Any, position: int, pointer_type: type) -> Any:
    """Return the ctypes object that holds an argument's value."""
    try:
        ctypes.addressof(arg)
    except TypeError:
        pass
    else:
        return arg
    if isinstance(arg, pointer_type):
        return ctypes.c_uint64(int(arg))  # type: ignore[call-overload]
    interface = getattr(arg, "__cuda_array_interface__", None)
    if interface is not None:
        return ctypes.c_uint64(_pointer(interface, position))
    if hasattr(arg, "dtype") and hasattr(arg, "tobytes"):
        if arg.shape != ():
            raise TypeError(
                f"argument {position} of the kernel is an array in host memory, which a kernel can't reach; "
                "pass an array in device memory."
            )
        data = arg.tobytes()
        return (ctypes.c_char * len(data)).from_buffer_copy(data)
    if isinstance(arg, int | float | complex):
        raise TypeError(
            f"argument {position} of the kernel is a Python {type(arg).__name__}, whose width a kernel can't "
            f"know; {_WAY_OUT}."
        )
    raise TypeError(
        f"argument {position} of the kernel is a {type(arg).__name__!r} object, which can't be passed; "
        f"{_WAY_OUT}, or an object with __cuda_array_interface__."
    )


def _pointer(interface: Any, position: int) -> int:
    try:
        return index(interface["data"][0] or 0)
    except (LookupError, TypeError):
        raise TypeError(
            f"argument {position} of the kernel has a __cuda_array_interface__ without an address; pass an "
            "array in device memory."
        ) from None
