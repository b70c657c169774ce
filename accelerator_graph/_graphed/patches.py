"""Nodes that C changes where the arrays of a call have moved."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .._core.extension import fast
from ..backends.base import NodeSetter

if TYPE_CHECKING:
    from .._core._fast import Patches
    from .argument_words import Ranges

Word = tuple[int, int, int, int]
"""The block and the offset of an address, the number of the array, and the distance from its beginning."""

_MOST_ARRAYS = 128


def addresses(values: Iterable[int]) -> array[int]:
    """Return addresses in memory that C reads."""
    return array("Q", values)


class Memory:
    """Ranges of addresses."""

    def __init__(self, ranges: Ranges) -> None:
        self._starts: list[int] = []  # in order
        self._ends: list[int] = []
        for start, end in sorted(ranges):
            if start == end:
                continue
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def has(self, address: int, nbytes: int) -> bool:
        """Return True if an array has some of this memory."""
        place = bisect_right(self._ends, address)
        return place < len(self._ends) and self._starts[place] < address + nbytes


def patches(
    now: array[int],
    sizes: Iterable[int],
    captured: Iterable[int],
    alignment: int,
    own: Ranges,
    nodes: Sequence[tuple[NodeSetter, Sequence[Word]]],
) -> Patches | None:
    """Return what changes nodes in C; None if they can't be changed there.

    Parameters
    ----------
    now : array of int
        Where the executable has each array, which C changes; 0 if that is not known.
    sizes : iterable of int
        Of each array, in bytes.
    captured : iterable of int
        The addresses of the arrays that were captured.
    alignment : int
        In this modulus, addresses have to agree with those.
    own : sequence of (int, int)
        The memory of the graph, where no array may be.
    nodes : sequence of tuples
        The nodes, and the addresses in their parameters.
    """
    functions = [setter.function for setter, _ in nodes]
    first = functions[0] if functions else None
    if fast is None or first is None or len(now) > _MOST_ARRAYS:
        return None
    found: list[tuple[object, ...]] = []
    for function, (setter, words) in zip(functions, nodes, strict=True):
        if function is None or function.guard != first.guard or function.arguments[0] != first.arguments[0]:
            return None
        _, node, parameters, *context = function.arguments
        cells = tuple((setter.address_of(*at), number, distance) for *at, number, distance in words)
        found.append((function.address, node, parameters, *(context or (0,)), cells))
    owner = tuple(setter for setter, _ in nodes)
    ranges = addresses(each for pair in own for each in pair)
    condition = () if first.guard is None else (first.guard.address, first.guard.context)
    made: Patches = fast.Patches(
        owner,
        first.arguments[0],
        now,
        addresses(sizes),
        addresses(captured),
        alignment,
        ranges,
        tuple(found),
        *condition,
    )
    return made
