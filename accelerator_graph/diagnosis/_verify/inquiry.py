"""The verdict of `verify`.

A graph is right if its replays leave behind what eager runs do. The reference is an eager run under the
capture's own conditions: on the stream that captures are made on, so with its workspaces, in the same modes,
and begun with the same arguments, state, references and random numbers. So a right graph gives the same bits.

1.  Eager runs come first, with the caller's arguments and with others: the caller's `examples`, and his
    numbers in another order, scaled and negated. Elements in which eager runs differ by more than rounding
    are not judged. Shapes that follow other arguments are a fault: a graph has one shape.
2.  Before a replay whose result counts comes an eager run with other arguments: a buffer that Python fills is
    full of those. The graph's own outputs hold a pattern, which nobody would write.
3.  A replay may differ from an eager run four times as far as eager runs do among themselves. It may also
    differ four times as far as an eager run whose arguments and state differ in their last bits, or by four
    roundings of the array's largest number: that is right up to rounding, and both sizes are said. What is
    more, and less than the root of a rounding, is undecided. The rest is wrong, if four more eager runs agree
    with the first ones.
4.  What is wrong has a cause only if an experiment shows it:
    an output keeps two patterns, or depends on them, and eager runs write it      not_written
    a replay follows the eager run before it, and not its arguments                 not_written
    a number, a member, a container of Python changes in eager runs, and the
    result of an eager run that begins with the new ones is another one             frozen
    a replay does not follow other arguments, or state that lies where it lay       frozen
    an array of Python becomes another one in eager runs, and results follow        stale_address
    a graph of the caller's does not follow an array, and a new capture does        stale_address
    a replay changes once freed memory holds zeros                                  stale_address
    copies and fills of two branches use one memory, or replays that begin alike
    end differently, and the graph has branches that do not wait for each other     race
    every eager run draws other random numbers, and no replay does                  random_repeats
    Without such an experiment the cause is unknown.
5.  The first experiment that finds a fault ends the inquiry: wrong. Else, with a doubt left, or once the time
    is over: undecided, with the reason. Else right, and the sentence says what was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import chain

from ..._arrays.placement import extent
from ...errors import AcceleratorGraphError
from ...interop import registry as interop
from .case import Case, Expectation, Mismatch
from .places import differing, holding, wait
from .report import Cause, Finding, Verdict, Verification
from .trial import Changing, Contents, OutOfTime
from .where import conflict, first_wrong_module, unordered

_REPLAYS = 3
_AGAIN = 4
"""How many replays follow a wrong one, to see whether they are all alike."""
_STEPS = 3
"""How many eager runs follow each other with what Python has changed."""
_MOST_NAMES = 16
_MOST = 256
"""How many arrays are tried one by one."""


def verdict(case: Case) -> Verification:
    """Run the experiments, one after another, until one of them has found a fault."""
    findings: list[Finding] = []
    rest = list(_EXPERIMENTS)
    trial, program = case.trial, case.program
    try:
        trial.warm_up()
        case.expected = case.expect()
        case.try_others()
        trial.capture()
        while rest and not findings:
            findings = rest[0](case)
            del rest[0]
        if not findings and not trial.results and not trial.writes:
            text = "eager runs return no array and write none that is known; return what the function writes"
            case.doubts.append(Finding("result", None, text))
    except Changing as error:
        case.doubts.append(Finding("result", None, str(error)))
    except OutOfTime:
        left = ", ".join(experiment.__name__.replace("_", " ") for experiment in rest)
        text = f"the time limit was over before the experiments {left}; give it more by time_limit="
        case.doubts.insert(0, Finding("result", None, text))
    where = first_wrong_module(case) if findings else ""
    answer: Verdict = "wrong" if findings else "undecided" if case.doubts else "right"
    case.notes += [f"{name} is in memory that can't be read here" for name in program.left_out]
    return Verification(
        answer,
        findings[0].cause if findings else None,
        program.name,
        program.stream.backend,
        program.stream.device,
        tuple(findings or case.doubts),
        where,
        case.compared,
        tuple(dict.fromkeys(case.rounding)),
        trial.eager_runs,
        trial.replays,
        tuple(dict.fromkeys(case.notes)),
    )


# ---- is every output written? --------------------------------------------------------------------


def unwritten_outputs(case: Case) -> list[Finding]:
    """Find outputs that keep, after two replays, the patterns that they held before."""
    case.base, case.other_pattern = case.replay(pattern=0), case.replay(pattern=1)
    found: list[Finding] = []
    for i in case.trial.poisoned:
        elements, after = case.trial.targets[i].elements, case.other_pattern[i]
        second, size = elements.pattern(1), elements.size
        kept = holding(case.base[i], elements.pattern(0))
        kept = [j for j in kept if after[j * size : (j + 1) * size] == second]
        case.ignored[i] = frozenset(kept)
        unwritten = [j for j in kept if j in case.expected.unwritten[i]]
        varying = [j for j in kept if j in case.expected.varying[i] and j not in unwritten]
        stable = [j for j in kept if j not in case.expected.varying[i]]
        text = "the replay leaves {} unwritten".format
        if stable and _eager_writes(case, i, stable):
            found.append(case.finding(i, "not_written", text(case.count(i, stable)), stable))
            stable = []
        for part, why in ((stable, "so may eager runs"), (varying, "eager runs differ there")):
            if part:
                doubt = f"{text(case.count(i, part))}, and {why}"
                case.doubts.append(case.finding(i, None, doubt, part))
        if unwritten:
            case.notes.append(f"neither eager runs nor replays write {case.count(i, unwritten)}")
    return found


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
    for begin in case.others:
        contents = trial.eager(begin)[i]
        if contents != case.expected.contents[i]:
            return contents == trial.eager(begin)[i]
    return False


def outputs_that_are_read_first(case: Case) -> list[Finding]:
    """Find outputs that depend on what they held before a replay."""
    found: list[Finding] = []
    again: tuple[Contents, Contents] | None = None
    for i, pair in enumerate(zip(case.base, case.other_pattern, strict=True)):
        left_out = case.expected.left_out(i)
        apart = [j for j in differing(*pair, case.trial.targets[i].elements) if j not in left_out]
        if not apart or case.expected.spread[i]:
            continue
        again = again or (case.replay(pattern=0), case.replay(pattern=1))
        if pair == (again[0][i], again[1][i]) and case.eager_agrees(i):
            text = f"{case.count(i, apart)} depend on what the outputs held before the replay"
            found.append(case.finding(i, "not_written", text, apart))
    return found


# ---- do replays that begin alike end alike? ------------------------------------------------------


def races(case: Case) -> list[Finding]:
    """Find memory that two branches use at once, and arrays in which replays that begin alike differ.

    Kernels that fill the device run one after another, always in the same order. So half of the replays have
    other work beside them, if the caller has named a stream for that.
    """
    clash = conflict(case)
    if clash:
        return [Finding("graph", "race", clash)]
    found, trial = _differing_replays(case), case.trial
    if found or trial.beside is None:
        return found
    trial.busy = True
    try:
        return _differing_replays(case)
    finally:
        trial.busy = False
        wait(trial.beside)


def _differing_replays(case: Case) -> list[Finding]:
    """Find arrays in which replays differ that begin alike."""
    first = case.replay()
    pairs = chain([(case.base, first)], ((first, case.trial.replay()) for _ in range(_REPLAYS)))
    changes = (_changed(case, *pair) for pair in pairs)
    steady = ([each for each in wrong if not case.expected.spread[each.target]] for wrong in changes)
    found = next(filter(None, steady), [])
    cause: Cause = "race" if found and unordered(case) else "unknown"
    text = "replays that begin alike differ in {}; eager runs agree"
    return [
        case.found(each, cause, text.format(case.count(each.target, each.difference.indices)))
        for each in found
        if case.eager_agrees(each.target)
    ]


def _changed(case: Case, first: Contents, run: Contents) -> list[Mismatch]:
    """Return the arrays that are not as after a first replay, by more than eager runs differ."""
    expected = Expectation(case.trial.targets, [first], case.tolerance, case.ignored)
    expected.unstable, expected.spread = case.expected.unstable, case.expected.spread
    return [each for each in expected.mismatches(run) if not each.rounding]


def repeated_random_numbers(case: Case) -> list[Finding]:
    """Find arrays whose random numbers are others in every eager run, and the same in every replay."""
    trial = case.trial
    first, second = trial.eager(), trial.eager(random=False)
    drawn = [i for i in range(len(trial.targets)) if first[i] != second[i] and not case.expected.varying[i]]
    if not drawn:
        return []
    third = trial.eager(random=False)  # one run may differ by the order of its additions
    one, other = trial.replay(), trial.replay(random=False)
    return [
        case.finding(
            i,
            "random_repeats",
            f"every replay draws the same random numbers for {trial.targets[i].name}, and no eager run does",
            differing(first[i], second[i], trial.targets[i].elements),
        )
        for i in drawn
        if third[i] not in (first[i], second[i]) and one[i] == other[i] and case.eager_agrees(i)
    ]


# ---- do replays follow the arguments, the state, and what Python changes? --------------------------


def the_same_arguments(case: Case) -> list[Finding]:
    """Compare replays with eager runs, with the caller's arguments."""
    found = _compared(case, case.expected, case.base, None, "unknown", "")
    for i in range(0 if found else len(case.trial.targets)):
        unstable = sorted(case.expected.unstable[i] - case.ignored.get(i, frozenset()))
        if unstable:
            text = f"eager runs differ among themselves in {case.count(i, unstable)}"
            case.doubts.append(case.finding(i, None, text, unstable))
    return found


