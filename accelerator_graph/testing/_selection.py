"""What pytest leaves out of a conformance class, and how it says so."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

import pytest


class Conformance(Protocol):
    """A conformance class."""

    @classmethod
    def left_out(cls) -> dict[str, str]:
        """Return the reason for each rule that is not about the backend."""
        ...


class Selection:
    """A plug-in of pytest, registered when a conformance class is collected.

    Parameters
    ----------
    base : type
        The base of all conformance classes.
    """

    def __init__(self, base: type[Conformance]) -> None:
        self._base = base
        self.left_out: Counter[str] = Counter()
        """How many rules, by the class and the reason."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the rules that are not about the backend of their class."""
        classes = {each for item in items if (each := self._class_of(item)) is not None}
        reasons = {each: each.left_out() for each in classes}
        kept: list[pytest.Item] = []
        deselected: list[pytest.Item] = []
        for item in items:
            found = self._class_of(item)
            reason = reasons[found].get(getattr(item, "originalname", item.name)) if found else None
            (deselected if reason else kept).append(item)
            if found and reason:
                self.left_out[f"{reason} ({found.__name__})"] += 1
        if deselected:
            config.hook.pytest_deselected(items=deselected)
            items[:] = kept

    def lines(self) -> list[str]:
        """Return a line for each class and reason."""
        return [f"{count:3} rules left out: {reason}" for reason, count in sorted(self.left_out.items())]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what was left out."""
        if self.left_out:
            terminalreporter.section("conformance kit")
            for line in self.lines():
                terminalreporter.write_line(line)

    def _class_of(self, item: pytest.Item) -> type[Conformance] | None:
        cls = getattr(item, "cls", None)
        return cls if isinstance(cls, type) and issubclass(cls, self._base) else None
