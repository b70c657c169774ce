"""What frameworks report: the collectives and the pools of a capture; and the rows of `report`."""

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


class FrameworkReport(NamedTuple):
    """The facts about one framework."""

    name: str
    """The name that it is imported by."""
    origin: str
    """``"built-in"``, ``"registered"``, or the distribution and its version."""
    imported: bool = False
    """The program has imported the framework."""
    loaded: bool = False
    """Its class is imported and fulfils the contract."""
    usable: bool = False
    """It takes part in captures on `backend`, and none of its methods has failed."""
    reason: str = ""
    """Why it is not usable."""
    backend: str | None = None
    """The backend that it has initialised."""
