"""Do replays stay right whatever happens around them: in free memory, and on other streams?"""

from __future__ import annotations

from collections.abc import Callable

from ..._core import stream_stack
from ..._core.side_streams import side_of
from ..._core.streams import Stream
from ...interop import registry as interop
from .case import Case
from .expectation import Expectation, Mismatch
from .places import Place, read_all, wait
from .report import Finding
from .trial import Run

_FILLS = 500
_AROUND = ((1, 0), (2, 0), (1, 1), (1, 0), (2, 1), (3, 0))
"""How many runs go to the other stream before a replay, and after it."""


def free_memory(case: Case) -> list[Finding]:
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
        for each in _changed(case, trial.replay())
    ]


def _changed(case: Case, run: Run) -> list[Mismatch]:
    """Return the arrays that are not as after the first replay, by more than eager runs differ."""
    expected = Expectation(case.trial.targets, [case.base], case.tolerance)
    expected.unstable, expected.spread = case.expected.unstable, case.expected.spread
    return [each for each in case.mismatches(expected, run) if each.kind == "wrong"]


def other_streams(case: Case) -> list[Finding]:
    """Find results that are wrong only if the function runs on another stream at the same time.

    Nothing is said of a function that changes its arguments or its state, or whose eager runs disturb each
    other as well, nor of a graph whose reference uses its arrays.
    """
    if case.doubts or case.program.given_graph or _carries_state(case):
        return []
    side = side_of(case.program.stream)
    disturbed: dict[int, Mismatch] = {}
    for before, after in _AROUND:
        replayed = _beside(case, side, case.program.replay, before, after)[0]
        disturbed |= {each.target: each for each in replayed}
    if not disturbed:
        return []
    third = Stream(backend=side.backend, like=side)
    for before, after in 4 * _AROUND:
        if any(_beside(case, third, case.program.eager, before, after)):
            case.notes.append("runs on two streams at once disturb each other, also without a graph")
            return []
    return [
        case.found(
            each,
            "beside_streams",
            f"{case.difference(each)} if the function runs on another stream meanwhile, and eager runs agree",
        )
        for each in disturbed.values()
    ]


def _carries_state(case: Case) -> bool:
    """Return True if eager runs and replays change the same arguments or state."""
    trial = case.trial
    changed = zip(
        trial.saved, case.expected.contents[trial.results :], case.base.contents[trial.results :], strict=True
    )
    return any(saved not in (eager, replayed) for saved, eager, replayed in changed)


def keep_busy(case: Case, stream: Stream) -> object:
    """Give a stream work for some milliseconds; return what has to live until it is done."""
    places = [each for each in case.trial.targets if each.array_type.kind != "place" and each.nbytes]
    if not places:
        return None
    largest = max(places, key=lambda each: each.nbytes)
    array = stream_stack.within(stream, largest.array_type.empty_like, largest.array)
    scratch = Place(array, largest.array_type, "scratch")
    for _ in range(_FILLS):
        scratch.fill(stream, 0)
    return scratch


def _beside(
    case: Case, other: Stream, run: Callable[[], list[Place]], before: int, after: int
) -> list[list[Mismatch]]:
    """Run while the function runs eagerly on another stream.

    Return what is wrong in the results of that run, and of each of the others.
    """
    trial, program = case.trial, case.program
    trial.begin(program.fed)
    gate = Stream(backend=other.backend, like=other)
    busy = keep_busy(case, gate)
    for stream in (program.stream, other):  # so that both begin when all is enqueued
        stream._follow(gate)
    kept = [program.eager_on(other) for _ in range(before)]
    results = run()
    kept += [program.eager_on(other) for _ in range(after)]
    wait(program.stream)
    wait(other)
    del busy
    found = [_wrong_results(case, each) for each in (results, *kept)]
    trial.forget_changed(case.expected.contents, case.base.contents)
    return found


def _wrong_results(case: Case, results: list[Place]) -> list[Mismatch]:
    contents = read_all(case.program.stream, results)
    run = Run([*contents, *case.base.contents[len(contents) :]])
    found = case.mismatches(case.expected, run)
    return [each for each in found if each.target < case.trial.results and each.kind == "wrong"]
