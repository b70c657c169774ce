"""Where arrays lie: their contents are read, written and compared as bytes, whatever made the arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from ..._arrays.arrays import ArrayType
from ..._arrays.placement import extent, place_of, works_on_host, writable
from ..._core.streams import Stream
from ...backends.memory import memory_of
from .elements import Elements

_TYPES = {"f2": "float16", "f4": "float32", "f8": "float64", "c8": "complex64", "c16": "complex128"}
_NOTHING: Mapping[Any, bytes] = {}
_LETTERS = {"e": "f2", "f": "f4", "d": "f8"}


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
