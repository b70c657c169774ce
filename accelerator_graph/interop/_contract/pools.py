"""The records of a framework about a memory pool."""

from __future__ import annotations

from typing import NamedTuple


class PoolSegment(NamedTuple):
    """A piece of the device's memory that a pool has got from the driver as a whole."""

    address: int
    nbytes: int


class PoolContents(NamedTuple):
    """The contents of a pool."""

    segments: tuple[PoolSegment, ...] = ()
    """In ascending order."""
    used: int | None = 0
    """How many bytes of them arrays occupy that are alive; None if that is not known."""
