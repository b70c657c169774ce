"""What replays have to give: the contents after eager runs, and how far these differ among themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from .elements import Difference, Elements, difference, differing
from .places import Place
from .trial import Run

_SPREAD = 4.0
"""How much more than eager runs among themselves a replay may differ from them."""


class Mismatch(NamedTuple):
    """An array of a run that is not as expected."""

    target: int
    kind: Literal["wrong", "rounding"]
    difference: Difference


class Expectation:
    """The contents that eager runs with the same arguments, state and random numbers have left behind.

    Parameters
    ----------
    targets : sequence of Place
        The arrays that are compared.
    runs : sequence of Run
        The eager runs.
    tolerance : float, optional
        How far numbers may differ, relative to the largest magnitude in the array. By default as far as the
        eager runs differ: not at all if they agree.
    """

    def __init__(self, targets: Sequence[Place], runs: Sequence[Run], tolerance: float | None) -> None:
        self._targets = targets
        self._tolerance = tolerance
        self.contents = runs[0].contents
        self.unstable: list[frozenset[int]] = []
        """The elements of each array in which eager runs differ by more than rounding."""
        self.spread: list[float] = []
        """How far the other elements differ."""
        self.varying: list[frozenset[int]] = []
        """The elements of each array in which eager runs differ in a bit."""
        for i, place in enumerate(targets):
            others = [run.contents[i] for run in runs[1:]]
            bits = [differing(self.contents[i], other, place.elements) for other in others]
            self.varying.append(frozenset().union(*bits))
            unstable, spread = _spread(self.contents[i], others, place.elements)
            self.unstable.append(unstable)
            self.spread.append(spread)

    @property
    def repeatable(self) -> bool:
        """Whether the eager runs agree in every byte."""
        return not any(self.varying)

    def mismatches(self, run: Run, ignored: dict[int, frozenset[int]]) -> list[Mismatch]:
        """Return the arrays of a run that are not as expected, leaving out some elements."""
        found = []
        for i, place in enumerate(self._targets):
            leave_out = self.unstable[i] | ignored.get(i, frozenset())
            gap = difference(run.contents[i], self.contents[i], place.elements, leave_out)
            if gap is None or self._allows(i, gap):
                continue
            rounding = self._tolerance is None and gap.relative <= rounding_of(place.elements)
            if not place.elements.floating and not self.repeatable:
                rounding = True  # an index may follow numbers that differ a little in every run
            found.append(Mismatch(i, "rounding" if rounding else "wrong", gap))
        return found

    def _allows(self, i: int, gap: Difference) -> bool:
        if not self._targets[i].elements.floating:
            return False
        allowed = _SPREAD * self.spread[i]
        if self._tolerance is not None:
            allowed = max(allowed, self._tolerance * gap.scale)
        return gap.largest <= allowed


def rounding_of(elements: Elements) -> float:
    """Return the relative difference up to which two ways of computing the same numbers may differ."""
    return math.sqrt(elements.epsilon)


def _spread(first: bytes, others: Sequence[bytes], elements: Elements) -> tuple[frozenset[int], float]:
    """Return which elements differ by more than rounding, and how far the others differ."""
    unstable: set[int] = set()
    gaps: dict[int, float] = {}
    for other in others:
        gap = difference(other, first, elements, frozenset())
        if gap is None:
            continue
        if not elements.floating:
            unstable.update(gap.indices)
            continue
        ours, theirs = elements.numbers(other), elements.numbers(first)
        for i in gap.indices:
            apart = abs(ours[i] - theirs[i])
            gaps[i] = max(gaps.get(i, 0.0), apart if apart == apart else math.inf)
    if gaps:
        numbers = elements.numbers(first)
        same = [abs(x) for i, x in enumerate(numbers) if i not in gaps and math.isfinite(x)]
        scale = max(same or (abs(x) for x in numbers if math.isfinite(x)), default=0.0)
        unstable.update(i for i, apart in gaps.items() if apart > rounding_of(elements) * scale)
    spread = max((apart for i, apart in gaps.items() if i not in unstable), default=0.0)
    return frozenset(unstable), spread
