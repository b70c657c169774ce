"""The elements of arrays: how they are compared, and which values stand for "nobody has written this"."""

from __future__ import annotations

import math
import struct
from array import array
from typing import Literal, NamedTuple

_EPSILON = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
_FORMATS = {"float16": "e", "float32": "f", "float64": "d"}
_COUNTS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
_COMPLEX = {"complex64": "float32", "complex128": "float64"}
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
