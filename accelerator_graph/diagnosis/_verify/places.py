"""Where arrays lie, and their elements: contents are read, written and compared as bytes."""

from __future__ import annotations

import ctypes
import math
import random
import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ..._arrays.arrays import ArrayType
from ..._arrays.placement import extent, place_of, works_on_host, writable
from ..._core.streams import Stream
from ...backends.memory import memory_of

_EPSILON = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
_FORMATS = {"float16": "e", "float32": "f", "float64": "d"}
_COUNTS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
_COMPLEX = {"complex64": "float32", "complex128": "float64"}
_CHUNK = 1 << 16
_MOST_SCALED = 1 << 20
_TYPES = {"f2": "float16", "f4": "float32", "f8": "float64", "c8": "complex64", "c16": "complex128"}
_NOTHING: Mapping[Any, bytes] = {}
_LETTERS = {"e": "f2", "f": "f4", "d": "f8"}


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
        if self.name == "bfloat16":
            return struct.pack("<f", (0.28515625, 0.71875)[which])[2:]
        if self.floating:
            return struct.pack(f"<{_FORMATS[self.name]}", (0.28515625, 0.71875)[which])
        return (1 - which).to_bytes(self.size, "little")

    def numbers(self, data: bytes) -> array[float]:
        """Decode floating-point numbers."""
        if self.name == "float16":
            return array("f", struct.unpack(f"<{len(data) // 2}e", data))
        found = array("d" if self.name == "float64" else "f")
        found.frombytes(_widened(data) if self.name == "bfloat16" else data)
        return found

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
        scaled = array("d" if self.name == "float64" else "f", (x * factor for x in self.numbers(data)))
        if self.name == "float16":
            return struct.pack(f"<{len(scaled)}e", *scaled)
        return _narrowed(scaled.tobytes()) if self.name == "bfloat16" else scaled.tobytes()


def _flipped(data: bytes, bits: bytes) -> bytes:
    """Return bytes with other values of these bits."""
    both = int.from_bytes(data, "little") ^ int.from_bytes(bits, "little")
    return both.to_bytes(len(data), "little")


def _widened(data: bytes) -> bytes:
    """Return single-precision numbers for those of the type bfloat16, which is their upper half."""
    wide = bytearray(2 * len(data))
    wide[2::4], wide[3::4] = data[0::2], data[1::2]
    return bytes(wide)


