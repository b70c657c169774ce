"""The collection: each fault is a backend, and names the rules of the kit that are meant for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from accelerator_graph.backends.base import Backend
from accelerator_graph.testing import Work
from accelerator_graph.testing.works.host import HostWork

NAME = "planted"
"""The name that a fault is registered under."""

B = TypeVar("B", bound=type[Backend])

CAUGHT: dict[type[Backend], tuple[str, ...]] = {}
"""The rules that catch each fault."""

WORKS: dict[type[Backend], Callable[[str], Work]] = {}
"""What makes the work that each fault is found with."""

SURVIVES: dict[type[Backend], str] = {}
"""The rule that comes closest to a fault which no rule catches."""


def caught_by(*rules: str, work: Callable[[str], Work] = HostWork) -> Callable[[B], B]:
    """Put a fault into the collection that each of these rules catches."""

    def plant(fault: B) -> B:
        CAUGHT[fault], WORKS[fault] = rules, work
        return fault

    return plant


def survives(rule: str, *, because: str) -> Callable[[B], B]:
    """Put a fault into the collection that no rule catches, not even the one that comes closest."""

    def plant(fault: B) -> B:
        assert because
        SURVIVES[fault] = rule
        return fault

    return plant