def other_arguments(case: Case) -> list[Finding]:
    """Compare with other arguments."""
    for begin in case.reshaped:
        with suppress(Changing):
            case.trial.eager(begin)
            case.doubts.append(Finding("result", None, "its shape changes from run to run"))
            continue
        text = (
            "the result has another shape, number or type of arrays for other arguments, and a graph has one"
        )
        return [Finding("result", "frozen", text)]
    for begin in case.others:
        expected, run = case.expect(begin), case.replay(begin)
        found = _compared(case, expected, run, begin, "frozen", " for other arguments")
        if found:
            return found
        case.compared += 1
    return []


def other_state(case: Case) -> list[Finding]:
    """Compare with other floating-point numbers in the state: scaled or, if runs change them, a pattern."""
    trial = case.trial
    changes = {}
    for i in range(trial.results + len(case.program.inputs), len(trial.targets)):
        if trial.targets[i].varies:
            changed = case.expected.contents[i] != trial.saved[i - trial.results]
            changes[i] = trial.targets[i].pattern(0) if changed else trial.scaled(i)
    if not changes:
        return []
    begin = trial.beginning(changes)
    try:
        expected = case.expect(begin)
    except OutOfTime:
        raise
    except Exception as error:
        case.notes.append(f"the function refuses another state: {type(error).__name__}: {error}")
        return []
    return _compared(case, expected, case.replay(begin), begin, "unknown", " once the state has changed")


