"""The experiments of `verify`, one after another, until one of them has found a fault."""

from __future__ import annotations

from collections.abc import Iterator

from .elements import differing
from .expectation import Expectation, Mismatch
from .places import Place
from .report import Cause, Finding, Verification
from .trial import Changing, Run, Trial

_MORE_RUNS = 4
"""How many eager runs follow if two of them differ."""


class Inquiry:
    """Finds out whether the replays of a program are right.

    Parameters
    ----------
    trial : Trial
        Runs the program.
    tolerance : float, optional
        See `Expectation`.
    rounds : int
        With how many different arguments the replays are compared.
    """

    def __init__(self, trial: Trial, tolerance: float | None, rounds: int) -> None:
        self._trial = trial
        self._program = trial.program
        self._tolerance = tolerance
        self._rounds = rounds
        self._doubts: list[Finding] = []
        self._notes: list[str] = []
        self._ignored: dict[int, frozenset[int]] = {}

    def verdict(self) -> Verification:
        """Run the experiments."""
        try:
            findings = self._found()
        except Changing:
            text = "the number, shapes or types of the arrays in the result differ between two runs"
            self._doubts.append(Finding("result", None, text, 0, 0, None))
            findings = []
        program, trial = self._program, self._trial
        verdict = "wrong" if findings else "undecided" if self._doubts else "right"
        return Verification(
            verdict,  # type: ignore[arg-type]
            findings[0].cause if findings else None,
            program.name,
            program.stream.backend,
            program.stream.device,
            tuple(findings or self._doubts),
            "",
            trial.eager_runs,
            trial.replays,
            tuple(dict.fromkeys(self._notes)),
        )

    def _found(self) -> list[Finding]:
        trial = self._trial
        trial.warm_up()
        self._expected = self._expect()
        trial.capture()
        for experiment in (self._writes, self._agrees, self._follows, self._draws, self._keeps):
            findings = experiment()
            if findings:
                return findings
        return []

    def _expect(self, data: list[bytes] | None = None) -> Expectation:
        """Run eagerly until it is known how far the runs differ."""
        trial = self._trial
        runs = [trial.eager(data), trial.eager(data, beside=True, filled=1)]
        expected = Expectation(trial.targets, runs, self._tolerance)
        if not expected.repeatable:
            runs += [trial.eager(data, filled=i % 2) for i in range(_MORE_RUNS)]
            expected = Expectation(trial.targets, runs, self._tolerance)
        return expected

    # ---- is every output written ---------------------------------------------------------------

    def _writes(self) -> list[Finding]:
        """Replay over two patterns: what keeps both was not written, and what follows them was read first."""
        trial, targets = self._trial, self._trial.targets
        self._one, other = trial.replay(pattern=0), trial.replay(pattern=1)
        again = trial.replay(pattern=0)
        found = []
        for i in trial.poisoned:
            place = targets[i]
            kept = _kept(place, self._one, other, i)
            if kept:
                found += self._unwritten(i, place, kept)
        for i, place in enumerate(targets):
            leave_out = self._expected.unstable[i] | self._ignored.get(i, frozenset())
            apart = [
                j
                for j in differing(self._one.contents[i], other.contents[i], place.elements)
                if j not in leave_out
            ]
            repeats = self._expected_like(again, self._one, i)
            if apart and repeats and not self._expected.spread[i]:
                text = f"{_count(apart, place)} of {place.name} depend on what the outputs held before the replay"
                found.append(_finding(place, "not_written", text, apart))
        return found or self._steady(again)

    def _unwritten(self, i: int, place: Place, kept: list[int]) -> Iterator[Finding]:
        stable = [j for j in kept if j not in self._expected.unstable[i]]
        self._ignored[i] = frozenset(kept)
        if stable and self._eager_writes(i, stable):
            text = f"the replay leaves {_count(stable, place)} of {place.name} unwritten"
            yield _finding(place, "not_written", text, stable)
        elif stable:
            text = (
                f"the replay leaves {_count(stable, place)} of {place.name} unwritten, and it is not known "
                "whether eager runs write them"
            )
            self._doubts.append(_finding(place, None, text, stable))
        if len(stable) < len(kept):
            self._notes.append(f"neither eager runs nor replays write {_count(kept, place)} of {place.name}")

    def _eager_writes(self, i: int, elements: list[int]) -> bool:
        """Return True if it is certain that eager runs, which agree in these elements, write them.

        It is where new arrays are filled with different patterns. Elsewhere the whole array has to be
        concerned, and to follow the arguments: a part may hold what was in the memory before.
        """
        place = self._trial.targets[i]
        if self._trial.shows_unwritten(place):
            return True
        if len(elements) < place.nbytes // place.elements.size:
            return False
        for data in self._variations():
            contents = self._trial.eager(data).contents[i]
            if contents != self._expected.contents[i]:
                return contents == self._trial.eager(data).contents[i]
        return False

    def _expected_like(self, run: Run, other: Run, i: int) -> bool:
        return run.contents[i] == other.contents[i]

    def _steady(self, again: Run) -> list[Finding]:
        """Compare replays that began alike."""
        found = []
        for mismatch in self._between(again, self._one):
            place = self._trial.targets[mismatch.target]
            if mismatch.kind == "wrong" and not self._expected.spread[mismatch.target]:
                more = [self._trial.eager() for _ in range(_MORE_RUNS)]
                if any(run.contents[mismatch.target] != more[0].contents[mismatch.target] for run in more):
                    continue
                count = _count(mismatch.difference.indices, place)
                text = f"replays that begin alike differ in {count} of {place.name}, and eager runs do not"
                found.append(_finding(place, "race", text, mismatch.difference.indices, mismatch))
        return found

    def _between(self, run: Run, other: Run) -> list[Mismatch]:
        expected = Expectation(self._trial.targets, [other], self._tolerance)
        expected.unstable, expected.spread = self._expected.unstable, self._expected.spread
        return expected.mismatches(run, self._ignored)

    # ---- is it what eager runs give ------------------------------------------------------------

    def _agrees(self) -> list[Finding]:
        """Compare a replay with eager runs."""
        found = self._compare(self._expected, self._one, "unknown", "")
        for i, place in enumerate(self._trial.targets):
            unstable = self._expected.unstable[i] - self._ignored.get(i, frozenset())
            if unstable and not found:
                text = f"eager runs differ among themselves in {_count(sorted(unstable), place)} of {place.name}"
                self._doubts.append(_finding(place, None, text, sorted(unstable)))
        return found

    def _compare(self, expected: Expectation, run: Run, cause: Cause, when: str) -> list[Finding]:
        found = []
        for mismatch in expected.mismatches(run, self._ignored):
            place, gap = self._trial.targets[mismatch.target], mismatch.difference
            count = _count(gap.indices, place)
            size = f", by up to {gap.largest:.3g}" if place.elements.floating else ""
            text = f"{count} of {place.name} differ from eager runs{size}{when}"
            if mismatch.kind == "rounding":
                self._doubts.append(_finding(place, None, f"{text}, which may be rounding", gap.indices, mismatch))
            else:
                found.append(_finding(place, cause, text, gap.indices, mismatch))
        return found

    # ---- does it follow its arguments ----------------------------------------------------------

    def _follows(self) -> list[Finding]:
        """Compare with other arguments."""
        for data in self._variations():
            expected = self._expect(data)
            found = self._compare(expected, self._trial.replay(data), "frozen", " for other arguments")
            if found:
                return found
        return []

    def _variations(self) -> Iterator[list[bytes]]:
        """Yield other arguments: floating-point numbers in another order, and scaled; the rest as it is."""
        inputs, saved = self._program.inputs, self._trial.saved
        if not any(place.elements.floating and place.nbytes and place.writable for place in inputs):
            return
        for number in range(1, self._rounds):
            factor = (1.0, 0.5, 0.75, 0.25)[number % 4]
            yield [
                place.elements.varied(data, factor) if place.elements.floating and place.nbytes else data
                for place, data in zip(inputs, saved[: len(inputs)], strict=True)
            ]

    # ---- does it draw new random numbers -------------------------------------------------------

    def _draws(self) -> list[Finding]:
        """Run twice without setting the random numbers back."""
        trial = self._trial
        first, second = trial.eager(), trial.eager(random=False)
        drawn = [
            i
            for i, place in enumerate(trial.targets)
            if not self._expected.unstable[i] and first.contents[i] != second.contents[i]
        ]
        if not drawn or not self._expected.repeatable:
            return []
        one, other = trial.replay(), trial.replay(random=False)
        return [
            _finding(
                trial.targets[i],
                "random_repeats",
                f"every replay gives {trial.targets[i].name} the same random numbers, and eager runs do not",
                differing(first.contents[i], second.contents[i], trial.targets[i].elements),
            )
            for i in drawn
            if one.contents[i] == other.contents[i]
        ]

    # ---- does it follow what Python changes ----------------------------------------------------

    def _keeps(self) -> list[Finding]:
        """Run eagerly twice without putting back what Python has changed."""
        trial, python = self._trial, self._program.python
        trial.eager()
        changed = python.changed()
        if not changed:
            return []
        expected = self._expected
        second = trial.eager(python=False)
        moved = expected.mismatches(second, self._ignored)
        python.restore()
        if not [each for each in moved if each.kind == "wrong"]:
            return []
        name, before, after = changed[0]
        number = isinstance(before, (int, float, complex, str, bytes))
        cause: Cause = "frozen" if number else "stale_address"
        was = f"{name!r} changes from {before!r} to {after!r}" if number else f"{name!r} becomes another array"
        return [
            _finding(
                trial.targets[each.target],
                cause,
                f"{was} in an eager run, on which {trial.targets[each.target].name} depends, and in no replay",
                each.difference.indices,
                each,
            )
            for each in moved
            if each.kind == "wrong"
        ]


def _kept(place: Place, one: Run, other: Run, i: int) -> list[int]:
    """Return the elements of an output that hold, after both runs, what they held before."""
    size = place.elements.size
    if one.contents[i] == one.patterns[i] and other.contents[i] == other.patterns[i]:
        return list(range(place.nbytes // size))
    changed = {
        *differing(one.contents[i], one.patterns[i], place.elements),
        *differing(other.contents[i], other.patterns[i], place.elements),
    }
    return [j for j in range(place.nbytes // size) if j not in changed]


def _count(elements: list[int], place: Place) -> str:
    total = place.nbytes // place.elements.size
    return "all elements" if len(elements) == total else f"{len(elements)} of {total} elements"


def _finding(
    place: Place, cause: Cause | None, text: str, elements: list[int], mismatch: Mismatch | None = None
) -> Finding:
    largest = mismatch.difference.largest if mismatch is not None and place.elements.floating else None
    return Finding(place.name, cause, text, len(elements), place.nbytes // place.elements.size, largest)
