"""Do replays that begin alike end alike, and do they draw new random numbers?"""

from __future__ import annotations

from collections.abc import Sequence

from ..._core.streams import Stream
from .case import Case
from .elements import differing
from .expectation import Expectation
from .places import wait
from .report import Finding
from .surroundings import keep_busy
from .trial import Load, no_load

_REPLAYS = 3


def races(case: Case) -> list[Finding]:
    """Find arrays in which replays that begin alike differ, while eager runs agree.

    Kernels that fill the device run one after another, always in the same order. So half of the runs have
    other work beside them, on a stream that shares no memory with them.
    """
    other = Stream(backend=case.program.stream.backend, like=case.program.stream)
    kept: list[object] = []
    try:
        return _races(case, (no_load, lambda: kept.append(keep_busy(case, other))))
    finally:
        wait(other)  # this stream fills the memory that is kept
        kept.clear()


def _races(case: Case, loads: Sequence[Load]) -> list[Finding]:
    trial, found = case.trial, {}
    expected = Expectation(trial.targets, [case.base], case.tolerance)
    expected.unstable, expected.spread = case.expected.unstable, case.expected.spread
    for load in loads:
        for _ in range(_REPLAYS):
            for each in case.mismatches(expected, trial.replay(load=load)):
                if each.kind == "wrong" and not case.expected.spread[each.target]:
                    found[each.target] = each
        if found:
            break
    return [
        case.found(
            each,
            "race",
            f"replays that begin alike differ in {case.count(i, each.difference.indices)}; eager runs agree",
        )
        for i, each in found.items()
        if all(case.eager_agrees(i, load=load) for load in loads)
    ]


def repeated_numbers(case: Case) -> list[Finding]:
    """Find arrays whose random numbers are others in every eager run, and the same in every replay."""
    trial = case.trial
    first, second = trial.eager(), trial.eager(random=False)
    drawn = [
        i
        for i in range(len(trial.targets))
        if first.contents[i] != second.contents[i] and not case.expected.varying[i]
    ]
    if not drawn:
        return []
    third = trial.eager(random=False)  # one run may differ by the order of its additions
    one, other = trial.replay(), trial.replay(random=False)
    return [
        case.finding(
            i,
            "random_repeats",
            f"every replay draws the same random numbers for {trial.targets[i].name}, and no eager run does",
            differing(first.contents[i], second.contents[i], trial.targets[i].elements),
        )
        for i in drawn
        if third.contents[i] not in (first.contents[i], second.contents[i])
        and one.contents[i] == other.contents[i]
        and case.eager_agrees(i)
    ]
