"""Finds the memory behind an object: USM, host memory, or an address."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy
from dpctl.memory import MemoryUSMDevice, MemoryUSMHost, MemoryUSMShared


class Memory(NamedTuple):
    """A block of memory without gaps."""

    address: int
    nbytes: int


def memory_of(obj: Any, nbytes: int | None, *, writable: bool, host: bool) -> Memory:
    """Find the first `nbytes` bytes of an object, by default all.

    Parameters
    ----------
    obj : object
        An object with ``__sycl_usm_array_interface__``, or an address as `int`, which needs `nbytes`.
    nbytes : int, optional
        How many bytes; all of it if None.
    writable : bool
        Whether it is going to be written.
    host : bool
        Whether objects with the buffer protocol are accepted as well.

    Raises
    ------
    TypeError
        The object has no memory that can be used here.
    ValueError
        The memory has gaps, can't be written, or is too small.
    """
    if isinstance(obj, int) and not isinstance(obj, bool):
        return _at_address(obj, nbytes)
    interface = getattr(obj, "__sycl_usm_array_interface__", None)
    if interface is not None:
        address, size, readonly = _from_interface(obj, interface)
    elif host:
        address, size, readonly = _from_buffer(obj)
    else:
        raise TypeError(
            f"{type(obj).__name__!r} object is not USM memory; pass an object of dpctl.memory, or one with "
            "__sycl_usm_array_interface__."
        )
    if writable and readonly:
        raise ValueError(f"{_named(obj)} is read-only; pass memory that can be written.")
    if nbytes is not None and not 0 <= nbytes <= size:
        raise ValueError(
            f"{_named(obj)} has {size} bytes, not {nbytes}; pass a smaller nbytes or more memory."
        )
    return Memory(address, size if nbytes is None else nbytes)


def _named(obj: Any) -> str:
    return f"the memory of the {type(obj).__name__!r} object"


def _at_address(address: int, nbytes: int | None) -> Memory:
    if nbytes is None:
        raise ValueError(f"the address {address:#x} does not say how large its memory is; pass nbytes.")
    if not 0 < address < 1 << 64 or nbytes < 0:
        raise ValueError(f"there are no {nbytes} bytes of memory at {address:#x}; pass an address from 1.")
    return Memory(address, nbytes)


def _from_interface(obj: Any, interface: Any) -> tuple[int, int, bool]:
    shape, itemsize = interface["shape"], numpy.dtype(interface["typestr"]).itemsize
    pointer, readonly = interface["data"]
    strides, step = interface.get("strides"), 1
    for extent, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if extent > 1 and stride != step:
            raise ValueError(f"{_named(obj)} is not contiguous in C order; pass a contiguous copy of it.")
        step *= extent
    address = int(pointer) + int(interface.get("offset", 0)) * itemsize
    if isinstance(obj, MemoryUSMDevice | MemoryUSMHost | MemoryUSMShared):
        readonly = False  # they say True, where arrays say whether they can't be written
    return address, prod(shape) * itemsize, bool(readonly)


def _from_buffer(obj: Any) -> tuple[int, int, bool]:
    try:
        view = memoryview(obj)
    except TypeError:
        raise TypeError(
            f"{type(obj).__name__!r} object has no memory that can be found; pass an object of dpctl.memory, "
            "or one with __sycl_usm_array_interface__ or the buffer protocol."
        ) from None
    if not view.c_contiguous:
        raise ValueError(f"{_named(obj)} is not contiguous in C order; pass a contiguous copy of it.")
    if not view.nbytes:
        return 0, 0, view.readonly
    array = numpy.frombuffer(view, numpy.uint8)
    return int(array.__array_interface__["data"][0]), view.nbytes, view.readonly
