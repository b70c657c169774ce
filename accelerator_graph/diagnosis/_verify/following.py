"""Do replays follow the arguments, the state, and what Python changes?"""

from __future__ import annotations

from collections.abc import Sequence

from .case import Case
from .elements import differing
from .expectation import Expectation, Mismatch
from .report import Cause, Finding
from .trial import Run

_AGAIN = 4
"""How many replays follow a wrong one, to see whether they are all alike."""
_MOST = 256
"""How many arrays are tried one by one."""


def first_arguments(case: Case) -> list[Finding]:
    """Compare replays with eager runs, with the caller's arguments."""
    found = _compared(case, case.expected, case.base, None, None, "unknown", "")
    for i in range(0 if found else len(case.trial.targets)):
        unstable = sorted(case.expected.unstable[i] - case.ignored.get(i, frozenset()))
        if unstable:
            text = f"eager runs differ among themselves in {case.count(i, unstable)}"
            case.doubts.append(case.finding(i, None, text, unstable))
    return found


def other_arguments(case: Case) -> list[Finding]:
    """Compare with other arguments."""
    for data in case.variations():
        try:
            expected = case.expect(data)
        except Exception as error:
            case.notes.append(f"the function refuses other arguments: {type(error).__name__}: {error}")
            continue
        run = case.trial.replay(data)
        found = _compared(case, expected, run, data, None, "frozen", " for other arguments")
        if found:
            return found
    return []


def other_state(case: Case) -> list[Finding]:
    """Compare with other floating-point numbers in the state: scaled or, if runs change them, a pattern."""
    trial = case.trial
    start = {}
    for i in range(trial.results + len(case.program.inputs), len(trial.targets)):
        place, saved = trial.targets[i], trial.saved[i - trial.results]
        if place.elements.floating and place.nbytes and place.writable:
            changed = case.expected.contents[i] != saved
            start[i] = place.pattern(0) if changed else place.elements.scaled(saved, 0.75)
    if not start:
        return []
    try:
        expected = case.expect(None, start)
    except Exception as error:
        case.notes.append(f"the function refuses another state: {type(error).__name__}: {error}")
        return []
    run = trial.replay(start=start)
    return _compared(case, expected, run, None, start, "unknown", " once the state has changed")


def _compared(
    case: Case,
    expected: Expectation,
    run: Run,
    data: Sequence[bytes] | None,
    start: dict[int, bytes] | None,
    cause: Cause,
    when: str,
) -> list[Finding]:
    """Compare a replay with eager runs that began with the same arguments and state.

    If they differ, find out why; `cause` is what remains if no experiment tells.
    """
    wrong = case.wrong(case.mismatches(expected, run), when)
    wrong = [each for each in wrong if case.eager_agrees(each.target, expected, data, start)]
    if not wrong:
        return []
    case.failed = data, start
    again = [case.trial.replay(data, start=start or {}) for _ in range(_AGAIN)]
    if any(other.contents[each.target] != run.contents[each.target] for each in wrong for other in again):
        return [
            case.found(each, "race", f"{case.difference(each)}{when}, and replays differ") for each in wrong
        ]
    untouched = [each for each in wrong if _is_untouched(case, each, data)]
    if untouched:
        return [
            case.found(
                each,
                "not_written",
                f"the replay leaves {case.count(each.target, each.difference.indices)} as before"
                f"{_copied(case, each)}, and eager runs write there",
            )
            for each in untouched
        ]
    read_first = [each for each in wrong if _reads_first(case, each, data)]
    if read_first:
        return [
            case.found(
                each,
                "not_written",
                f"{case.count(each.target, each.difference.indices)} depend on what was there before the "
                "replay, and eager runs do not",
            )
            for each in read_first
        ]
    unread = _unread(case) if case.program.given_graph or data is None else ""
    if unread:
        cause, when = "stale_address", f"{when}, and no replay reads the memory that {unread} has now"
    found = [case.found(each, cause, f"{case.difference(each)}{when}") for each in wrong]
    if cause == "stale_address" or any(_is_no_tie(case, each, run, data) for each in wrong):
        return found
    case.doubts += [each._replace(cause=None) for each in found]
    return []


