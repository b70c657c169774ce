"""The kit without pytest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple
from unittest import SkipTest

from .. import backends
from ._conformance import BackendConformance, ExpectedFailure, test_names
from ._work import Work
from .rules.members import SignatureRules
from .rules.work import WorkRules

FIRST = (
    (SignatureRules, "not run, since a rule about the members of the class failed; mend them first"),
    (WorkRules, "not run, since a rule about the work failed; mend the work, or `synchronize`, first"),
)
"""The topics without which no other rule means anything, and why the later ones are not run if one fails."""


class CheckResult(NamedTuple):
    """How one rule came out."""

    name: str
    """The test's name."""
    outcome: Literal["passed", "skipped", "expected failure", "failed"]
    reason: str = ""
    """Why it was skipped or expected to fail."""
    error: Exception | None = None
    """The error of a rule that failed, with a note that has the rule's name and sentence."""


def check_backend(work: Work, expected_failures: Mapping[str, str] | None = None) -> list[CheckResult]:
    """Check a backend against all rules of `BackendConformance`.

    Parameters
    ----------
    work : Work
        The backend's memory and work; its `backend` says which one is meant.
    expected_failures : mapping of str to str, optional
        As the attribute of `BackendConformance`.

    Returns
    -------
    list of CheckResult
        One for each rule, if none failed.

    Raises
    ------
    BackendError
        The backend is not known or can't run here.
    ExceptionGroup
        Rules failed; with their errors, each with a note that has the rule's name and sentence.
    ValueError
        `expected_failures` names a rule that does not exist.
    """
    results = list(check_rules(work, expected_failures))
    failures = [result.error for result in results if result.error is not None]
    if failures:
        first = next(result.name for result in results if result.error is not None)
        message = f"backend {work.backend!r} breaks {len(failures)} of the rules; look at {first} first"
        raise ExceptionGroup(message, failures)
    return results


def check_rules(
    work: Work, expected_failures: Mapping[str, str] | None = None, *, time_limit: float | None = None
) -> Iterator[CheckResult]:
    """Check one rule after another, as `check_backend` does; yield the result of each, failures included.

    If a rule about the members of the class or about the work failed, the rules of all later topics are
    skipped. `time_limit` is the number of seconds for one rule, if not the kit's own.
    """
    backends.get(work.backend)

    class Conformance(BackendConformance):
        def work(self) -> Work:
            return work

    limit = {} if time_limit is None else {"time_limit": time_limit}
    case = type("Conformance", (Conformance,), {"expected_failures": expected_failures or {}, **limit})
    return _results(case)


def _results(case: type[BackendConformance]) -> Iterator[CheckResult]:
    wrong, reason = None, ""  # the topic that a rule failed of, and what that means for the later topics
    for name in test_names(case):  # those of FIRST come first
        topic, reason_of_topic = next(((each, why) for each, why in FIRST if name in vars(each)), (None, ""))
        if wrong is not None and topic is not wrong:
            result = CheckResult(name, "skipped", reason)
        else:
            result = _check_rule(case, name)
            if topic is not None and result.error is not None:
                wrong, reason = topic, reason_of_topic
        yield result
        del result  # its error refers to what the rule made


def _check_rule(case: type[BackendConformance], name: str) -> CheckResult:
    try:
        getattr(case(), name)()
    except ExpectedFailure as expected:
        return CheckResult(name, "expected failure", str(expected))
    except SkipTest as skip:
        return CheckResult(name, "skipped", str(skip))
    except Exception as error:
        return CheckResult(name, "failed", error=error)
    return CheckResult(name, "passed")
