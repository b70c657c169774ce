"""Arrays of Python that describe themselves to C, as DLPack has it."""

from __future__ import annotations

import ctypes

MAJOR = 1


class Described(ctypes.Structure):
    """A ``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


Tell = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Described))
WorkStream = ctypes.PYFUNCTYPE(ctypes.c_int, *[ctypes.c_int32] * 2, ctypes.POINTER(ctypes.c_void_p))


class Exchange(ctypes.Structure):
    """A ``DLPackExchangeAPI``; the functions that nobody calls here are missing."""


Exchange._fields_ = (
    ("version", ctypes.c_uint32 * 2),
    ("previous", ctypes.POINTER(Exchange)),
    ("unused", ctypes.c_void_p * 3),
    ("tell", Tell),
    ("work_stream", WorkStream),
)

_kept = []


def extents(numbers):
    return (ctypes.c_int64 * max(len(numbers), 1))(*numbers)


def exchange(describe, *versions, current=None):
    """Return a type's ``__dlpack_c_exchange_api__``, the newest version first.

    `describe` returns address, shape, strides or None, device and dtype of an array, or None if it can't.
    `current` returns the handle of the current stream of a device, or None if it can't.
    """

    @Tell
    def tell(x, place):
        found = describe(x)
        if found is None:
            return -1
        address, shape, strides, device, dtype = found
        here = place[0]
        x.described = extents(shape), None if strides is None else extents(strides)
        here.data, here.ndim, here.byte_offset = address // 2, len(shape), address - address // 2
        here.device[:], here.dtype[:] = device, dtype
        here.shape = x.described[0]
        here.strides = ctypes.POINTER(ctypes.c_int64)() if strides is None else x.described[1]
        return 0

    @WorkStream
    def work_stream(device_type, device, place):
        handle = current((device_type, device))
        place[0] = handle
        return -1 if handle is None else 0

    if current is None:
        work_stream = WorkStream(0)
    previous = ctypes.POINTER(Exchange)()
    for version in reversed(versions or (MAJOR,)):
        functions = tell if version == MAJOR else Tell(0)
        made = Exchange((version, 0), previous, (0, 0, 0), functions, work_stream)
        previous = ctypes.pointer(made)
        _kept.append((made, tell, work_stream))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(ctypes.addressof(made), b"dlpack_exchange_api", None)


class Array:
    """An array at some address."""

    def __init__(self, address=4096, shape=(2, 3), strides=(3, 1), device=(2, 0), dtype=(2, 32, 1, 0)):
        self.told = address, shape, strides, device, dtype
        self.requires_grad = False
        self.altered = False

    __dlpack_c_exchange_api__ = exchange(lambda x: x.told)


class Other(Array):
    """An array of another type."""
