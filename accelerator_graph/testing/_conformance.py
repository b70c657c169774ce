"""The class that a backend's author subclasses."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Mapping
from functools import partial, wraps
from traceback import clear_frames
from types import MappingProxyType
from typing import Any, ClassVar
from unittest import SkipTest

from .. import backends
from . import rules
from ._tools import unmet


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
