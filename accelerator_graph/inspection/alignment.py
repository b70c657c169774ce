"""What two sequences have in common, in the same order."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

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
