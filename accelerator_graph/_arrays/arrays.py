"""Arrays of any library, recognised by what they can do: how each type is described and copied."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..interop import registry as interop
from ..interop.base import Framework
from .placement import check_place, extent, writable

if TYPE_CHECKING:
    from .._core.streams import Stream

Read = Callable[[Any, list[Any]], Hashable]
"""Returns an argument's part of a signature, and appends the arrays in it to a list."""


@dataclass(eq=False, slots=True)
class ArrayType:
    """How the arrays of one type are described and copied."""

    kind: Literal["tensor", "array", "buffer", "place"]
    """Like a torch tensor; like a NumPy array; a Python buffer that can be copied; or memory that can't be
    copied, so that a graph is bound to its address."""
    package: Any
    """The top-level package that the type comes from, or None."""
    read: Read
    empty_like: Callable[[Any], Any]
    """Returns a new array like a given one, with any contents."""
    assign: Callable[[Any, Any], object]
    """``assign(target, source)`` copies, on the framework's current stream or at once."""
    address: Callable[[Any], int] | None = None
    """Returns the address of an array on a device, if its type reports it quickly."""
    altered: Callable[[Any], bool] | None = None
    """Returns True if the elements of an array are not what its bytes say, as those of a lazy negation."""
    merge: Callable[[Any, Any, Any], object] | None = None
    """``merge(target, source, before)`` copies the elements of `source` that differ from those of `before`;
    of tensors, in host memory only. None if the elements can't be compared."""

    def copy(self, x: Any) -> Any:
        """Return a copy, made on the framework's current stream or at once; of a place, itself."""
        if self.kind == "tensor":
            return x.detach().clone()
        new = self.empty_like(x)
        self.assign(new, x)
        return new

    def static_copy(self, x: Any) -> Any:
        """Return a copy of an array that counts its writes, if arrays of the type ever do."""
        inference = getattr(self.package, "inference_mode", None)  # no tensor counts them in that mode
        with nullcontext() if inference is None else inference(False):
            return self.copy(x)

    def count_write(self, x: Any) -> None:
        """Have an array count a write that its library does not know of, if arrays of the type ever do."""
        graph = getattr(getattr(self.package, "autograd", None), "graph", None)
        count = getattr(graph, "increment_version", None)
        if count is not None and not x.is_inference():
            count(x)

    def takes_gradients(self, x: Any) -> bool:
        """Return True if gradients are on, and go through an array of the type."""
        return self.kind == "tensor" and x.requires_grad and bool(self.package.is_grad_enabled())

    def as_argument(self, static: Any, x: Any) -> Any:
        """Return the static copy of an array as a function gets it: read-only if the array is."""
        if self.kind != "array" or writable(x):
            return static
        view = static.view()
        view.flags.writeable = False
        return view


def array_type_of(x: Any) -> ArrayType | None:
    """Return how objects of this one's type are handled; None if they are not arrays."""
    cls = type(x)
    if all(callable(getattr(cls, name, None)) for name in ("copy_", "detach", "clone", "stride")):
        package = _package_of(cls)
        if package is not None:
            return _tensor(cls, package)
    on_device = hasattr(x, "__cuda_array_interface__")
    if (on_device or hasattr(cls, "__array_interface__")) and hasattr(cls, "__array_ufunc__"):
        package = _package_of(cls)
        if package is not None and not issubclass(cls, Hashable):  # NumPy's scalars have a hash
            if not on_device:
                return _array(cls, package, _read_like_numpy)
            if package.__name__ in interop.names():  # else nobody knows on which stream it copies
                return _array(cls, package, _read_with_device, _pointer if _has_pointer(x) else None)
    if on_device:
        return _place(cls)
    if hasattr(x, "__dlpack__"):  # it may have an address when it is on a device
        return _buffer(cls, x) or _place(cls)
    return _buffer(cls, x) if not issubclass(cls, Hashable) and _has_memory(x) else None


def check_arguments(
    arrays: Sequence[Any], types: Sequence[ArrayType], names: Sequence[str], stream: Stream
) -> None:
    """Raise TypeError or ValueError if a graph beside a stream could not read the arrays of a call.

    It can't if an array is in other memory, on another device, not strided, or requires grad.
    """
    for x, array_type, name in zip(arrays, types, names, strict=True):
        check_place(x, f"argument {name}", stream)
        if array_type.kind != "tensor":
            continue
        if x.layout is not array_type.package.strided:
            raise TypeError(f"argument {name} is not a strided array; pass the arrays that it is made of.")
        if array_type.takes_gradients(x):
            raise ValueError(
                f"argument {name} requires grad, and no gradients pass through a graphed function; pass "
                "its detach(), or call under no_grad()."
            )


