"""Where arrays lie, and their elements: contents are read, written and compared as bytes."""

from __future__ import annotations

import ctypes
import math
import random
import struct
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

from ..._arrays.arrays import ArrayType
from ..._arrays.placement import extent, place_of, works_on_host, writable
from ..._core.streams import Stream
from ...backends.memory import memory_of

_EPSILON = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
_COUNTS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
_COMPLEX = {"complex64": "float32", "complex128": "float64"}
_TYPES = {"f2": "float16", "f4": "float32", "f8": "float64", "c8": "complex64", "c16": "complex128"}
_TYPES |= {"e": "float16", "f": "float32", "d": "float64"}
"""The types whose names in an array interface, or in a buffer's format, are others."""
_CHUNK = 1 << 16
_MOST_SCALED = 1 << 20


class Elements(NamedTuple):
    """The type of an array's elements. A complex number counts as two elements."""

    name: str
    size: int
    """In bytes."""

    @classmethod
    def of(cls, name: str, size: int) -> Elements:
        """Make it of the name of a type, as NumPy and torch spell it, and the size of an element in bytes."""
        if name in _COMPLEX:
            name, size = _COMPLEX[name], size // 2
        return cls(name, size if size in _COUNTS else 1)

    @property
    def floating(self) -> bool:
        """Whether the elements are floating-point numbers that can be decoded."""
        return self.name in _EPSILON

    @property
    def epsilon(self) -> float:
        """The relative error of one rounding; 0 for elements that are not rounded."""
        return _EPSILON.get(self.name, 0.0)

    def pattern(self, which: int) -> bytes:
        """Return one of two values, with which memory is filled to see who writes it.

        They are harmless if they are read as a number or as an index.
        """
        if self.floating:
            return self.encoded([(0.28515625, 0.71875)[which]])
        return (1 - which).to_bytes(self.size, "little")

    def numbers(self, data: bytes) -> array[float]:
        """Decode floating-point numbers."""
        if self.name == "float16":
            return array("f", struct.unpack(f"<{len(data) // 2}e", data))
        if self.name == "bfloat16":  # the upper half of a single-precision number
            wide = bytearray(2 * len(data))
            wide[2::4], wide[3::4] = data[0::2], data[1::2]
            data = bytes(wide)
        found = array("d" if self.name == "float64" else "f")
        found.frombytes(data)
        return found

    def encoded(self, numbers: Iterable[float]) -> bytes:
        """Encode floating-point numbers."""
        found = array("d" if self.name == "float64" else "f", numbers)
        if self.name == "float16":
            return struct.pack(f"<{len(found)}e", *found)
        data = found.tobytes()
        if self.name == "bfloat16":
            narrow = bytearray(len(data) // 2)
            narrow[0::2], narrow[1::2] = data[2::4], data[3::4]
            data = bytes(narrow)
        return data

    def negated(self, data: bytes) -> bytes:
        """Return floating-point numbers with the other sign."""
        return _flipped(data, b"\x80".rjust(self.size, b"\0") * (len(data) // self.size))

    def off_by_one_rounding(self, data: bytes) -> bytes:
        """Return floating-point numbers of which about half differ in the last bit, unless there are many.

        Zeros stay zeros, and infinities and NaNs what they are.
        """
        if len(data) // self.size > _MOST_SCALED:
            return data
        numbers = self.numbers(data)
        chosen = random.Random(len(data)).randbytes(len(numbers))
        last = bytearray(len(data))
        last[:: self.size] = bytes(
            bit & 1 if x and math.isfinite(x) else 0 for bit, x in zip(chosen, numbers, strict=True)
        )
        return _flipped(data, bytes(last))

    def signs(self, data: bytes) -> set[bool]:
        """Return which signs floating-point numbers have: True for negative ones."""
        return {each > 127 for each in set(data[self.size - 1 :: self.size])}

    def turned(self, data: bytes) -> bytes:
        """Return the elements in another order."""
        turn = (len(data) // self.size // 3) * self.size
        return data[turn:] + data[:turn]

    def scaled(self, data: bytes, factor: float) -> bytes:
        """Return floating-point numbers times a factor of at most 1; many are turned, which is faster."""
        if factor == 1.0:
            return data
        if len(data) // self.size > _MOST_SCALED:
            return self.turned(data)
        return self.encoded(x * factor for x in self.numbers(data))


def _flipped(data: bytes, bits: bytes) -> bytes:
    """Return bytes with other values of these bits."""
    both = int.from_bytes(data, "little") ^ int.from_bytes(bits, "little")
    return both.to_bytes(len(data), "little")


class Difference(NamedTuple):
    """How two contents of one array differ."""

    indices: list[int]
    """Of the elements that differ."""
    largest: float
    """The largest difference of two numbers; infinite if it is not a number."""
    scale: float
    """The largest magnitude of the second contents."""


def differing(a: bytes, b: bytes, elements: Elements) -> list[int]:
    """Return the indices of the elements that differ in a byte."""
    if a == b:
        return []
    size, kind = elements.size, _COUNTS[elements.size]
    found = []
    for start in range(0, len(a), _CHUNK):
        one, other = a[start : start + _CHUNK], b[start : start + _CHUNK]
        if one != other:
            pairs = zip(memoryview(one).cast(kind), memoryview(other).cast(kind), strict=True)
            first = start // size
            found += [first + i for i, (x, y) in enumerate(pairs) if x != y]
    return found


def holding(data: bytes, value: bytes) -> list[int]:
    """Return the indices of the elements that hold a value."""
    size, found = len(value), []
    at = data.find(value)
    while at >= 0:
        if at % size == 0:
            found.append(at // size)
        at = data.find(value, at + 1)
    return found


def apart(x: float, y: float) -> float:
    """Return how far apart two numbers are: 0 for two NaNs, and infinity for a number and a NaN."""
    if x == y or (x != x and y != y):
        return 0.0
    gap = abs(x - y)
    return gap if gap == gap else math.inf


def difference(a: bytes, b: bytes, elements: Elements, ignored: frozenset[int]) -> Difference | None:
    """Return how contents differ from what they should be; None if they don't."""
    indices = [i for i in differing(a, b, elements) if i not in ignored]
    if not indices:
        return None
    if not elements.floating:
        return Difference(indices, math.inf, 1.0)
    ours, theirs = elements.numbers(a), elements.numbers(b)
    gaps = {i: apart(ours[i], theirs[i]) for i in indices}
    indices = [i for i, gap in gaps.items() if gap]
    if not indices:
        return None
    scale = max((abs(y) for i, y in enumerate(theirs) if i not in ignored and math.isfinite(y)), default=0.0)
    return Difference(indices, max(gaps.values()), scale)


class Place:
    """One array, under the name that reports have for it."""

    def __init__(self, array: Any, array_type: ArrayType, name: str) -> None:
        tracked = array_type.kind == "tensor" and array.requires_grad
        self.array = array.detach() if tracked else array
        self.array_type = array_type
        self.name = name
        self.writable = writable(array)
        if array_type.kind == "place":
            memory_of(array, None, writable=False, device=True)  # raises if the memory has gaps
        elif getattr(getattr(array, "dtype", None), "hasobject", False):
            raise TypeError(f"verify: an array of type {array.dtype} holds Python objects; pass plain data.")
        self.elements, self.shape, self.nbytes = _described(self.array, array_type)
        self.extent = extent(self.array)
        if self.extent is None and array_type.kind == "tensor":
            raise TypeError("verify: a sparse tensor has no memory of its own to compare; pass its values.")
        self._dense: Any = None
        self._host: bytearray | None = None

    @property
    def varies(self) -> bool:
        """Whether runs may begin with other numbers in the array."""
        return self.elements.floating and self.nbytes > 0 and self.writable

    @property
    def count(self) -> int:
        """The number of elements."""
        return self.nbytes // self.elements.size

    def pattern(self, which: int) -> bytes:
        """Return contents that nobody would write: one of two patterns."""
        return self.elements.pattern(which) * self.count

    def like(self, other: Place) -> bool:
        """Return True if another array has the same shape and type."""
        return (self.elements, self.shape) == (other.elements, other.shape)

    def overlaps(self, other: Place) -> bool:
        """Return True if two arrays share memory, as far as that is known."""
        if self.extent is None or other.extent is None:
            return self.array is other.array
        (a, b), (c, d) = self.extent, other.extent
        return a < d and c < b

    def read(self, stream: Stream) -> bytearray:
        """Copy the contents to the host, in C order; they are there once the stream was synchronised.

        The next call overwrites what this one returns: a fresh buffer would take longer than the copy.
        """
        if self._host is None:
            self._host = bytearray(self.nbytes)
        if self.nbytes:
            address = self._lay_dense()
            if self._is_reachable(stream):
                stream._backend.copy(stream._native, self._host, address, self.nbytes)
            else:
                self._host[:] = ctypes.string_at(address, self.nbytes)
        return self._host

    def write(self, stream: Stream, data: bytes) -> None:
        """Set the contents; `data` has to be kept until the stream was synchronised."""
        if not self.nbytes or not self.writable:
            return
        address = self._lay_dense()
        if self._is_reachable(stream):
            stream._backend.copy(stream._native, address, data, self.nbytes)
        else:
            ctypes.memmove(address, data, self.nbytes)
        if self._dense is self.array:
            return
        if works_on_host(stream):
            stream._backend.launch(stream._native, self.array_type.assign, self.array, self._dense)
        else:
            self.array_type.assign(self.array, self._dense)

    def fill(self, stream: Stream, value: int) -> None:
        """Set all bytes, if the array has no gaps."""
        address = self._lay_dense()
        if self._dense is self.array:
            stream._backend.fill(stream._native, address, value, self.nbytes)

    def _lay_dense(self) -> int:
        """Return the address of the array, or of a copy that lies in C order without gaps and is kept."""
        x, kind = self.array, self.array_type.kind
        if kind == "tensor":
            x = x.contiguous()
            x = x.resolve_conj().resolve_neg() if hasattr(x, "resolve_conj") else x
        elif kind == "array":
            dense = self.array_type.package.ascontiguousarray(x)
            x = x if dense is x else dense.reshape(x.shape)
        self._dense = x
        if kind == "tensor":
            return int(x.data_ptr())
        return memory_of(x, None, writable=False, device=True).address

    def _is_reachable(self, stream: Stream) -> bool:
        """Return True if the stream copies the array; else it is host memory beside a device."""
        return place_of(self.array)[0] is works_on_host(stream)


def _described(x: Any, array_type: ArrayType) -> tuple[Elements, tuple[int, ...], int]:
    """Return the elements of an array, its shape, and its size in bytes."""
    if array_type.kind == "tensor":
        name, size, shape = str(x.dtype).rpartition(".")[2], x.element_size(), x.shape
    elif array_type.kind == "buffer":
        with memoryview(x) as view:
            name, size, shape = view.format, view.itemsize, view.shape or ()
        name = _TYPES.get(name.lstrip("@=<"), name)
    else:
        interface = getattr(x, "__cuda_array_interface__", None) or x.__array_interface__
        name, shape = interface["typestr"], interface["shape"]
        size = int(name[2:].partition("[")[0]) * (4 if name[1] == "U" else 1)
        name = _TYPES.get(name.lstrip("<|="), name)
    shape = tuple(map(int, shape))
    return Elements.of(name, int(size)), shape, int(size) * math.prod(shape)


def readable(x: Any, stream: Stream) -> bool:
    """Return True if the memory of an array can be read beside a stream: host memory, or the device's own."""
    on_host, device = place_of(x)
    return on_host or (not works_on_host(stream) and device in (None, stream.device))


def read_all(
    stream: Stream, places: Sequence[Place], known: Mapping[Place, bytes] | None = None
) -> list[bytes]:
    """Return the contents of arrays, once all work on the stream is done; `known` ones without a copy."""
    wait(stream)  # ordinary NumPy makes the copies of arrays with gaps, at once
    found = [place.read(stream) for place in places]
    wait(stream)
    known = known or {}
    return [
        known[place] if place in known and data.startswith(known[place]) else bytes(data)  # equally long
        for place, data in zip(places, found, strict=True)
    ]


class Hanging(BaseException):
    """Raised when work does not end. No handler for errors of the verified function catches it."""


patience: ContextVar[float | None] = ContextVar("patience", default=None)
"""How many seconds to wait for a stream at most; None for ever."""


def wait(stream: Stream, other: Any = None) -> None:
    """Wait for the work of a stream, or of another one that only the backend knows.

    Raise `Hanging` if it takes longer than there is `patience`.
    """
    limit, native = patience.get(), stream._native if other is None else other
    end, pause = time.monotonic() + (limit or 0.0), 0.0001
    with stream._relaxed():
        while limit is not None and not stream._backend.query(native):
            if time.monotonic() > end:
                raise Hanging
            time.sleep(pause)
            pause = min(2 * pause, 0.01)
        stream._backend.synchronize(native)  # raises what the work has raised
