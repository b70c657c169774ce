"""What replays have to give: the contents after eager runs, and how far those differ; and what was found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..._arrays.placement import works_on_host
from ...backends.base import GraphEdge, GraphNode
from .places import Difference, Elements, Place, apart, difference, differing
from .report import Cause, Finding
from .trial import Changing, Contents, OutOfTime, Trial

_SPREAD = 4.0
"""How much more than eager runs among themselves a replay may differ from them."""
_BLUR = 4.0
"""How much more than eager runs whose numbers are off by one rounding."""
_FEW = 4.0
"""How many roundings of the largest number of an array are nothing, whatever eager runs do."""
_MORE_RUNS = 4
"""How many eager runs follow if two of them differ."""
_VARIATIONS = ((0.5, False), (0.75, True), (1.0, False))
"""By which factors other arguments are scaled, and whether their signs change."""


class Mismatch(NamedTuple):
    """An array of a run that is not as expected."""

    target: int
    difference: Difference
    rounding: bool
    """Whether rounding may be the reason."""


class Expectation:
    """The contents that eager runs with the same arguments, state and random numbers have left behind.

    Numbers may differ from them by `tolerance`, relative to the largest magnitude in their array; by default
    as far as the eager runs differ, so not at all if they agree. The `ignored` elements of each array may be
    anything.
    """

    def __init__(
        self,
        targets: Sequence[Place],
        runs: Sequence[Contents],
        tolerance: float | None,
        ignored: Mapping[int, frozenset[int]],
    ) -> None:
        self._targets = targets
        self._tolerance = tolerance
        self._ignored = ignored
        self.contents = runs[0]
        self.varying: list[frozenset[int]] = []
        """The elements of each array in which eager runs differ in a bit."""
        self.unstable: list[frozenset[int]] = []
        """The elements in which they differ by more than rounding."""
        self.spread: list[float] = []
        """How far the other elements differ."""
        self.unwritten: list[frozenset[int]] = []
        """The elements that follow nothing but the pattern of new arrays, which takes turns."""
        for place, first, *others in zip(targets, *runs, strict=True):
            varying = _varying((first, *others), place.elements)
            unstable, spread = _spread(first, others, place.elements, varying)
            otherwise = [_varying((first, *others)[which::2], place.elements) for which in (0, 1)]
            self.varying.append(varying)
            self.unwritten.append(varying.difference(*otherwise))
            self.unstable.append(unstable)
            self.spread.append(spread)

    def left_out(self, target: int) -> frozenset[int]:
        """Return the elements of an array that are not compared."""
        return self.unstable[target] | self._ignored.get(target, frozenset())

    def mismatches(self, run: Contents) -> list[Mismatch]:
        """Return the arrays of a run that are not as expected."""
        found = []
        for i, place in enumerate(self._targets):
            floating = place.elements.floating
            gap = difference(run[i], self.contents[i], place.elements, self.left_out(i))
            if gap is None:
                continue
            allowed = max(_SPREAD * self.spread[i], (self._tolerance or 0.0) * gap.scale)
            if floating and gap.largest <= allowed:
                continue
            rounding = self._tolerance is None and gap.largest <= rounding_of(place.elements) * gap.scale
            # an index may follow numbers that differ a little in every run
            found.append(Mismatch(i, gap, rounding or (not floating and any(self.varying))))
        return found


def rounding_of(elements: Elements) -> float:
    """Return the relative difference up to which two ways of computing the same numbers may differ."""
    return math.sqrt(elements.epsilon)


def _varying(runs: Sequence[bytes], elements: Elements) -> frozenset[int]:
    """Return the elements that are not the same in all runs."""
    return frozenset().union(*(differing(runs[0], run, elements) for run in runs[1:]))


def _spread(
    first: bytes, others: Sequence[bytes], elements: Elements, varying: frozenset[int]
) -> tuple[frozenset[int], float]:
    """Return which elements differ by more than rounding, and how far the others differ."""
    if not varying or not elements.floating:
        return varying, 0.0
    numbers, runs = elements.numbers(first), list(map(elements.numbers, others))
    gaps = {i: max(apart(run[i], numbers[i]) for run in runs) for i in varying}
    gaps = {i: gap for i, gap in gaps.items() if gap}
    same = [abs(x) for i, x in enumerate(numbers) if i not in gaps and math.isfinite(x)]
    scale = max(same or (abs(x) for x in numbers if math.isfinite(x)), default=0.0)
    unstable = frozenset(i for i, gap in gaps.items() if gap > rounding_of(elements) * scale)
    return unstable, max((gap for i, gap in gaps.items() if i not in unstable), default=0.0)


class Case:
    """One verification.

    Replays are compared with so many `rounds` of different arguments, the caller's and those made of them,
    and with further `examples` of the caller's: the contents of the arrays.
    """

    expected: Expectation
    """What eager runs with the caller's arguments give."""
    base: Contents
    """What a replay with the caller's arguments leaves, whose outputs held the first pattern."""
    other_pattern: Contents
    """The same, over the second pattern."""

    def __init__(
        self, trial: Trial, tolerance: float | None, rounds: int, examples: Sequence[Contents] = ()
    ) -> None:
        self.trial = trial
        self.program = trial.program
        self.tolerance = tolerance
        self.rounds = rounds
        self._examples = examples
        self.others: list[Contents] = []
        """Beginnings with other arguments, with which the function gives results of the same shapes."""
        self.reshaped: list[Contents] = []
        """Beginnings with which it gives results of other shapes."""
        self.compared = 0
        """The number of other arguments with which replays were compared."""
        self.doubts: list[Finding] = []
        self.rounding: list[str] = []
        """By how much arrays differ that are right up to rounding, in words."""
        self.notes: list[str] = []
        self.failed: Contents | None = None
        """With what the runs began in which a replay was wrong."""
        self.follows_python = False
        """Whether a replay was wrong only once Python had changed its references."""
        self.ignored: dict[int, frozenset[int]] = {}
        """The elements of each array that neither eager runs nor replays write."""
        self.described: tuple[Sequence[GraphNode], Sequence[GraphEdge]] | None = None
        """The nodes and edges of the graph, once somebody has asked for them."""

    def expect(self, begin: Contents | None = None) -> Expectation:
        """Run eagerly until it is known how far the runs differ."""
        trial = self.trial
        runs = [trial.eager(begin), trial.eager(begin, filled=1)]
        if runs[0] != runs[1]:
            runs += [trial.eager(begin, filled=i % 2) for i in range(_MORE_RUNS)]
        return Expectation(trial.targets, runs, self.tolerance, self.ignored)

    def try_others(self) -> None:
        """Find the other arguments that the function takes."""
        state = self.trial.saved[len(self.program.inputs) :]
        for data in (*self.variations(), *self._examples):
            begin = [*data, *state]
            try:
                self.trial.eager(begin)
                self.others.append(begin)
            except OutOfTime:
                raise
            except Changing:
                self.reshaped.append(begin)
            except Exception as error:
                self.notes.append(f"the function refuses other arguments: {type(error).__name__}: {error}")

    def replay(self, begin: Contents | None = None, *, pattern: int = 0) -> Contents:
        """Replay after an eager run with other arguments, of which nothing may be left in the result.

        A buffer that the function fills at once, in Python, is filled for that run.
        """
        if self.others:
            self.trial.eager(None if begin is self.others[0] else self.others[0])
        return self.trial.replay(begin, pattern=pattern)

    def eager_agrees(
        self, target: int, expected: Expectation | None = None, begin: Contents | None = None
    ) -> bool:
        """Return True if more eager runs leave the same in an array, but for what varied before."""
        expected = expected or self.expected
        place = self.trial.targets[target]
        for i in range(_MORE_RUNS):
            contents = self.trial.eager(begin, filled=i % 2)[target]
            changed = differing(contents, expected.contents[target], place.elements)
            if not expected.varying[target].issuperset(changed):
                self.doubts.append(self.finding(target, None, f"eager runs differ in {place.name}", changed))
                return False
        return True

    def variations(self) -> Iterator[Contents]:
        """Yield other arguments: floating-point numbers come in another order, and scaled; the rest stays.

        On a device, numbers change their signs only among numbers of both signs: a kernel that takes none
        but positive ones may end the process.
        """
        inputs, saved = self.program.inputs, self.trial.saved
        on_host = works_on_host(self.program.stream)
        chosen = [i for i, place in enumerate(inputs) if place.varies]
        for factor, negated in _VARIATIONS[: self.rounds - 1] if chosen else ():
            data = saved[: len(inputs)]
            for i in chosen:
                elements = inputs[i].elements
                data[i] = elements.scaled(elements.turned(data[i]), factor)
                if negated and (on_host or len(elements.signs(data[i])) == 2):
                    data[i] = elements.negated(data[i])
                elif negated:
                    self.notes.append(
                        f"{inputs[i].name} had no numbers of the other sign; examples= can name some"
                    )
            yield data

    # ---- comparing -----------------------------------------------------------------------------

    def wrong(
        self, expected: Expectation, run: Contents, begin: Contents | None, when: str
    ) -> list[Mismatch]:
        """Return how a run differs by more than rounding; note what is rounding, and what may be."""
        wrong, blurs = [], None
        for each in expected.mismatches(run):
            place, gap = self.trial.targets[each.target], each.difference
            if self.tolerance is not None or not (each.rounding or place.elements.floating):
                wrong.append(each)
                continue
            blurs = self._blurs(expected, begin) if blurs is None else blurs
            blur = blurs[each.target]
            off = f"eager runs by up to {blur:.2g} if their numbers are off by one rounding"
            few = _FEW * place.elements.epsilon * gap.scale
            if each.rounding and gap.largest <= max(_BLUR * blur, few):
                self.rounding.append(f"{place.name} differs by up to {gap.largest:.2g}{when}, and {off}")
            elif each.rounding or gap.largest <= _BLUR * blur:
                text = f"{self.difference(each)}{when}: too little for a fault and too much for rounding"
                self.doubts.append(self.found(each, None, f"{text}, {off}"))
            else:
                wrong.append(each)
        return wrong

    def _blurs(self, expected: Expectation, begin: Contents | None) -> list[float]:
        """Return how far each array follows if the numbers of arguments and state are off by one rounding."""
        trial, program = self.trial, self.program
        places = [*program.inputs, *program.state]
        blurred = [
            place.elements.off_by_one_rounding(data) if place.varies else data
            for place, data in zip(places, begin or trial.saved, strict=True)
        ]
        try:
            run = trial.eager(blurred)
        except OutOfTime:
            raise
        except Exception:  # it refuses such numbers
            return [0.0] * len(trial.targets)
        found = []
        for i, place in enumerate(trial.targets):
            gap = difference(run[i], expected.contents[i], place.elements, expected.unstable[i])
            found.append(gap.largest if gap is not None and place.elements.floating else 0.0)
        return found

    # ---- words ---------------------------------------------------------------------------------

    def difference(self, mismatch: Mismatch) -> str:
        """Return a clause: how an array differs from eager runs."""
        gap, place = mismatch.difference, self.trial.targets[mismatch.target]
        size = f", by up to {gap.largest:.3g}" if place.elements.floating else ""
        return f"{self.count(mismatch.target, gap.indices)} differ from eager runs{size}"

    def count(self, target: int, elements: Sequence[int]) -> str:
        """Return how many elements of which array."""
        place = self.trial.targets[target]
        if len(elements) == place.count:
            return f"all elements of {place.name}" if place.count > 1 else place.name
        return f"{len(elements)} of {place.count} elements of {place.name}"

    def finding(self, target: int, cause: Cause | None, text: str, elements: Sequence[int]) -> Finding:
        """Make a finding about elements of an array."""
        place = self.trial.targets[target]
        return Finding(place.name, cause, text, len(elements), place.count)

    def found(self, mismatch: Mismatch, cause: Cause | None, text: str) -> Finding:
        """Make a finding about an array that is not as expected."""
        target, gap, _ = mismatch
        floating = self.trial.targets[target].elements.floating
        finding = self.finding(target, cause, text, gap.indices)
        return finding._replace(largest=gap.largest if floating else None)
