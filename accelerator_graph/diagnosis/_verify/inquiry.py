"""The experiments of `verify`, one after another, until one of them has found a fault."""

from __future__ import annotations

from . import following, repeating, surroundings, writing
from .case import Case
from .modules import first_wrong_module
from .nodes import last_writer
from .report import Finding, Verdict, Verification
from .trial import Changing

_EXPERIMENTS = (
    writing.unwritten,
    repeating.races,
    writing.read_first,
    following.first_arguments,
    following.other_arguments,
    repeating.repeated_numbers,
    following.python_changes,
    following.other_state,
    surroundings.free_memory,
    surroundings.other_streams,
)


def verdict(case: Case) -> Verification:
    """Run the experiments."""
    findings: list[Finding] = []
    try:
        case.trial.warm_up()
        case.expected = case.expect()
        case.trial.capture()
        for experiment in _EXPERIMENTS:
            findings = experiment(case)
            if findings:
                break
        if not findings and not case.trial.results and not case.trial.writes:
            text = "eager runs return no array and write none that is known; return what the function writes"
            case.doubts.append(Finding("result", None, text, 0, 0, None))
    except Changing as error:
        case.doubts.append(Finding("result", None, str(error), 0, 0, None))
    where = (first_wrong_module(case) or last_writer(case, findings[0])) if findings else ""
    answer: Verdict = "wrong" if findings else "undecided" if case.doubts else "right"
    program = case.program
    case.notes += [f"{name} is in memory that can't be read here" for name in program.left_out]
    return Verification(
        answer,
        findings[0].cause if findings else None,
        program.name,
        program.stream.backend,
        program.stream.device,
        tuple(findings or case.doubts),
        where,
        case.trial.eager_runs,
        case.trial.replays,
        tuple(dict.fromkeys(case.notes)),
    )
