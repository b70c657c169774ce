"""Finds the memory behind an object, for any backend, and how much of the heap is in use."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .._interpreter import integer, text_of

if TYPE_CHECKING:
    from typing_extensions import Buffer


_END = 1 << 64
"""The end of all addresses. ctypes would cut a larger number of bytes off without a word."""


class Memory(NamedTuple):
    """A block of memory without gaps."""

    address: int
    nbytes: int
    owner: object
    """The object to keep alive as long as the address is used; None for a bare address."""


def memory_of(obj: object, nbytes: int | None, *, writable: bool, device: bool) -> Memory:
    """Find the memory behind an object, without copying.

    Parameters
    ----------
    obj : object
        An address as `int`, or an object with ``__cuda_array_interface__``, the buffer protocol or
        ``__array_interface__``, tried in this order. Its elements must lie in C order, without gaps.
    nbytes : int, optional
        How many bytes from its beginning; all of it if None. Required for an address.
    writable : bool
        Whether the memory is going to be written.
    device : bool
        Whether device memory is accepted; if not, it is a `TypeError`.

    Returns
    -------
    Memory
        Keep its owner as long as the address is used. For an object with the buffer protocol the owner is
        a `memoryview`, so that a `bytearray` can't be resized meanwhile.

    Raises
    ------
    TypeError
        The object has no memory that can be used here, or `nbytes` is not an integer.
    ValueError
        The memory has gaps, is read-only but should be written, is smaller than `nbytes`, or reaches beyond
        the last address.
    """
    if nbytes is not None:
        nbytes = integer(nbytes, "nbytes")
        if nbytes < 0:
            raise ValueError(f"nbytes must not be negative, but is {nbytes}.")
    if isinstance(obj, int) and not isinstance(obj, bool):
        return _at_address(obj, nbytes)
    memory, readonly = _behind(obj, device)
    if writable and readonly:
        raise ValueError(f"{_named(obj)} is read-only and can't be written; pass memory that is writable.")
    if nbytes is None:
        return memory
    if nbytes > memory.nbytes:
        raise ValueError(
            f"{_named(obj)} has {memory.nbytes} bytes, not {nbytes}; pass a smaller nbytes or more memory."
        )
    return memory._replace(nbytes=nbytes)


def elements_of(obj: object) -> tuple[str, int] | None:
    """Return the type and the size of an array's elements; None for plain bytes, or if they are not known.

    Memory without a type is plain bytes: an address, a `bytearray`, a `memoryview` of bytes.

    Returns
    -------
    tuple
        The type as array interfaces name it, such as ``"<f4"``, and the size in bytes.
        Structures, and torch's ``bfloat16``, have ``V`` and their size.
    """
    for name in ("__cuda_array_interface__", "__array_interface__"):
        try:
            typestr = getattr(obj, name)["typestr"]
            return typestr, int(typestr[2:].partition("[")[0]) * (4 if typestr[1] == "U" else 1)
        except Exception:  # whatever is wrong with the array, `memory_of` reports it
            continue
    try:
        view = memoryview(cast("Buffer", obj))
    except (TypeError, ValueError, BufferError):
        return None
    code = view.format.lstrip("@=<>!^")
    order, kind, size = view.format[: -len(code)], _KINDS.get(code), view.itemsize
    if kind is None or view.format in ("B", "b", "c"):
        return None
    little = sys.byteorder == "little" if order in ("", "@", "=", "^") else order == "<"
    return f"{'|' if size == 1 else '<' if little else '>'}{kind}{size}", size


_KINDS = {
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("BHILQN", "u"),
    **dict.fromkeys("efdg", "f"),
    **dict.fromkeys(("Zf", "Zd", "Zg"), "c"),
    "?": "b",
}
"""The kinds of array interfaces by the codes of `struct`."""


def _named(obj: object) -> str:
    return f"the memory of the {type(obj).__name__!r} object"


def _at_address(address: int, nbytes: int | None) -> Memory:
    if nbytes is None:
        raise ValueError(f"the address {address:#x} does not say how large its memory is; pass nbytes.")
    if not 0 < address < _END:
        raise ValueError(f"{address:#x} is not the address of memory; pass one from 1 to 2**64 - 1.")
    return _within_bounds(Memory(address, nbytes, None))


def _within_bounds(memory: Memory) -> Memory:
    if memory.address + memory.nbytes > _END:
        raise ValueError(
            f"{memory.nbytes} bytes from the address {memory.address:#x} on reach beyond 2**64; "
            "pass a smaller nbytes."
        )
    return memory


def _behind(obj: object, device: bool) -> tuple[Memory, bool]:
    """Return all the memory behind `obj`, and whether it is read-only."""
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is not None:
        if not device:
            raise TypeError(
                f"{_named(obj)} is device memory; pass host memory, or use the device's own stream."
            )
        return _from_interface(obj, interface)
    try:
        view = memoryview(cast("Buffer", obj))
    except (TypeError, ValueError, BufferError):  # not a buffer, or one in a format unknown to Python
        view = None
    if view is not None:
        return _from_view(obj, view)
    interface = getattr(obj, "__array_interface__", None)
    if interface is not None:
        return _from_interface(obj, interface)
    raise TypeError(
        f"{type(obj).__name__!r} object has no memory that can be found; pass an address, a buffer, or an "
        f"object with __array_interface__{' or __cuda_array_interface__' if device else ''}."
    )


def _from_view(obj: object, view: memoryview) -> tuple[Memory, bool]:
    if not view.c_contiguous:
        raise _not_contiguous(obj)
    if "O" in re.sub(":[^:]*:", "", view.format):  # the names of fields stand between colons
        raise _python_objects(obj)
    return Memory(_address_of(view), view.nbytes, view), view.readonly


def _from_interface(obj: object, interface: Any) -> tuple[Memory, bool]:
    try:
        shape, typestr = tuple(map(index, interface["shape"])), interface["typestr"]
        data, strides = interface["data"], interface.get("strides")
        kind = typestr[1]  # after the byte order, and before the size
        itemsize = int(typestr[2:].partition("[")[0]) * (4 if kind == "U" else 1)
        plain = interface.get("mask") is None and kind != "t" and isinstance(data, tuple)
        address, readonly = (index(data[0] or 0), bool(data[1])) if plain else (0, False)
        steps = None if strides is None else tuple(map(index, strides))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise TypeError(
            f"{_named(obj)} can't be found: its array interface is not valid ({text_of(error)}); pass an "
            "address or another object."
        ) from error
    if not plain:
        raise TypeError(f"{_named(obj)} has a mask, bit fields or no address; pass its plain data.")
    if kind == "O":
        raise _python_objects(obj)
    nbytes = prod(shape) * itemsize
    if steps is not None and nbytes:
        step = itemsize
        for extent, stride in zip(reversed(shape), reversed(steps), strict=True):
            if extent != 1 and stride != step:
                raise _not_contiguous(obj)
            step *= extent
    return _within_bounds(Memory(address, nbytes, obj)), readonly


def _not_contiguous(obj: object) -> ValueError:
    return ValueError(f"{_named(obj)} is not contiguous in C order; pass a contiguous copy of it.")


def _python_objects(obj: object) -> TypeError:
    return TypeError(f"{_named(obj)} holds references to Python objects; pass plain data.")


class _PyBuffer(ctypes.Structure):
    """`Py_buffer`, as the C API lays it out."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


