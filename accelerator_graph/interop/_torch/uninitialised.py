"""Filling the memory of tensors that are made without contents, and memory that no tensor has."""

from __future__ import annotations

import sys
from typing import Any

from ..base import Undo
from .dispatch import observe_operators

_EMPTY = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
)
_VALUES = (0.28515625, 0.71875)
_SMALL = 1 << 20
"""The allocator keeps requests of up to this size apart from the others (kSmallSize)."""
_STREAMS = 32
"""torch has so many streams of each priority, and gives them out in turn."""


def fill_new(torch: Any, which: int) -> Undo:
    """Fill the tensors that this thread's code makes by ``empty`` and its like; return the undo.

    Code that was compiled makes tensors without an operator, and is not seen.
    """

    def fill(operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        if operator._schema.name in _EMPTY and type(result) is torch.Tensor:
            number = result.is_floating_point() or result.is_complex()
            result.fill_(_VALUES[which] if number else 1 - which)

    return observe_operators(torch, fill)


def clear_free(torch: Any, device: int) -> None:
    """Set the memory that the caching allocator keeps for later to zero, but not that of private pools.

    The allocator keeps memory for each stream. A stream may have been destroyed, and its handle must not be
    used then. So this clears the memory of the default stream, the current one, and torch's own streams.
    """
    held = []
    streams = _living_streams(torch, device)
    for segment in torch.cuda.memory_snapshot():
        stream = streams.get(segment["stream"])
        if stream is None or segment["device"] != device or tuple(segment["segment_pool_id"]) != (0, 0):
            continue
        largest = _SMALL if segment["segment_type"] == "small" else sys.maxsize
        with torch.cuda.stream(stream):
            for block in segment["blocks"]:
                left = block["size"] if block["state"] == "inactive" else 0
                while left:
                    size = min(left, largest)
                    held.append(torch.zeros(size, dtype=torch.uint8, device=f"cuda:{device}"))
                    left -= size
    for stream in streams.values():
        stream.synchronize()


def _living_streams(torch: Any, device: int) -> dict[int, Any]:
    """Return the streams of a device that are never destroyed, and the current one, by their handles."""
    cuda = torch.cuda
    found = [cuda.default_stream(device), cuda.current_stream(device)]
    found += [cuda.Stream(device, priority=p) for p in (0, -1) for _ in range(_STREAMS)]
    return {stream.cuda_stream: stream for stream in found}
