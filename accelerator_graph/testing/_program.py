"""Random programs of forks, joins and work over several streams, with their results."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import accelerator_graph as ag

from ._case import Case, applied


class Program:
    """Random work on a few cells, over several streams of which the first is captured.

    A step ``(stream, cell, a, b)`` is a piece of work, and ``(stream, event)`` waits for the event behind an
    earlier step. Two pieces of work on one cell are always ordered, often through other streams.
    """

    cells = 4

    def __init__(self, seed: int, streams: int) -> None:
        choose = random.Random(seed)
        self.steps: list[tuple[int, ...]] = []
        seen: list[set[int]] = [set() for _ in range(streams)]
        """For each stream, the steps that its next work depends on."""
        known: list[set[int]] = []
        """For each step, the steps that a stream depends on after it has waited for that one."""
        last = [0] * self.cells

        def step(stream: int, *rest: int) -> None:
            seen[stream].add(len(self.steps))
            known.append(set(seen[stream]))
            self.steps.append((stream, *rest))

        def wait(stream: int, event: int) -> None:
            seen[stream] |= known[event]
            step(stream, event)

        for cell in range(self.cells):
            last[cell] = len(self.steps)
            step(0, cell, 1, cell)
        for stream in range(1, streams):
            wait(stream, choose.randrange(self.cells))
        for _ in range(30):
            stream, cell = choose.randrange(streams), choose.randrange(self.cells)
            if choose.random() < 0.4:
                wait(stream, choose.randrange(len(self.steps)))
            if last[cell] not in seen[stream]:
                later = [i for i, follows in enumerate(known) if last[cell] in follows]
                wait(stream, choose.choice(later))
            last[cell] = len(self.steps)
            step(stream, cell, choose.randrange(1, 9), choose.randrange(9))
        for stream in range(1, streams):
            wait(0, max(i for i, each in enumerate(self.steps) if each[0] == stream))
        for cell in range(self.cells):
            step(0, cell, 3, 1)

    def run(self, case: Case, streams: Sequence[ag.Stream], cells: Sequence[Any]) -> None:
        """Run all steps."""
        events: list[ag.Event] = []
        for stream, *rest in self.steps:
            if len(rest) == 1:
                streams[stream].wait(events[rest[0]])
            else:
                cell, a, b = rest
                case.enqueue_slow(streams[stream], cells[cell], a, b)
            events.append(streams[stream].record())

    def applied(self, values: Sequence[int]) -> list[int]:
        """Return the contents of the cells after one more run."""
        found = list(values)
        for _, *rest in self.steps:
            if len(rest) == 3:
                cell, a, b = rest
                found[cell] = applied(1, a, b, found[cell])
        return found
