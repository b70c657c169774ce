"""What two graphs must have in common for one to update the executable of the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..base import Misfit


class Shape(NamedTuple):
    """What an update in place does not change."""

    kinds: Sequence[str]
    """By node."""
    functions: Sequence[int | None]
    """By node, with 0 or None where it is no kernel."""
    children: Sequence[Shape]
    """The shapes of the graphs inside."""
    edges: Sequence[Any]
    """The dependencies, by the numbers of the nodes."""
    misfit: Misfit | None
    """Why this graph never updates an executable."""


def difference(old: Shape, new: Shape) -> Misfit | None:
    """Return why a graph can't update the executable of another one; None if the shapes allow it."""
    if old.misfit or new.misfit:
        return new.misfit or old.misfit
    if len(old.kinds) != len(new.kinds):
        return Misfit(f"the graphs have {len(old.kinds)} and {len(new.kinds)} nodes")
    if old.kinds != new.kinds:
        number = _first(old.kinds, new.kinds)
        return Misfit(f"a {old.kinds[number]} node has become a {new.kinds[number]} node", number)
    if old.functions != new.functions:
        return Misfit("the kernel is another one", _first(old.functions, new.functions))
    if old.children != new.children:
        number = place_of(new.kinds, "graph", _first(old.children, new.children))
        return Misfit("the child graph differs", number)
    return None if old.edges == new.edges else Misfit("the dependencies differ")


def place_of(kinds: Sequence[str], kind: str, nth: int) -> int:
    """Return the number of the n-th node of a kind, counted from 0."""
    return [number for number, each in enumerate(kinds) if each == kind][nth]


def _first(old: Sequence[Any], new: Sequence[Any]) -> int:
    """Return the first place at which two sequences of one length differ."""
    return next(at for at, (was, now) in enumerate(zip(old, new, strict=True)) if was != now)