# Prototypes of our own: those of `ctypes.pythonapi` are shared with other libraries.
_get_buffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi)
)
_release_buffer = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_PyBuffer))(("PyBuffer_Release", ctypes.pythonapi))


def _address_of(view: memoryview) -> int:
    """Return where a view begins. ctypes' ``from_buffer`` would do, but for read-only memory."""
    buffer = _PyBuffer()
    _get_buffer(view, buffer, 0)  # PyBUF_SIMPLE
    try:
        return buffer.buf or 0
    finally:
        _release_buffer(buffer)


class _Span(ctypes.Structure):
    """An ``iovec``."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def is_readable(address: int) -> bool | None:
    """Return whether the system lets the process read the memory at an address; None where it does not tell.

    False alone proves nothing: the host can't read a device's memory.
    """
    read = _process_vm_readv()
    if read is None:
        return None
    byte = ctypes.c_char()
    to, of = _Span(ctypes.addressof(byte), 1), _Span(address, 1)
    # One call: a file of the system's maps would be open for a while, and an interrupt could leave it open.
    if read(os.getpid(), ctypes.byref(to), 1, ctypes.byref(of), 1, 0) == 1:
        return True
    return False if ctypes.get_errno() == errno.EFAULT else None


@cache
def _process_vm_readv() -> Callable[..., int] | None:
    """Return the function of Linux that copies from memory, and fails where that can't be read."""
    try:
        function = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (OSError, AttributeError, TypeError):  # TypeError: on Windows
        return None
    span, number = ctypes.POINTER(_Span), ctypes.c_ulong
    function.argtypes = (ctypes.c_int, span, number, span, number, number)
    function.restype = ctypes.c_ssize_t
    found: Callable[..., int] = function
    return found


def heap_bytes() -> int | None:
    """Return the bytes that the C library has given out; None where it does not report.

    Python's own small objects are not among them, and neither is memory that a library maps itself.
    """
    ask = _mallinfo()
    if ask is None:
        return None
    info = ask()
    return int(info.uordblks + info.hblkhd)


@cache
def _mallinfo() -> Callable[[], Any] | None:
    """Return ``mallinfo2`` of the GNU C library 2.33 and later."""

    class Information(ctypes.Structure):
        _fields_ = (
            *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
            *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
        )

    try:
        function = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError, TypeError):  # TypeError: on Windows
        return None
    function.restype, function.argtypes = Information, ()
    return function
