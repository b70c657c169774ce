"""The record of a collective operation."""

from __future__ import annotations

from typing import NamedTuple


class Collective(NamedTuple):
    """A collective operation, or one half of a transfer between two ranks, as a program asked for it."""

    kind: str
    """``"all_reduce"``, ``"all_gather"``, ..., as torch.distributed names them; ``"send"`` or ``"recv"``."""
    group: str = ""
    """The name of the group. All its ranks use the same name, and no other group of these ranks has it."""
    ranks: tuple[int, ...] = ()
    """The group's ranks, counted in the whole program; empty if all ranks are in the group."""
    dtype: str = ""
    """The type of the elements."""
    elements: int | None = None
    """How many elements, by a measure that is the same on all ranks; None if that differs rightly."""
    peer: int | None = None
    """The root, or the other rank of a transfer, counted in the whole program."""
    file: str = ""
    line: int = 0
    """The line of the program that asked for it, if that is known."""
