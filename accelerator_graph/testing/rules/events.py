"""Events outside captures."""

from __future__ import annotations

import gc

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import Case, needs


class EventRules(Case):
    """An event marks one point in a stream's work, replays included, that other streams can wait for."""

    @needs(Capability.EVENTS)
    def test_event_marks_the_replays_before_it(self) -> None:
        """Waiting for an event waits for the replays that were enqueued on its stream before it."""
        first, second, cell = self._two()
        graph = self._slow(first, cell, 1, 5)
        for replay in (graph.replay, graph.bind()):
            replay()
            replay()
            second.wait(first.record())
            self.enqueue(second, cell, 3, 0)
            second.synchronize()
            first.wait(second)
        assert self.used.read(cell) == ((10 * 3) + 10) * 3

    @needs(Capability.EVENTS)
    def test_replays_wait_for_events(self) -> None:
        """A replay runs after the events that its stream waits for, as other work does."""
        first, second, cell = self._two()
        graph = self.captured(second, cell, 3, 0)
        for replay in (graph.replay, graph.bind()):
            for _ in range(3):
                self.enqueue_slow(first, cell, 1, 5)
            second.wait(first.record())
            replay()
            second.synchronize()
        assert self.used.read(cell) == (15 * 3 + 15) * 3

    @needs(Capability.EVENTS)
    def test_event_is_not_moved_by_later_ones(self) -> None:
        """An event keeps marking the same point when others are recorded or destroyed, on any stream."""
        first, second, cell = self._two()
        idle = self.stream()
        for _ in range(5):
            self.enqueue_slow(first, cell, 1, 5)
        event = first.record()
        second.wait(event)
        del event
        gc.collect()
        for stream in (idle, idle, second):
            stream.wait(idle.record())  # an event that was destroyed must not come back as this one
        self.enqueue(second, cell, 3, 0)
        second.synchronize()
        assert self.used.read(cell) == 75

    @needs(Capability.EVENTS)
    def test_event_outlives_its_stream(self) -> None:
        """An event can be waited for after its stream was closed with work still on it."""
        first, second, cell = self._two()
        for _ in range(5):
            self.enqueue_slow(first, cell, 1, 5)
        event = first.record()
        first.close()
        gc.collect()
        second.wait(event)
        self.enqueue(second, cell, 3, 0)
        second.synchronize()
        assert self.used.read(cell) == 75

    @needs(Capability.EVENTS)
    def test_several_streams_wait_for_one_event(self) -> None:
        """Any number of streams can wait for the same event, each any number of times."""
        first, second, cell = self._two()
        third, other = self.stream(), self.cell()
        for _ in range(3):
            self.enqueue_slow(first, cell, 1, 5)
            self.enqueue_slow(first, other, 1, 5)
        event = first.record()
        for stream in (second, third, second, first):
            stream.wait(event)
        self.enqueue(second, cell, 3, 0)
        self.enqueue(third, other, 3, 0)
        for stream in (first, second, third):
            stream.synchronize()
        assert (self.used.read(cell), self.used.read(other)) == (45, 45)

    @needs(Capability.EVENTS)
    def test_stream_that_waits_for_itself_goes_on(self) -> None:
        """Outside captures, a stream can wait for itself or for its own event, without any effect."""
        stream, _, cell = self._two()
        self.enqueue_slow(stream, cell, 1, 5)
        event = stream.record()
        stream.wait(stream)
        self.enqueue(stream, cell, 3, 0)
        stream.wait(event)
        self.enqueue(stream, cell, 1, 1)
        stream.synchronize()
        assert self.used.read(cell) == 16

    def _two(self) -> tuple[ag.Stream, ag.Stream, object]:
        return self.stream(), self.stream(), self.cell()

    def _slow(self, stream: ag.Stream, cell: object, a: int, b: int) -> ag.Graph:
        graph = self.graph(stream)
        with graph:
            self.enqueue_slow(stream, cell, a, b)
        return graph
