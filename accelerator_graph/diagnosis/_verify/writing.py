"""Is every output written? Replays over two patterns show what is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from .case import Case
from .elements import differing, holding
from .report import Finding
from .trial import Run


def unwritten(case: Case) -> list[Finding]:
    """Find outputs that keep what they held before a replay."""
    trial = case.trial
    one, other = trial.replay(pattern=0), trial.replay(pattern=1)
    case.base, case.other_pattern = one, other
    found: list[Finding] = []
    for i in trial.poisoned:
        kept = _kept(case, i, one, other)
        if kept:
            found += _left(case, i, kept)
    return found


def _kept(case: Case, i: int, one: Run, other: Run) -> list[int]:
    """Return the elements of an output that hold, after both runs, what they held before."""
    place = case.trial.targets[i]
    size = place.elements.size
    first, second = (place.elements.pattern(which) for which in (0, 1))
    after = other.contents[i]
    return [j for j in holding(one.contents[i], first) if after[j * size : (j + 1) * size] == second]


def _left(case: Case, i: int, kept: list[int]) -> Iterator[Finding]:
    """Judge elements that no replay writes."""
    stable = [j for j in kept if j not in case.expected.varying[i]]
    case.ignored[i] = frozenset(kept)
    if stable and _eager_writes(case, i, stable):
        yield case.finding(i, "not_written", f"the replay leaves {case.count(i, stable)} unwritten", stable)
    elif stable:
        text = f"the replay leaves {case.count(i, stable)} unwritten, and so may eager runs"
        case.doubts.append(case.finding(i, None, text, stable))
    if len(stable) < len(kept):
        case.notes.append(f"neither eager runs nor replays write {case.count(i, kept)}")


def _eager_writes(case: Case, i: int, elements: list[int]) -> bool:
    """Return True if it is certain that eager runs, which agree in these elements, write them.

    It is where new arrays are filled with different patterns. Elsewhere the whole array has to be concerned,
    and to follow the arguments: a part may hold what was in the memory before.
    """
    trial = case.trial
    place = trial.targets[i]
    if trial.shows_unwritten(place):
        return True
    if len(elements) < place.count:
        return False
    for data in case.variations():
        with suppress(Exception):  # the function refuses other arguments
            contents = trial.eager(data).contents[i]
            if contents != case.expected.contents[i]:
                return contents == trial.eager(data).contents[i]
    return False


def read_first(case: Case) -> list[Finding]:
    """Find outputs that depend on what they held before a replay."""
    trial, found = case.trial, []
    one, other = case.base, case.other_pattern
    again: tuple[Run, Run] | None = None
    for i in range(len(trial.targets)):
        leave_out = case.expected.unstable[i] | case.ignored.get(i, frozenset())
        gaps = differing(one.contents[i], other.contents[i], trial.targets[i].elements)
        apart = [j for j in gaps if j not in leave_out]
        if not apart or case.expected.spread[i]:
            continue
        again = again or (trial.replay(pattern=0), trial.replay(pattern=1))
        repeats = [run.contents[i] for run in again] == [one.contents[i], other.contents[i]]
        if repeats and case.eager_agrees(i):
            text = f"{case.count(i, apart)} depend on what the outputs held before the replay"
            found.append(case.finding(i, "not_written", text, apart))
    return found
