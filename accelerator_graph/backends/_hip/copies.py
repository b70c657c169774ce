"""How large a graph is, which the runtime does not tell: as large as a copy of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..._interpreter.heap import heap_bytes

T = TypeVar("T")


def bytes_of_copy(copy: Callable[[], T], destroy: Callable[[T], object]) -> int | None:
    """Return by how much the heap of the C library grows with a copy; None where it does not tell.

    What the runtime keeps for later graphs is counted the first time, and what other threads take always.
    """
    before = heap_bytes()
    if before is None:
        return None
    made = copy()
    try:
        after = heap_bytes()
    finally:
        destroy(made)
    return None if after is None or after < before else after - before
