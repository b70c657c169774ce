"""The class that a backend's author subclasses, and the kit without pytest."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial, wraps
from traceback import clear_frames
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple
from unittest import SkipTest

from .. import backends
from . import rules
from ._tools import Hang, unmet
from ._work import Work
from .rules.members import SignatureRules
from .rules.work import WorkRules


class ExpectedFailure(SkipTest):
    """Raised by a test that fails as `BackendConformance.expected_failures` says. Runners show a skip."""


class BackendConformance(rules.AllRules):
    """All rules. A subclass defines `work`, and is what pytest collects.

    A rule can be replaced by a method of the same name. The names and docstrings of the ``test_*``
    methods are the contract's text.

    Rules about what the backend does not have are not run: pytest deselects them, and ends with one line
    for each reason. To find out which, it calls `work` once before the first test. If
    that fails, because a fixture comes first or there is no hardware, all rules stay, and skip themselves.
    """

    expected_failures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Rules that the backend is known to break: the reason, by the test's name. Strict: one that
    passes is a failure, and one that does not exist a ValueError when the class is made."""

    def __init_subclass__(cls, **how: Any) -> None:
        super().__init_subclass__(**how)
        names = test_names(cls)
        unknown = sorted(set(cls.expected_failures).difference(names))
        if unknown:
            raise ValueError(f"expected_failures of {cls.__name__}: there is no {', '.join(unknown)}.")
        for name in names:
            test = getattr(cls, name)
            setattr(cls, name, _guarded(getattr(test, "rule", test), cls.expected_failures.get(name)))

    @classmethod
    def left_out(cls) -> dict[str, str]:
        """Return the rules that are not about this backend: the reason, by the test's name."""
        try:
            backend = backends.get(cls().work().backend)
        except (Exception, SkipTest):
            return {}
        reasons = {name: unmet(getattr(cls, name).rule, backend) for name in test_names(cls)}
        return {name: reason for name, reason in reasons.items() if reason}

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Make pytest deselect what is left out. `metafunc` is a `pytest.Metafunc`."""
        from ._selection import Selection

        plugins = metafunc.config.pluginmanager
        if not plugins.has_plugin(Selection.__module__):
            base: type[Any] = BackendConformance  # abstract
            plugins.register(Selection(base), Selection.__module__)


def test_names(cls: type) -> list[str]:
    """Return the names of all tests of a class: first the rules by topic, then tests of its own."""
    names = dict.fromkeys([*(name for topic in rules.ALL for name in vars(topic)), *dir(cls)])
    return [name for name in names if name.startswith("test_") and callable(getattr(cls, name, None))]


def _checked(rule: Callable[..., None], case: Any, *args: Any, **how: Any) -> None:
    """Run a rule, if it is about the backend."""
    if reason := unmet(rule, case.backend):
        raise SkipTest(reason)
    rule(case, *args, **how)


def _guarded(rule: Callable[..., None], reason: str | None) -> Callable[..., None]:
    """Return the test of a rule: with the time limit and the checks around it."""

    @wraps(rule)
    def test(self: Any, *args: Any, **how: Any) -> None:
        sentence = f"The rule {rule.__name__}: {inspect.getdoc(rule)}"
        try:
            self.run(partial(_checked, rule, self, *args, **how))
        except SkipTest:
            raise
        except Exception as error:
            if reason is None:
                error.add_note(sentence)
                raise
            clear_frames(error.__traceback__)  # else what it made lives until somebody forgets the error
            gc.collect()
            raise ExpectedFailure(f"expected to fail: {reason}") from error
        if reason is not None:
            passes = AssertionError(
                f"expected to fail ({reason}), but it passes; remove it from expected_failures."
            )
            passes.add_note(sentence)
            raise passes

    test.rule = rule  # type: ignore[attr-defined]
    return test


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
    skipped, and after a call that hangs, all later rules. `time_limit` is the number of seconds for one rule,
    if not the kit's own.
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
    hanging = ""
    for name in test_names(case):  # those of FIRST come first
        topic, reason_of_topic = next(((each, why) for each, why in FIRST if name in vars(each)), (None, ""))
        if hanging:
            result = CheckResult(name, "skipped", hanging)
        elif wrong is not None and topic is not wrong:
            result = CheckResult(name, "skipped", reason)
        else:
            result = _check_rule(case, name)
            if topic is not None and result.error is not None:
                wrong, reason = topic, reason_of_topic
            if isinstance(result.error, Hang):
                hanging = (
                    f"not run, since a call hangs in {name}, and others may wait for it; mend that first"
                )
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
