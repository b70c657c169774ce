"""Replays on any stream."""

from __future__ import annotations

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import Case, applied, needs, raises


class ReplayRules(Case):
    """Runs of one graph take effect one after another, behind the earlier work on their stream."""

    def test_replay_is_behind_the_streams_work(self) -> None:
        """A replay runs in stream order: after the work enqueued before it, and before later work."""
        stream, cell = self.stream(), self.cell()
        graph = self.captured(stream, cell, 3, 0)
        self.enqueue_slow(stream, cell, 1, 5)
        graph.replay()
        self.enqueue(stream, cell, 1, 1)
        graph.replay()
        assert self.read(cell) == (5 * 3 + 1) * 3

    def test_replay_on_another_stream(self) -> None:
        """`replay(stream)` runs on that stream, in its order."""
        stream, other, cell = self.stream(), self.stream(), self.cell()
        graph = self.captured(stream, cell, 3, 0)
        self.enqueue_slow(other, cell, 1, 5)
        graph.replay(other)
        self.enqueue(other, cell, 1, 1)
        other.synchronize()
        assert self.used.read(cell) == 16
        assert graph.stream is stream

    @needs(Capability.HANDLES)
    def test_replay_takes_anything_that_stands_for_a_stream(self) -> None:
        """`replay` and `bind` take a handle if the backend has handles, and refuse any other object."""
        stream, cell = self.stream(), self.cell()
        graph = self.captured(stream, cell)
        for bad in ("stream", 1.5, object()):
            with raises(TypeError):
                graph.replay(bad)
            with raises(TypeError):
                graph.bind(bad)
        assert self.read(cell) == 0
        graph.replay(stream.handle)
        graph.bind(stream.handle)()
        assert self.read(cell) == applied(2)

    def test_runs_on_two_streams_take_turns(self) -> None:
        """Runs of one graph on two streams, without a synchronisation, never overlap: none is lost."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        graph = self.graph(first)
        with graph:
            self.enqueue_slow(first, cell)
            self.enqueue(first, cell)
        for _ in range(10):
            graph.replay(first)
            graph.replay(second)
        assert self.read(cell) == applied(40)

    def test_runs_of_a_graph_are_in_call_order(self) -> None:
        """Runs of one graph on two streams take effect in call order."""
        first, second = self.stream(), self.stream()
        cell, last = self.cell(), self.cell()
        graph = self.graph(first)
        with graph:
            self.enqueue_slow(first, cell)
        for number in range(1, 6):
            self.enqueue_slow(first, last, 1, 1)
            graph.replay(first)
            graph.replay(second)
            second.synchronize()
            assert self.used.read(last) == number
            assert self.used.read(cell) == applied(2 * number)

    def test_asking_for_a_run_while_one_runs_is_no_error(self) -> None:
        """Many replays can be enqueued before the first is done."""
        stream, cell = self.stream(), self.cell()
        graph = self.graph(stream)
        with graph:
            self.enqueue_slow(stream, cell)
        for _ in range(30):
            graph.replay()
        assert self.read(cell) == applied(30)

    def test_two_graphs_replay_in_stream_order(self) -> None:
        """Replays of different graphs on one stream run in call order."""
        stream, cell = self.stream(), self.cell()
        add, double = self.captured(stream, cell, 1, 1), self.captured(stream, cell, 2, 0)
        wanted = 0
        for _ in range(8):
            add.replay()
            double.replay()
            wanted = (wanted + 1) * 2
        assert self.read(cell) == wanted

    def test_closing_the_stream_does_not_hurt_replays(self) -> None:
        """A graph can be replayed after the stream that it was captured on was closed."""
        stream, other, cell = self.stream(), self.stream(), self.cell()
        graph = self.captured(stream, cell)
        launch = graph.bind()
        stream.close()
        graph.replay()
        launch()
        graph.replay(other)
        other.synchronize()
        assert self.read(cell) == applied(3)

    def test_stream_of_another_device_is_refused(self) -> None:
        """A graph can be replayed only on its own device; a stream of another one is a ValueError."""
        stream, cell = self.stream(), self.cell()
        graph = self.captured(stream, cell)
        for device in range(1, self.backend.device_count()):
            with raises(ValueError, match="device"):
                graph.replay(self.stream(device))
            with raises(ValueError, match="device"):
                graph.bind(self.stream(device))
        graph.replay()
        assert self.read(cell) == applied(1)

    def test_failed_call_leaves_the_graph_ready(self) -> None:
        """A refused replay changes nothing; the graph can still be replayed."""
        stream, closed, cell = self.stream(), self.stream(), self.cell()
        graph = self.captured(stream, cell)
        closed.close()
        with raises(ag.GraphStateError):
            graph.replay(closed)
        assert graph.state == "ready"
        graph.replay()
        assert self.read(cell) == applied(1)
