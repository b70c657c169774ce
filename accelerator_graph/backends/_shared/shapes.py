"""What two graphs must have in common for one to update the executable of the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..base import Misfit


class Shape(NamedTuple):
    """What an update in place does not change."""

    nodes: Sequence[Any]
    """By node: the function of a kernel, the shape of a child graph, the kind of another node."""
    edges: Sequence[Any]
    """The dependencies, by the numbers of the nodes."""
    misfit: Misfit | None
    """Why this graph never updates an executable."""


def difference(old: Shape, new: Shape) -> Misfit | None:
    """Return why a graph can't update the executable of another one; None if the shapes allow it."""
    if old.misfit or new.misfit:
        return new.misfit or old.misfit
    if len(old.nodes) != len(new.nodes):
        return Misfit(f"the graphs have {len(old.nodes)} and {len(new.nodes)} nodes")
    if old.nodes == new.nodes:
        return None if old.edges == new.edges else Misfit("the dependencies differ")
    pairs = enumerate(zip(old.nodes, new.nodes, strict=True))
    number, kinds = next((number, [_kind(was), _kind(now)]) for number, (was, now) in pairs if was != now)
    if kinds[0] != kinds[1]:
        return Misfit(f"a {kinds[0]} node has become a {kinds[1]} node", number)
    return Misfit("the child graph differs" if kinds[0] == "graph" else "the kernel is another one", number)


def _kind(node: Any) -> str:
    return node if isinstance(node, str) else "graph" if isinstance(node, Shape) else "kernel"
