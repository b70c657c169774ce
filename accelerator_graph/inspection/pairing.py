"""Which nodes of two graphs are the same."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

from ..backends.base import GraphNode
from .names import function_of


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
    return function_of(place.node)


def _parameters(place: Place) -> Hashable:
    return _all_parameters(place.node)


def _all_parameters(node: GraphNode) -> Hashable:
    inside = tuple(tuple(map(_all_parameters, nodes)) for nodes, _ in node.bodies)
    sizes = node.grid, node.block, node.shared_bytes, node.nbytes
    return function_of(node), *sizes, node.value, node.call, inside


# ---- what two sequences have in common -------------------------------------------------------------


Pair = tuple[int, int]

_MOST_EDITS = 1000
"""Beyond so many differences in one place the best alignment is not looked for, since it takes seconds."""


def aligned(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Pair]:
    """Return pairs of indices of equal elements, ascending in both sequences.

    Elements that occur once in each sequence are paired first, as far as their order allows. What lies
    between them is compared by the algorithm of Myers, which leaves out as few elements as possible.
    """
    found: list[Pair] = []
    i = j = 0
    for anchor in [*_unique_in_order(old, new), (len(old), len(new))]:
        found += _between(old, new, (i, anchor[0]), (j, anchor[1]))
        if anchor[0] < len(old):
            found.append(anchor)
        i, j = anchor[0] + 1, anchor[1] + 1
    return found


def _unique_in_order(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Pair]:
    """Return the longest ascending list of pairs of elements that occur once in each sequence."""
    counts, new_counts = Counter(old), Counter(new)
    places = {element: index for index, element in enumerate(new) if new_counts[element] == 1}
    tails: list[int] = []  # the least ends of ascending lists, by their lengths
    ends: list[tuple[Pair, int]] = []  # a pair, and the one before it in its list
    last: list[int] = []
    for index, element in enumerate(old):
        place = places.get(element)
        if place is None or counts[element] > 1:
            continue
        length = bisect_left(tails, place)
        tails[length : length + 1] = [place]
        ends.append(((index, place), last[length - 1] if length else -1))
        last[length : length + 1] = [len(ends) - 1]
    found = []
    at = last[-1] if last else -1
    while at >= 0:
        pair, at = ends[at]
        found.append(pair)
    return found[::-1]


def _between(old: Sequence[Hashable], new: Sequence[Hashable], a: Pair, b: Pair) -> Iterator[Pair]:
    """Yield the pairs of two ranges; elements that are not in both are left out of the search."""
    (start, stop), (new_start, new_stop) = a, b
    while start < stop and new_start < new_stop and old[start] == new[new_start]:
        yield start, new_start
        start, new_start = start + 1, new_start + 1
    end = 0
    most = min(stop - start, new_stop - new_start)
    while end < most and old[stop - 1 - end] == new[new_stop - 1 - end]:
        end += 1
    both = {*old[start : stop - end]} & {*new[new_start : new_stop - end]}
    left = [index for index in range(start, stop - end) if old[index] in both]
    right = [index for index in range(new_start, new_stop - end) if new[index] in both]
    for i, j in _myers([old[index] for index in left], [new[index] for index in right]):
        yield left[i], right[j]
    yield from zip(range(stop - end, stop), range(new_stop - end, new_stop), strict=True)


def _myers(old: list[Hashable], new: list[Hashable]) -> Iterator[Pair]:
    """Yield the pairs of a longest common subsequence; of an almost longest one after `_MOST_EDITS`."""
    i = j = 0
    while i < len(old) and j < len(new):
        reached = _path(old[i:], new[j:])
        yield from ((i + x, j + y) for x, y in reached[:-1])
        i, j = i + reached[-1][0], j + reached[-1][1]


def _path(old: list[Hashable], new: list[Hashable]) -> list[Pair]:
    """Return pairs up to the ends, or as far as `_MOST_EDITS` allow; last, the place that is reached."""
    most = min(len(old) + len(new), _MOST_EDITS)
    furthest = [0] * (2 * most + 3)  # x by diagonal, which is x - y; negative ones count from the end
    history: list[array[int]] = []
    edits = diagonal = 0
    for edits in range(most + 1):
        for diagonal in range(-edits, edits + 1, 2):
            if edits == 0:
                x = 0
            elif _adds(furthest[diagonal - 1], furthest[diagonal + 1], edits, diagonal):
                x = furthest[diagonal + 1]
            else:
                x = furthest[diagonal - 1] + 1
            y = x - diagonal
            while x < len(old) and y < len(new) and old[x] == new[y]:
                x, y = x + 1, y + 1
            furthest[diagonal] = x
            if x >= len(old) and y >= len(new):
                return [*_traced(history, edits, diagonal, x), (x, y)]
        history.append(array("i", [furthest[each] for each in range(-edits, edits + 1, 2)]))
    ends = [(furthest[each], furthest[each] - each) for each in range(-edits, edits + 1, 2)]
    x, y = max((end for end in ends if end[0] <= len(old) and end[1] <= len(new)), key=sum)
    return [*_traced(history, edits, x - y, x), (x, y)]


def _traced(history: list[array[int]], edits: int, diagonal: int, x: int) -> list[Pair]:
    """Return the pairs on the path that has come to `x` on a diagonal after so many edits."""
    found: list[Pair] = []
    while True:
        if edits == 0:
            start = 0
        else:
            before = history[edits - 1]
            left, right = (_at(before, edits - 1, each) for each in (diagonal - 1, diagonal + 1))
            adds = _adds(left, right, edits, diagonal)
            start = right if adds else left + 1
        found += [(at, at - diagonal) for at in range(x - 1, start - 1, -1)]
        if edits == 0:
            return found[::-1]
        x, diagonal, edits = (right, diagonal + 1, edits - 1) if adds else (left, diagonal - 1, edits - 1)


def _at(row: array[int], edits: int, diagonal: int) -> int:
    index = (diagonal + edits) // 2
    return row[index] if 0 <= index < len(row) else 0


def _adds(left: int, right: int, edits: int, diagonal: int) -> bool:
    """Return True if the best way to a diagonal adds an element, False if it leaves one out."""
    return diagonal < 0 if abs(diagonal) == edits else left < right
