"""New tensors like given ones, in other memory: in the opposite order, with gaps, and equally aligned."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from .._arrays.arrays import ArrayType

ALIGNMENT = 512
"""Addresses that agree in this modulus are equally aligned: no framework's allocator aligns better."""


def elsewhere(arrays: Sequence[Any], array_types: Sequence[ArrayType]) -> list[Any]:
    """Return new tensors like these, whose types can tell addresses, with any contents.

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
        buffer, base = _buffer(package, arrays[own[0]], array_types[own[0]], size + ALIGNMENT)
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


def _buffer(package: Any, x: Any, array_type: ArrayType, nbytes: int) -> tuple[Any, int]:
    """Return memory where an array lies, and its address."""
    buffer = package.empty(nbytes, dtype=package.uint8, device=x.device)
    return buffer, _address(buffer, array_type)
