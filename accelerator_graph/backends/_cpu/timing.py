"""Calls between a graph's nodes that note the time."""

from __future__ import annotations

import time
from collections.abc import Sequence

from .graph import Node
from .worker import Latch, Worker


class Mark(Latch):
    """A latch that every run of a graph reaches anew."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Worker())

    def __call__(self) -> None:
        """Note the time."""
        self.time = time.perf_counter_ns()
        if not self.is_set:
            self.set()


def with_marks(
    nodes: Sequence[Node], before: Sequence[int], after: Sequence[int]
) -> tuple[list[Node], list[Mark]]:
    """Return the nodes with marks before and after some of them, and those marks, in that order."""
    ahead, behind = {index: Mark() for index in before}, {index: Mark() for index in after}
    found: list[Node] = []
    end: list[int] = []  # by node: what the nodes that depended on it depend on now
    for index, node in enumerate(nodes):
        waits = tuple(end[earlier] for earlier in node.after)
        if index in ahead:
            found.append(_marking(ahead[index], waits, node.branch))
            waits = (len(found) - 1,)
        found.append(node._replace(after=waits))
        if index in behind:
            found.append(_marking(behind[index], (len(found) - 1,), node.branch))
        end.append(len(found) - 1)
    return found, [*ahead.values(), *behind.values()]


def _marking(mark: Mark, after: tuple[int, ...], branch: int) -> Node:
    return Node("event_record", "", (mark, (), {}, None), after, branch)
