"""Which nodes of two graphs are the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from ..backends.base import GraphNode
from .alignment import aligned


class Place(NamedTuple):
    """A node, its labels, and whether one of them begins with it."""

    node: GraphNode
    labels: str
    begins: bool


_Key = Callable[[Place], Hashable]
_Gap = tuple[range, range]


def paired(old: Sequence[Place], new: Sequence[Place]) -> dict[int, int]:
    """Return the ids of the nodes that both graphs have: those of the first to those of the second.

    Nodes are paired by labels, functions and order. Parameters decide where that leaves a choice, and nodes
    with the same parameters are paired first if fewer nodes differ then. Addresses never count.
    """
    ways: list[tuple[_Key, ...]] = [(_function,), (_parameters, _function)]
    if any(labels for _, labels, _ in (*old, *new)):
        ways = [(*map(_labelled, keys), *keys) for keys in ways]
    return min((_paired(old, new, keys) for keys in ways), key=lambda pairs: _differences(old, new, pairs))


def _paired(old: Sequence[Place], new: Sequence[Place], keys: Sequence[_Key]) -> dict[int, int]:
    gaps: list[_Gap] = [(range(len(old)), range(len(new)))]
    pairs: dict[int, int] = {}
    for key in keys:
        gaps = [rest for gap in gaps for rest in _closed(gap, old, new, key, pairs)]
    for left, right in gaps:  # what was replaced by nodes of the same kinds calls other functions
        if [old[index].node.kind for index in left] == [new[index].node.kind for index in right]:
            pairs.update(zip(left, right, strict=True))
    back = {b: a for a, b in pairs.items()}
    _slide(old, new, back)
    pairs = {a: b for b, a in back.items()}
    _slide(new, old, pairs)
    return dict(sorted(pairs.items()))


def _closed(
    gap: _Gap, old: Sequence[Place], new: Sequence[Place], key: _Key, pairs: dict[int, int]
) -> list[_Gap]:
    """Pair the nodes in a gap that have the same key; return the gaps that are left."""
    left, right = gap
    found = aligned([key(old[index]) for index in left], [key(new[index]) for index in right])
    rest = []
    i = j = 0
    for a, b in [*found, (len(left), len(right))]:
        if a > i and b > j:
            rest.append((left[i:a], right[j:b]))
        if a < len(left):
            pairs[left[a]] = right[b]
        i, j = a + 1, b + 1
    return rest


def _slide(old: Sequence[Place], new: Sequence[Place], back: dict[int, int]) -> None:
    """Move runs of added nodes to where most of the others keep their parameters, or else a label begins.

    In a repetitive graph a run can begin at any of many nodes, and the functions are the same.

    Parameters
    ----------
    old, new : sequence of Place
        The two graphs.
    back : dict of int to int
        The nodes that both have: from those in `new` to those in `old`. Changed in place.
    """
    start = 0
    while start < len(new):
        if start in back:
            start += 1
            continue
        stop = start
        while stop < len(new) and stop not in back:
            stop += 1
        start = _moved(old, new, back, start, stop)


def _moved(old: Sequence[Place], new: Sequence[Place], back: dict[int, int], start: int, stop: int) -> int:
    """Move one run; return the number of a node after it, from where to go on."""

    def gain(paired: int, other: int) -> int:
        """Return what it is worth to pair one node's partner with another node."""
        was, partner = new[paired], old[back[paired]]
        return _is_exact(partner, new[other]) - _is_exact(partner, was)

    best, score, best_score = 0, 0, (0, new[start].begins)
    steps = 0
    while (
        start + steps > 0
        and start + steps - 1 in back
        and _same(new[start + steps - 1], new[stop + steps - 1])
    ):
        score += gain(start + steps - 1, stop + steps - 1)
        steps -= 1
        if (score, new[start + steps].begins) > best_score:
            best, best_score = steps, (score, new[start + steps].begins)
    for step in range(0, best, -1):
        back[stop + step - 1] = back.pop(start + step - 1)
    return stop


def _same(one: Place, other: Place) -> bool:
    return one.labels == other.labels and _function(one) == _function(other)


def _is_exact(one: Place, other: Place) -> bool:
    return _parameters(one) == _parameters(other)


def _differences(old: Sequence[Place], new: Sequence[Place], pairs: dict[int, int]) -> int:
    """Return how many nodes are not the same in both graphs."""
    changed = sum(not _is_exact(old[a], new[b]) for a, b in pairs.items())
    return changed + len(old) + len(new) - 2 * len(pairs)


def _labelled(key: _Key) -> _Key:
    return lambda place: (place.labels, key(place))


def _function(place: Place) -> Hashable:
    return place.node.kind, place.node.name


def _parameters(place: Place) -> Hashable:
    return _all_parameters(place.node)


def _all_parameters(node: GraphNode) -> Hashable:
    inside = tuple(tuple(map(_all_parameters, nodes)) for nodes, _ in node.bodies)
    return node.kind, node.name, node.grid, node.block, node.shared_bytes, node.nbytes, node.value, inside