def _narrowed(data: bytes) -> bytes:
    out = bytearray(len(data) // 2)
    out[0::2], out[1::2] = data[2::4], data[3::4]
    return bytes(out)


class Difference(NamedTuple):
    """How two contents of one array differ."""

    indices: list[int]
    """Of the elements that differ."""
    largest: float
    """The largest difference of two numbers; infinite if it is not a number."""
    scale: float
    """The largest magnitude of the second contents."""

    @property
    def relative(self) -> float:
        """The largest difference relative to the magnitude."""
        return self.largest / self.scale if self.scale else math.inf


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


def difference(a: bytes, b: bytes, elements: Elements, ignored: frozenset[int]) -> Difference | None:
    """Return how contents differ from what they should be; None if they don't."""
    indices = [i for i in differing(a, b, elements) if i not in ignored]
    if not indices:
        return None
    if not elements.floating:
        return Difference(indices, math.inf, 1.0)
    ours, theirs = elements.numbers(a), elements.numbers(b)
    largest, changed = 0.0, []
    for i in indices:
        x, y = ours[i], theirs[i]
        if x == y or (x != x and y != y):  # zeros of two signs, or two NaNs
            continue
        changed.append(i)
        gap = abs(x - y)
        largest = max(largest, gap if gap == gap else math.inf)
    if not changed:
        return None
    scale = max((abs(y) for i, y in enumerate(theirs) if i not in ignored and math.isfinite(y)), default=0.0)
    return Difference(changed, largest, scale)


class Place:
    """One array, under the name that reports have for it."""

    def __init__(self, array: Any, array_type: ArrayType, name: str) -> None:
        tracked = array_type.kind == "tensor" and array.requires_grad
        self.array = array.detach() if tracked else array
        self.array_type = array_type
        self.name = name
        self.writable = writable(array)
        _check_plain(array, array_type)
        self.elements, self.shape, self.nbytes = _described(self.array, array_type)
        self.extent = extent(self.array)
        if self.extent is None and array_type.kind == "tensor":
            raise TypeError("verify: a sparse tensor has no memory of its own to compare; pass its values.")
        self._dense: Any = None
        self._host: bytearray | None = None

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
        data = self._host
        if not self.nbytes:
            return data
        self._dense = _contiguous(self.array, self.array_type)  # kept until the copy is done
        if _reachable(self.array, stream):
            stream._backend.copy(stream._native, data, _address(self._dense, self.array_type), self.nbytes)
        else:
            data[:] = ctypes.string_at(_address(self._dense, self.array_type), self.nbytes)
        return data

    def write(self, stream: Stream, data: bytes | bytearray) -> None:
        """Set the contents; `data` has to be kept until the stream was synchronised."""
        if not self.nbytes or not self.writable:
            return
        dense = self._dense = _contiguous(self.array, self.array_type)
        if not _reachable(self.array, stream):
            ctypes.memmove(_address(dense, self.array_type), bytes(data), self.nbytes)
        else:
            stream._backend.copy(stream._native, _address(dense, self.array_type), data, self.nbytes)
        if dense is not self.array:
            self._assign(stream, dense)

    def fill(self, stream: Stream, value: int) -> None:
        """Set all bytes, if the array has no gaps."""
        if _contiguous(self.array, self.array_type) is self.array:
            stream._backend.fill(stream._native, _address(self.array, self.array_type), value, self.nbytes)

    def _assign(self, stream: Stream, dense: Any) -> None:
        if works_on_host(stream):
            stream._backend.launch(stream._native, self.array_type.assign, self.array, dense)
        else:
            self.array_type.assign(self.array, dense)

    @property
    def count(self) -> int:
        """The number of elements."""
        return self.nbytes // self.elements.size

    def pattern(self, which: int) -> bytes:
        """Return contents that nobody would write: one of two patterns."""
        return self.elements.pattern(which) * self.count


def _check_plain(x: Any, array_type: ArrayType) -> None:
    """Raise TypeError or ValueError for memory that can't be copied as bytes."""
    if array_type.kind == "place":
        memory_of(x, None, writable=False, device=True)
    elif getattr(getattr(x, "dtype", None), "hasobject", False):
        raise TypeError(f"verify: an array of type {x.dtype} holds Python objects; pass plain data.")


def readable(x: Any, stream: Stream) -> bool:
    """Return True if the memory of an array can be read beside a stream: host memory, or the device's own."""
    on_host, device = place_of(x)
    return on_host or (not works_on_host(stream) and device in (None, stream.device))


def read_all(stream: Stream, places: Sequence[Place], known: Mapping[Place, bytes] = _NOTHING) -> list[bytes]:
    """Return the contents of arrays, once all work on the stream is done; `known` ones without a copy."""
    wait(stream)  # ordinary NumPy makes the copies of arrays with gaps, at once
    found = [place.read(stream) for place in places]
    wait(stream)
    contents = []
    for place, data in zip(places, found, strict=True):
        before = known.get(place)
        if before is not None and data.startswith(before):  # they are equally long
            contents.append(before)
        else:
            contents.append(bytes(data))
    return contents


def wait(stream: Stream) -> None:
    """Wait for a stream's work."""
    with stream._relaxed():
        stream._backend.synchronize(stream._native)


def _described(x: Any, array_type: ArrayType) -> tuple[Elements, tuple[int, ...], int]:
    if array_type.kind == "tensor":
        size, shape = int(x.element_size()), tuple(map(int, x.shape))
        name = str(x.dtype).rpartition(".")[2]
        return Elements.of(name, size), shape, size * int(x.numel())
    if array_type.kind == "buffer":
        with memoryview(x) as view:
            letter = view.format.lstrip("@=<")
            kind = _LETTERS.get(letter, "")
            return (
                Elements.of(_TYPES.get(kind, view.format), view.itemsize),
                tuple(view.shape or ()),
                view.nbytes,
            )
    interface = getattr(x, "__cuda_array_interface__", None) or x.__array_interface__
    typestr, shape = interface["typestr"], tuple(interface["shape"])
    size = int(typestr[2:].partition("[")[0]) * (4 if typestr[1] == "U" else 1)
    nbytes = size
    for extent_ in shape:
        nbytes *= extent_
    return Elements.of(_TYPES.get(typestr[1:], typestr), size), shape, nbytes


def _contiguous(x: Any, array_type: ArrayType) -> Any:
    """Return the array if it lies in C order without gaps, else a copy that does."""
    if array_type.kind == "tensor":
        return x.contiguous().resolve_conj().resolve_neg() if hasattr(x, "resolve_conj") else x.contiguous()
    if array_type.kind == "array":
        return array_type.package.ascontiguousarray(x).reshape(x.shape)
    return x


def _address(x: Any, array_type: ArrayType) -> int:
    if array_type.kind == "tensor":
        return int(x.data_ptr())
    return memory_of(x, None, writable=False, device=True).address


def _reachable(x: Any, stream: Stream) -> bool:
    """Return True if the stream copies the array; else it is host memory beside a device."""
    return place_of(x)[0] is works_on_host(stream)
