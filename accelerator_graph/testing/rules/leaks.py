"""Leaks of the runtime's objects, for works that can count them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import Case, needs

FIRST, ROUNDS = 3, 20
"""How often something is done before the objects are counted, and between that and the second count."""


class Abandoned(Exception):
    """Ends a capture."""


class LeakRules(Case):
    """What is done again and again leaves no object of the runtime; `Work.live_objects` counts them."""

    def test_captures_and_replays_leave_nothing_alive(self) -> None:
        """Graphs that are captured, bound, replayed and reset leave no object of the runtime."""
        stream, other, cell = self.stream(), self.stream(), self.cell()

        def once() -> None:
            with self.graph(stream, keep_graph=True) as graph:
                self.enqueue(stream, cell)
            graph.instantiate()
            for _ in range(3):
                graph.replay()
                graph.bind(other)()
            graph.reset()
            self.captured(stream, cell).replay()
            self.captured(stream, cell)

        self._leaves_nothing(once)

    def test_replays_leave_nothing_alive(self) -> None:
        """Replays of one graph, on its stream and on another, leave no object of the runtime."""
        _, _, graph = self.setup_captured()
        other = self.stream()

        def once() -> None:
            graph.replay()
            graph.replay(other)

        self._leaves_nothing(once)

    def test_captures_that_fail_leave_nothing_alive(self) -> None:
        """Captures that raise, are reset, or end with an error leave no object of the runtime."""
        stream, cell = self.stream(), self.cell()

        def once() -> None:
            with suppress(Abandoned), self.graph(stream):
                self.enqueue(stream, cell)
                raise Abandoned
            graph = self.graph(stream)
            graph.capture_begin()
            self.enqueue(stream, cell)
            graph.reset()
            if self.has(Capability.EVENTS):
                with suppress(ag.CaptureError), self.graph(stream):
                    fork = self.stream()
                    fork.wait(stream)
                    self.enqueue(fork, cell)
                fork.close()

        self._leaves_nothing(once)

    @needs(Capability.EVENTS)
    def test_streams_and_events_leave_nothing_alive(self) -> None:
        """Streams and events that are dropped, in a capture or not, leave no object of the runtime."""
        stream, cell = self.stream(), self.cell()

        def once() -> None:
            other = self.stream()
            other.wait(stream.record())
            self.enqueue(other, cell)
            with self.graph(stream):
                other.wait(stream.record())
                self.enqueue(other, cell)
                stream.wait(other)
            other.close()
            self.stream()

        self._leaves_nothing(once)

    def _leaves_nothing(self, once: Callable[[], None]) -> None:
        """Do something several times; check that each kind of object grows by less than one each time."""
        self.skip_unless(self.used.live_objects() is not None, "has a Work without live_objects")
        with self.used.counting():
            before = self._alive(once, FIRST)
            after = self._alive(once, ROUNDS)
        leaked = {kind: count - before.get(kind, 0) for kind, count in after.items()}
        leaked = {kind: count for kind, count in leaked.items() if count >= ROUNDS}
        assert not leaked, f"after {ROUNDS} rounds, so many more are alive: {leaked}"

    def _alive(self, once: Callable[[], None], times: int) -> dict[str, int]:
        """Do something several times; return what is alive then."""
        for _ in range(times):
            once()
        self.synchronize()
        self.collect()
        gc.collect()  # what the library has just destroyed
        return dict(self.used.live_objects() or {})
