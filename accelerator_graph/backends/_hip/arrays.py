"""hip-python's pointers and arrays, as every library understands them."""

from __future__ import annotations

from typing import Any


def plain(obj: Any, pointer_type: type) -> Any:
    """Return the address of a pointer, or device memory for an array; any other object as it is."""
    if not isinstance(obj, pointer_type):
        return obj
    pointer: Any = obj
    if hasattr(pointer, "itemsize"):  # an array, whose own interface has no valid type string
        return _DeviceMemory(int(pointer), pointer.size * pointer.itemsize, pointer.is_read_only)
    return int(pointer)


class _DeviceMemory:
    def __init__(self, address: int, nbytes: int, read_only: bool) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, read_only),
            "version": 3,
        }