def _compared(
    case: Case, expected: Expectation, run: Contents, begin: Contents | None, cause: Cause, when: str
) -> list[Finding]:
    """Compare a replay with eager runs that began with the same arguments and state.

    If they differ, find out why; `cause` is what remains if no experiment finds another.
    """
    wrong = case.wrong(expected, run, begin, when)
    wrong = [each for each in wrong if case.eager_agrees(each.target, expected, begin)]
    if not wrong:
        return []
    case.failed = begin
    after_eager = case.trial.replay(begin)  # `eager_agrees` has run eagerly
    again = [case.replay(begin) for _ in range(_AGAIN)]
    if any(other[each.target] != run[each.target] for each in wrong for other in again):
        cause, when = "race" if unordered(case) else "unknown", f"{when}, and replays differ"
    else:
        clauses = [_not_written(case, expected, after_eager, each, begin) for each in wrong]
        if any(clauses):
            pairs = zip(wrong, clauses, strict=True)
            return [case.found(each, "not_written", clause) for each, clause in pairs if clause]
        if case.program.given_graph or cause != "frozen":
            unread = _unread(case)
            if unread is not None:
                cause, clause = _why_unread(case, unread)
                when += clause
    found = [case.found(each, cause, f"{case.difference(each)}{when}") for each in wrong]
    if cause == "stale_address" or any(_is_no_tie(case, each, run, begin) for each in wrong):
        return found
    case.doubts += [each._replace(cause=None) for each in found]
    return []


def _is_no_tie(case: Case, mismatch: Mismatch, run: Contents, begin: Contents | None) -> bool:
    """Return False for integers that may differ since numbers do by rounding, as the index of a maximum."""
    i = mismatch.target
    floating = case.trial.targets[i].elements.floating
    return floating or (begin in case.others and run[i] == case.base[i])


def _not_written(
    case: Case, expected: Expectation, after_eager: Contents, mismatch: Mismatch, begin: Contents | None
) -> str:
    """Return which work is not in the graph, as a clause; empty if all may be."""
    trial, i, indices = case.trial, mismatch.target, mismatch.difference.indices
    part = case.count(i, indices)
    if after_eager[i] == expected.contents[i]:
        return f"{part} follow the eager run before the replay, so Python fills a buffer that the graph reads"
    if i < trial.results:
        return ""
    place = trial.targets[i]
    patterns = [place.pattern(0), place.pattern(1)]
    begins = [trial.beginning({i: pattern}, begin) for pattern in patterns]
    replayed, ran = ([run(each)[i] for each in begins] for run in (trial.replay, trial.eager))
    changed = [differing(a, b, place.elements) for a, b in zip(patterns, replayed, strict=True)]
    written = [differing(a, b, place.elements) for a, b in zip(patterns, ran, strict=True)]
    wrong = set(indices)
    if all(map(wrong.isdisjoint, changed)) and all(map(wrong.issubset, written)):
        copied = case.program.copies_arguments and i < trial.results + len(case.program.inputs)
        back = "which goes back to the caller if the function returns the argument"
        copy = f" (the graph writes a copy, {back})" if copied else ""
        return f"the replay leaves {part} as before{copy}, and eager runs write there"
    if ran[0] == ran[1] and wrong.issubset(differing(replayed[0], replayed[1], place.elements)):
        return f"{part} depend on what was there before the replay, and eager runs do not"
    return ""