def _is_no_tie(case: Case, mismatch: Mismatch, run: Run, data: Sequence[bytes] | None) -> bool:
    """Return False for integers that may differ since numbers do by rounding, as the index of a maximum."""
    i = mismatch.target
    floating = case.trial.targets[i].elements.floating
    return floating or (data is not None and run.contents[i] == case.base.contents[i])


def _copied(case: Case, mismatch: Mismatch) -> str:
    """Return what a graphed function does with an argument that it writes, as a clause."""
    trial = case.trial
    argument = trial.results <= mismatch.target < trial.results + len(case.program.inputs)
    if not (argument and case.program.copies_arguments):
        return ""
    return " (the graph writes a copy, which goes back to the caller if the function returns the argument)"


def _is_untouched(case: Case, mismatch: Mismatch, data: Sequence[bytes] | None) -> bool:
    """Return True if a replay keeps what an argument or a state held before, where eager runs write."""
    trial, i = case.trial, mismatch.target
    if i < trial.results:
        return False
    place = trial.targets[i]
    for which in (0, 1):
        pattern = place.pattern(which)
        start, size = {i: pattern}, place.elements.size
        replayed, run = (
            trial.replay(data, start=start).contents[i],
            trial.eager(data, start=start).contents[i],
        )
        for j in mismatch.difference.indices:
            part = slice(j * size, (j + 1) * size)
            if replayed[part] != pattern[part] or run[part] == pattern[part]:
                return False
    return True


def _reads_first(case: Case, mismatch: Mismatch, data: Sequence[bytes] | None) -> bool:
    """Return True if replays depend on what an argument or a state held before, and eager runs do not."""
    trial, i = case.trial, mismatch.target
    if i < trial.results:
        return False
    place = trial.targets[i]
    one, other = ({i: place.pattern(which)} for which in (0, 1))
    ran = trial.eager(data, start=one).contents[i], trial.eager(data, start=other).contents[i]
    if ran[0] != ran[1]:
        return False
    replayed = trial.replay(data, start=one).contents[i], trial.replay(data, start=other).contents[i]
    return set(mismatch.difference.indices) <= set(differing(*replayed, place.elements))


def _unread(case: Case) -> str:
    """Return the name of an array that eager runs depend on and replays do not."""
    trial = case.trial
    count = len(case.program.inputs)
    base = case.base.contents
    for i in range(trial.results, min(len(trial.targets), trial.results + _MOST)):
        place, index = trial.targets[i], i - trial.results
        if not (place.elements.floating and place.nbytes and place.writable):
            continue
        if index < count and not case.program.given_graph:
            continue
        start = {i: place.elements.scaled(trial.saved[index], 0.75)}
        replayed = trial.replay(start=start).contents
        if any(replayed[k] != base[k] for k in range(len(base)) if k != i):
            continue
        if any(
            k != i for k in (each.target for each in case.mismatches(case.expected, trial.eager(start=start)))
        ):
            return place.name
    return ""


def python_changes(case: Case) -> list[Finding]:
    """Run eagerly twice without putting back the references that Python has changed."""
    trial, python = case.trial, case.program.python
    trial.eager()
    changed = python.changed()
    if not changed:
        return []
    second = trial.eager(python=False)
    python.restore()
    moved = [each for each in case.mismatches(case.expected, second) if each.kind == "wrong"]
    case.follows_python = bool(moved)
    name, before, after = changed[0]
    cause: Cause = "stale_address"
    what = f"{name} becomes another array in every eager run"
    if isinstance(before, (int, float, complex, str, bytes)):
        cause, what = (
            "frozen",
            f"{name} changes from {before!r} to {after!r} in an eager run, and in no replay",
        )
    return [
        case.found(each, cause, f"{what}, and {trial.targets[each.target].name} depends on it")
        for each in moved
    ]