Assign = Callable[[Any, Any], object]
"""``assign(target, source)`` copies."""

Enqueue = Callable[..., None]
"""``enqueue(stream, copies, *args)`` has ``copies(*args)`` make copies in the order of the stream."""


def on_device(stream: Stream, copies: Callable[..., object], *args: Any) -> None:
    """Make copies on the framework's current stream, which is this stream."""
    copies(*args)


def on_host(stream: Stream, copies: Callable[..., object], *args: Any) -> None:
    """Enqueue the copies of arrays whose libraries do not know of the stream."""
    stream._backend.launch(stream._native, copies, *args)


def copy_all(pairs: Sequence[tuple[Any, Any]]) -> None:
    """Copy sources into targets as if at once: a source may lie in the target of another pair."""
    types: list[Any] = [array_type_of(target) for target, _ in pairs]
    sources = [
        array_type_of(y).copy(y) if i and _overlaps_any(y, pairs[:i]) else y  # type: ignore[union-attr]
        for i, (_, y) in enumerate(pairs)
    ]
    for (target, _), source, array_type in zip(pairs, sources, types, strict=True):
        if array_type.kind == "tensor":
            target, source = target.detach(), source.detach()
        array_type.assign(target, source)


def _overlaps_any(source: Any, before: Sequence[tuple[Any, Any]]) -> bool:
    """Return True if an array may lie in one that is written before it is read."""
    span = extent(source)
    others = [extent(target) for target, _ in before]
    return span is None or any(each is None or (each[0] < span[1] and span[0] < each[1]) for each in others)


def detaching(assign: Assign) -> Assign:
    """Return what copies tensors as `assign` does, on a stream's thread, which has grad modes of its own."""

    def assign_detached(target: Any, source: Any) -> None:
        assign(*(x.detach() if x.requires_grad else x for x in (target, source)))

    return assign_detached


def frameworks_of(types: list[ArrayType], backend: str) -> tuple[set[str], list[Framework]]:
    """Return the names of the packages that arrays come from, and those that take part in captures now."""
    packages = {getattr(each.package, "__name__", "") for each in types}
    active = interop.active_by_name(backend)
    return packages, [active[name] for name in sorted(packages) if name in active]


def _tensor(cls: type, package: Any) -> ArrayType:
    def read(x: Any, leaves: list[Any]) -> Hashable:
        leaves.append(x)
        return cls, x.shape, x.stride(), x.dtype, x.device, x.requires_grad

    def merge(target: Any, source: Any, before: Any) -> None:
        differ = _tensors_differ(package, source, before)
        if differ.any():  # else nothing is written, which the tensor would count
            target.copy_(package.where(differ, source, target))

    assign = cls.copy_  # type: ignore[attr-defined]
    plain = (getattr(package, "Tensor", None), getattr(getattr(package, "nn", None), "Parameter", None))
    address, altered = (cls.data_ptr, cls.is_neg) if cls in plain else (None, None)  # type: ignore[attr-defined]
    return ArrayType(
        "tensor", package, read, lambda x: package.empty_like(x.detach()), assign, address, altered, merge
    )


def _tensors_differ(package: Any, x: Any, y: Any) -> Any:
    """Return in which elements two tensors in host memory differ, bit by bit."""
    if x.is_complex():
        return _tensors_differ(package, package.view_as_real(x), package.view_as_real(y)).any(-1)
    bits = {1: package.int8, 2: package.int16, 4: package.int32, 8: package.int64}[x.element_size()]
    return x.view(bits) != y.view(bits)


def _array(cls: type, package: Any, read: Read, address: Callable[[Any], int] | None = None) -> ArrayType:
    def assign(target: Any, source: Any) -> None:
        target[...] = source

    def merge(target: Any, source: Any, before: Any) -> None:
        package.copyto(target, source, where=_differ(source, before))

    merged = hasattr(package, "copyto") and not hasattr(cls, "mask")
    return ArrayType(
        "array", package, read, package.empty_like, assign, address, merge=merge if merged else None
    )


def _differ(x: Any, y: Any) -> Any:
    """Return in which elements two arrays differ, bit by bit: 0.0 from -0.0, and a nan not from itself."""
    kind, size = x.dtype.kind, x.dtype.itemsize
    if kind == "c":
        return _differ(x.real, y.real) | _differ(x.imag, y.imag)
    if kind == "f" and size in (2, 4, 8):
        x, y = x.view(f"u{size}"), y.view(f"u{size}")
    return x != y


def _pointer(x: Any) -> int:
    """Return the address of an array like CuPy's."""
    return x.data.ptr  # type: ignore[no-any-return]


def _has_pointer(x: Any) -> bool:
    return isinstance(getattr(getattr(x, "data", None), "ptr", None), int)


