"""What the experiments of `verify` share: the trial, what is expected, and what was found so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .elements import differing
from .expectation import Expectation, Mismatch
from .report import Cause, Finding
from .trial import Load, Run, Trial, no_load

_MORE_RUNS = 4
"""How many eager runs follow if two of them differ."""

_FACTORS = (0.75, 1.0, 0.5)


class Case:
    """One verification.

    Parameters
    ----------
    trial : Trial
        Runs the program.
    tolerance : float, optional
        See `Expectation`.
    rounds : int
        With how many different arguments the replays are compared.
    """

    expected: Expectation
    """What eager runs with the caller's arguments give."""
    base: Run
    """A replay with the caller's arguments, whose outputs held the first pattern."""
    other_pattern: Run
    """The same, over the second pattern."""

    def __init__(self, trial: Trial, tolerance: float | None, rounds: int) -> None:
        self.trial = trial
        self.program = trial.program
        self.tolerance = tolerance
        self.rounds = rounds
        self.doubts: list[Finding] = []
        self.notes: list[str] = []
        self.failed: tuple[Sequence[bytes] | None, dict[int, bytes] | None] = (None, None)
        """The arguments and the state with which a replay was wrong."""
        self.follows_python = False
        """Whether a replay was wrong only once Python had changed its references."""
        self.ignored: dict[int, frozenset[int]] = {}
        """The elements of each array that neither eager runs nor replays write."""

    def expect(
        self, data: Sequence[bytes] | None = None, start: dict[int, bytes] | None = None
    ) -> Expectation:
        """Run eagerly until it is known how far the runs differ."""
        trial, start = self.trial, start or {}
        runs = [trial.eager(data, start=start), trial.eager(data, start=start, beside=True, filled=1)]
        expected = Expectation(trial.targets, runs, self.tolerance)
        if not expected.repeatable:
            runs += [trial.eager(data, start=start, filled=i % 2) for i in range(_MORE_RUNS)]
            expected = Expectation(trial.targets, runs, self.tolerance)
        return expected

    def eager_agrees(
        self,
        target: int,
        expected: Expectation | None = None,
        data: Sequence[bytes] | None = None,
        start: dict[int, bytes] | None = None,
        load: Load = no_load,
    ) -> bool:
        """Return True if more eager runs leave the same in an array, but for what varied before."""
        expected = expected or self.expected
        place = self.trial.targets[target]
        for i in range(_MORE_RUNS):
            contents = self.trial.eager(data, start=start or {}, filled=i % 2, load=load).contents[target]
            changed = differing(contents, expected.contents[target], place.elements)
            if not expected.varying[target].issuperset(changed):
                self.doubts.append(self.finding(target, None, f"eager runs differ in {place.name}", changed))
                return False
        return True

    def variations(self, only: int | None = None) -> Iterator[list[bytes]]:
        """Yield other arguments, or other contents of one argument.

        Floating-point numbers come in another order, and scaled; everything else stays as it is.
        """
        inputs, saved = self.program.inputs, self.trial.saved
        chosen = [
            i
            for i, place in enumerate(inputs)
            if place.elements.floating and place.nbytes and place.writable and only in (None, i)
        ]
        if not chosen:
            return
        for number in range(1, self.rounds):
            factor = _FACTORS[number % len(_FACTORS)]
            data = saved[: len(inputs)]
            for i in chosen:
                elements = inputs[i].elements
                data[i] = elements.scaled(elements.turned(data[i]), factor)
            yield data

    # ---- comparing -----------------------------------------------------------------------------

    def mismatches(self, expected: Expectation, run: Run) -> list[Mismatch]:
        """Return the arrays of a run that are not as expected."""
        return expected.mismatches(run, self.ignored)

    def wrong(self, mismatches: Iterable[Mismatch], when: str) -> list[Mismatch]:
        """Return the mismatches that are no rounding; note the others as doubts."""
        found = []
        for each in mismatches:
            if each.kind == "wrong":
                found.append(each)
            else:
                text = f"{self.difference(each)}{when}, which may be rounding"
                self.doubts.append(self.found(each, None, text))
        return found

    def difference(self, mismatch: Mismatch) -> str:
        """Return a clause: how an array differs from eager runs."""
        gap, place = mismatch.difference, self.trial.targets[mismatch.target]
        size = f", by up to {gap.largest:.3g}" if place.elements.floating else ""
        return f"{self.count(mismatch.target, gap.indices)} differ from eager runs{size}"

    # ---- words ---------------------------------------------------------------------------------

    def count(self, target: int, elements: Sequence[int]) -> str:
        """Return how many elements of which array."""
        place = self.trial.targets[target]
        if len(elements) == place.count:
            return f"all elements of {place.name}" if place.count > 1 else place.name
        return f"{len(elements)} of {place.count} elements of {place.name}"

    def finding(self, target: int, cause: Cause | None, text: str, elements: Sequence[int]) -> Finding:
        """Make a finding about elements of an array."""
        place = self.trial.targets[target]
        return Finding(place.name, cause, text, len(elements), place.count, None)

    def found(self, mismatch: Mismatch, cause: Cause | None, text: str) -> Finding:
        """Make a finding about an array that is not as expected."""
        finding = self.finding(mismatch.target, cause, text, mismatch.difference.indices)
        if not self.trial.targets[mismatch.target].elements.floating:
            return finding
        return finding._replace(largest=mismatch.difference.largest)
