"""The cpu backend's graphs, and how an executable runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import NamedTuple

from .branches import Branch, Helpers, run_branches, split
from .stream import Latch, Worker
from .work import Call, caller, run_calls

_WORTH_SHARING = 100e-6
"""Seconds. Handing work to another thread and back costs some tens of microseconds."""


class Node(NamedTuple):
    """What was recorded by one call."""

    kind: str
    name: str
    call: Call
    after: tuple[int, ...]
    """The nodes that it depends on. All of them were recorded before it."""


class Graph:
    """What a capture has recorded, in the order of recording."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes


class Executable:
    """A graph that can run. It does not need the `Graph` any more."""

    __slots__ = ("_last", "_plan")

    def __init__(self, graph: Graph, helpers: Helpers) -> None:
        self._plan = _Plan(graph.nodes, helpers)
        self._last: Latch | None = None

    def enqueue(self, worker: Worker) -> None:
        """Run once more on `worker`, after the run that was asked for before."""
        done = Latch(worker)
        worker.submit(partial(_run_in_turn, self._plan, self._last, done))
        self._last = done

    def as_call(self) -> Call:
        """Return what another graph records to run all of this one; it outlives the executable."""
        return run_calls, (self._plan.calls,), {}, caller()

    def destroy(self) -> None:
        """Forget what it would run. Runs that were asked for still have it."""
        self._plan = _NOTHING


class _Plan:
    """Which way to run: in a plain loop, or with branches side by side if that was seen to be faster."""

    __slots__ = ("_alone", "_branches", "_helpers", "_settled", "calls")

    def __init__(self, nodes: Sequence[Node], helpers: Helpers) -> None:
        self.calls = [node.call for node in nodes]
        self._branches: Sequence[Branch] = split(self.calls, [node.after for node in nodes])
        self._helpers = helpers
        self._alone: float | None = None  # seconds that a plain loop took
        self._settled = len(self._branches) < 2

    def run(self) -> None:
        if self._settled:
            self._run()
            return
        begin = perf_counter()
        if self._alone is None:
            run_calls(self.calls)
            self._alone = perf_counter() - begin
            if self._alone < _WORTH_SHARING:
                self._settle(alone=True)
            else:
                self._helpers.start(len(self._branches) - 1)
        else:
            self._run()
            self._settle(alone=perf_counter() - begin >= self._alone)

    def _settle(self, *, alone: bool) -> None:
        self._settled = True
        if alone:
            self._branches = ()

    def _run(self) -> None:
        if len(self._branches) < 2:
            run_calls(self.calls)
        else:
            run_branches(self._branches, self._helpers)


_NOTHING = _Plan((), Helpers())


def _run_in_turn(plan: _Plan, before: Latch | None, done: Latch) -> None:
    if before is not None:
        before.wait()
    try:
        plan.run()
    finally:
        done.set()