def _read_like_numpy(x: Any, leaves: list[Any]) -> Hashable:
    leaves.append(x)
    return type(x), x.shape, x.strides, x.dtype, getattr(getattr(x, "flags", None), "writeable", True)


def _read_with_device(x: Any, leaves: list[Any]) -> Hashable:
    leaves.append(x)
    return type(x), x.shape, x.strides, x.dtype, x.__dlpack_device__()


def _place(cls: type) -> ArrayType:
    def read(x: Any, leaves: list[Any]) -> Hashable:
        leaves.append(x)
        memory = x.__cuda_array_interface__
        return cls, memory["data"][0], memory["shape"], memory["typestr"], memory.get("strides")

    return ArrayType("place", None, read, lambda x: x, lambda target, source: None)


def _buffer(cls: type, x: Any) -> ArrayType | None:
    """Return how a Python buffer is handled; None if it can't be copied."""
    try:
        if memoryview(copy.copy(x)).readonly:
            return None
    except (TypeError, BufferError):
        return None

    def read(x: Any, leaves: list[Any]) -> Hashable:
        leaves.append(x)
        view = memoryview(x)
        return cls, view.format, view.shape, view.strides

    def assign(target: Any, source: Any) -> None:
        with memoryview(target) as written, memoryview(source) as read:
            written.cast("B")[:] = read.cast("B")

    def merge(target: Any, source: Any, before: Any) -> None:
        with memoryview(target) as written, memoryview(source) as read, memoryview(before) as old:
            new, known, place = read.cast("B"), old.cast("B"), written.cast("B")
            if new != known:
                for i, byte in enumerate(new):
                    if byte != known[i]:
                        place[i] = byte

    return ArrayType("buffer", None, read, copy.copy, assign, merge=merge)


def _package_of(cls: type) -> Any:
    """Return the top-level package of a type, if it can make an array like a given one."""
    for base in cls.__mro__:
        package = sys.modules.get(base.__module__.partition(".")[0])
        if hasattr(package, "empty_like"):
            return package
    return None


def _has_memory(x: Any) -> bool:
    if hasattr(x, "__array_interface__"):
        return True
    try:
        memoryview(x).release()
    except (TypeError, BufferError):
        return False
    return True


# ---- tensors elsewhere -------------------------------------------------------------------------------

ALIGNMENT = 512
"""Addresses that agree in this modulus are equally aligned: no framework's allocator aligns better."""


def elsewhere(arrays: Sequence[Any], array_types: Sequence[ArrayType]) -> list[Any]:
    """Return new tensors like these, whose types report addresses, with any contents.

    Whichever of two tensors comes first in memory comes last there, if their types are of one package. They
    are made on the framework's current stream.
    """
    found: list[Any] = [None] * len(arrays)
    packages = {array_type.package for array_type in array_types}
    for package in sorted(packages, key=lambda package: str(package.__name__)):
        own = [i for i, array_type in enumerate(array_types) if array_type.package is package]
        starts = {i: _address(arrays[i], array_types[i]) for i in own}
        backwards = sorted(own, key=lambda i: starts[i], reverse=True)
        size = sum(int(arrays[i].nbytes) + (2 * n + 4) * ALIGNMENT for n, i in enumerate(backwards, 1))
        buffer, base = _new_memory(package, arrays[own[0]], array_types[own[0]], size + ALIGNMENT)
        at = base
        for n, i in enumerate(backwards, 1):
            at += (starts[i] - at) % ALIGNMENT
            x = arrays[i]
            view = buffer[at - base : at - base + x.nbytes].view(x.dtype).as_strided(x.shape, x.stride())
            found[i] = alias(view, array_types[i])
            at += int(x.nbytes) + (2 * n + 1) * ALIGNMENT
    return found


def alias(x: Any, array_type: ArrayType) -> Any:
    """Return another tensor with the memory of one.

    Nothing else is shared: of torch, the storage is another one, too, and has the size of the tensor.
    """
    dlpack = getattr(getattr(array_type.package, "utils", None), "dlpack", None)
    if dlpack is not None:
        with suppress(BufferError, RuntimeError):  # a type that DLPack does not know
            return dlpack.from_dlpack(dlpack.to_dlpack(x.detach()))
    return x.detach()


def _address(x: Any, array_type: ArrayType) -> int:
    assert array_type.address is not None
    return array_type.address(x)


def _new_memory(package: Any, x: Any, array_type: ArrayType, nbytes: int) -> tuple[Any, int]:
    """Return memory where an array lies, and its address."""
    buffer = package.empty(nbytes, dtype=package.uint8, device=x.device)
    return buffer, _address(buffer, array_type)
