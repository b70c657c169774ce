"""Do replays stay right whatever happens around them: in free memory, and on other streams?"""

from __future__ import annotations

from collections.abc import Callable

from ..._core.side_streams import side_of
from ..._core.streams import Stream
from ...interop import registry as interop
from .case import Case
from .expectation import Expectation, Mismatch
from .places import read_all, wait
from .report import Finding
from .trial import Run

_TRIES = 5


def free_memory(case: Case) -> list[Finding]:
    """Find arrays that change once the memory that frameworks have freed holds zeros."""
    trial, stream = case.trial, case.program.stream
    frameworks = interop.active(stream.backend)
    if not frameworks:
        return []
    wait(stream)
    for framework in frameworks:
        framework.clear_free(stream.device)
    return [
        case.found(
            each,
            "stale_address",
            f"{case.count(each.target, each.difference.indices)} change once the memory that arrays have given "
            "back holds zeros: the graph reads memory that has been freed",
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

    Nothing is said of a function whose eager runs disturb each other as well, nor of a graph whose reference
    uses its arrays.
    """
    if case.program.given_graph:
        return []
    side = side_of(case.program.stream)
    disturbed: dict[int, Mismatch] = {}
    for _ in range(_TRIES):
        disturbed |= {each.target: each for each in _beside(case, side, case.program.replay)}
    if not disturbed:
        return []
    third = Stream(backend=side.backend, like=side)
    for _ in range(4 * _TRIES):
        if _beside(case, third, case.program.eager):
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


def _beside(case: Case, other: Stream, run: Callable[[], object]) -> list[Mismatch]:
    """Run while the function runs eagerly on another stream, and return the results that are wrong."""
    trial, program = case.trial, case.program
    trial.begin(program.fed)
    other._follow(program.stream)
    kept = [program.eager_on(other)]
    results = run()
    kept.append(program.eager_on(other))
    wait(program.stream)
    wait(other)
    assert isinstance(results, list)
    contents = read_all(program.stream, results)
    trial.forget_contents()
    del kept
    found = case.mismatches(case.expected, Run([*contents, *case.base.contents[len(contents) :]], {}))
    return [each for each in found if each.target < trial.results and each.kind == "wrong"]
