"""Do replays that begin alike end alike, and do they draw new random numbers?"""

from __future__ import annotations

from .case import Case
from .elements import differing
from .expectation import Expectation
from .report import Finding

_REPLAYS = 3


def races(case: Case) -> list[Finding]:
    """Find arrays in which replays that begin alike differ, while eager runs agree."""
    trial, found = case.trial, {}
    expected = Expectation(trial.targets, [case.base], case.tolerance)
    expected.unstable, expected.spread = case.expected.unstable, case.expected.spread
    for _ in range(_REPLAYS):
        for each in case.mismatches(expected, trial.replay()):
            if each.kind == "wrong" and not case.expected.spread[each.target]:
                found[each.target] = each
    return [
        case.found(
            each,
            "race",
            f"replays that begin alike differ in {case.count(i, each.difference.indices)}; eager runs agree",
        )
        for i, each in found.items()
        if case.eager_agrees(i)
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
    one, other = trial.replay(), trial.replay(random=False)
    return [
        case.finding(
            i,
            "random_repeats",
            f"every replay draws the same random numbers for {trial.targets[i].name}, and no eager run does",
            differing(first.contents[i], second.contents[i], trial.targets[i].elements),
        )
        for i in drawn
        if one.contents[i] == other.contents[i] and case.eager_agrees(i)
    ]