def _unread(case: Case) -> int | None:
    """Return the index of an array that eager runs depend on and replays do not."""
    trial = case.trial
    first = 0 if case.program.given_graph else len(case.program.inputs)
    for i in range(trial.results + first, min(len(trial.targets), trial.results + _MOST)):
        if not trial.targets[i].varies:
            continue
        begin = trial.beginning({i: trial.scaled(i)})
        if _others_follow(case.base, trial.replay(begin), i):
            continue
        moved = case.expected.mismatches(trial.eager(begin))
        if any(each.target != i for each in moved):
            return i
    return None


def _others_follow(before: Contents, after: Contents, i: int) -> bool:
    """Return True if any array but one is another one."""
    return any(k != i and old != new for k, (old, new) in enumerate(zip(before, after, strict=True)))


def _why_unread(case: Case, i: int) -> tuple[Cause, str]:
    """Return why no replay follows an array, and a clause.

    What was captured here, or in this call, uses memory that has not moved since. A graph of the caller's may
    use other memory, if a new capture follows the array.
    """
    trial = case.trial
    name = trial.targets[i].name
    if not case.program.given_graph:
        return "frozen", f", and no replay follows {name}"
    begin = trial.beginning({i: trial.scaled(i)})
    with suppress(AcceleratorGraphError, Changing), trial.captured_anew():
        if _others_follow(trial.replay(), trial.replay(begin), i):
            return "stale_address", f", and no replay reads the memory that {name} has now"
        return "frozen", f", and neither this graph nor a new one follows {name}"
    return "unknown", f", and no replay follows {name}"


def changes_of_python(case: Case) -> list[Finding]:
    """Run eagerly, again and again, without putting back the references that Python has changed."""
    trial, python = case.trial, case.program.python
    trial.eager()
    changed = python.changed()
    moved = _moved_by(case, "") if changed else []
    if not moved:
        return []
    if len(changed) > 1:  # which of them is it?
        single = (each for each in changed[:_MOST_NAMES] if _moved_by(case, each[0]))
        changed = [next(single, changed[0])]
    case.follows_python = True
    cause, what = _change(case, *changed[0])
    if moved[0] is None:
        return [Finding("result", cause, f"{what}, and the shape of the result depends on it")]
    return [
        case.found(each, cause, f"{what}, and {trial.targets[each.target].name} depends on it")
        for each in moved
        if each is not None and case.eager_agrees(each.target)
    ]


def _moved_by(case: Case, name: str) -> list[Mismatch | None]:
    """Return what is another one in eager runs that begin with one reference as the run before has left it.

    Without a name, with all references. None stands for arrays of other shapes.
    """
    trial, python = case.trial, case.program.python
    python.restore()
    try:
        for _ in range(_STEPS):
            trial.eager(python=False)
            if name:
                python.restore(keep=name)
            found = case.expected.mismatches(trial.eager(python=False))
            if moved := [each for each in found if not each.rounding]:
                return [*moved]
    except Changing:
        return [None]
    finally:
        python.restore()
    return []


def _change(case: Case, name: str, before: object, after: object) -> tuple[Cause, str]:
    """Return what a change of a reference means for a graph, and a clause."""
    if not (case.program.reader.is_array(before) and case.program.reader.is_array(after)):
        shown = f"from {_shown(before)} to {_shown(after)}"
        return "frozen", f"{name} changes {shown} in an eager run, and in no replay"
    if extent(before) == extent(after) is not None:
        return "unknown", f"{name} becomes another object in the same memory in every eager run"
    return "stale_address", f"{name} becomes another array in every eager run"


def _shown(x: object) -> str:
    shown = repr(x)
    return shown if len(shown) <= 60 else f"an object of type {type(x).__name__!r}"


# ---- does memory that was freed matter? ------------------------------------------------------------


def freed_memory(case: Case) -> list[Finding]:
    """Find arrays that change once the memory that frameworks have freed holds zeros."""
    trial, stream = case.trial, case.program.stream
    frameworks = interop.inspectable(stream.backend)
    if not frameworks:
        return []
    wait(stream)
    for framework in frameworks:
        framework.clear_free(stream.device)
    return [
        case.found(
            each,
            "stale_address",
            f"{case.count(each.target, each.difference.indices)} change once freed memory holds zeros, so "
            "the graph reads freed memory",
        )
        for each in _changed(case, case.base, trial.replay())
    ]


_EXPERIMENTS: tuple[Callable[[Case], list[Finding]], ...] = (
    unwritten_outputs,
    races,
    outputs_that_are_read_first,
    changes_of_python,
    repeated_random_numbers,
    the_same_arguments,
    other_arguments,
    other_state,
    freed_memory,
)
