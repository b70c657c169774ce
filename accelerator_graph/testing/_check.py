"""The kit without pytest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple
from unittest import SkipTest

from .. import backends
from ._conformance import BackendConformance, ExpectedFailure, test_names
from ._work import Work


class CheckResult(NamedTuple):
    """How one rule came out."""

    name: str
    """The test's name."""
    outcome: Literal["passed", "skipped", "expected failure"]
    reason: str = ""
    """Why it was skipped or expected to fail."""


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
    backends.get(work.backend)

    class Conformance(BackendConformance):
        def work(self) -> Work:
            return work

    case = type("Conformance", (Conformance,), {"expected_failures": expected_failures or {}})
    results: list[CheckResult] = []
    failures: list[Exception] = []
    for name in test_names(case):
        try:
            getattr(case(), name)()
        except ExpectedFailure as expected:
            results.append(CheckResult(name, "expected failure", str(expected)))
        except SkipTest as skip:
            results.append(CheckResult(name, "skipped", str(skip)))
        except Exception as error:
            failures.append(error)
        else:
            results.append(CheckResult(name, "passed"))
    if failures:
        raise ExceptionGroup(f"backend {work.backend!r} breaks {len(failures)} of the rules", failures)
    return results
