"""`bind`: replays with all decisions made beforehand."""

from __future__ import annotations

import gc

import accelerator_graph as ag

from .._case import Case, applied, raises


class BindRules(Case):
    """A bound callable does what `replay` does, and raises if its graph is gone."""

    def test_bound_callable_replays(self) -> None:
        """The callable from `bind` runs the graph once per call, on the captured stream or on another."""
        stream, other, cell = self.stream(), self.stream(), self.cell()
        graph = self.captured(stream, cell, 3, 0)
        here, there = graph.bind(), graph.bind(other)
        assert self.read(cell) == 0
        self.enqueue_slow(stream, cell, 1, 5)
        here()
        here()
        assert self.read(cell) == 45
        self.enqueue_slow(other, cell, 1, 1)
        there()
        assert self.read(cell) == 46 * 3

    def test_bound_callables_take_turns(self) -> None:
        """If callables bound to two streams are called in turn, without a synchronisation, no run is lost."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        graph = self.graph(first)
        with graph:
            self.enqueue_slow(first, cell)
        calls = graph.bind(first), graph.bind(second), graph.replay
        for _ in range(5):
            for call in calls:
                call()
        assert self.read(cell) == applied(15)

    def test_bound_callable_keeps_graph_and_stream_alive(self) -> None:
        """The callable works even if it holds the last references to graph and stream."""
        stream, other, cell = self.stream(), self.stream(), self.cell()
        graph = self.captured(stream, cell)
        here, there = graph.bind(), graph.bind(other)
        del graph, stream, other
        gc.collect()
        self.graph().reset()
        here()
        there()
        self.eventually(cell, applied(2))

    def test_bound_callable_outlives_the_stream_that_was_closed(self) -> None:
        """A callable works after the stream that it is bound to is closed."""
        stream, other, cell = self.stream(), self.stream(), self.cell()
        graph = self.captured(stream, cell)
        launch = graph.bind(other)
        other.close()
        gc.collect()
        self.graph().reset()
        launch()
        self.eventually(cell, applied(1))

    def test_bound_callable_raises_after_reset(self) -> None:
        """After `reset` the callable raises `GraphStateError` and runs nothing."""
        stream, cell = self.stream(), self.cell()
        graph = self.captured(stream, cell)
        launch, replay = graph.bind(), graph.replay
        graph.reset()
        for call in (launch, replay):
            with raises(ag.GraphStateError):
                call()
        assert self.read(cell) == 0

    def test_bound_callable_raises_after_a_recapture(self) -> None:
        """A callable from an earlier capture never runs a later one; `bind` makes a new one that does."""
        stream, cell = self.stream(), self.cell()
        graph = self.captured(stream, cell)
        old = graph.bind()
        graph.reset()
        with graph:
            self.enqueue(stream, cell, 1, 1)
        with raises(ag.GraphStateError):
            old()
        assert self.read(cell) == 0
        graph.bind()()
        assert self.read(cell) == 1

    def test_bound_callable_goes_on_with_a_new_executable(self) -> None:
        """After `instantiate`, existing callables launch the new executable."""
        stream, other, cell = self.stream(), self.stream(), self.cell()
        graph = self.captured(stream, cell, keep_graph=True)
        here, there = graph.bind(), graph.bind(other)
        for _ in range(3):
            here()
            there()
            graph.instantiate()
            gc.collect()
        here()
        there()
        assert self.read(cell) == applied(8)

    def test_binding_instantiates(self) -> None:
        """`bind` on a kept graph without an executable instantiates it."""
        stream, cell = self.stream(), self.cell()
        graph = self.captured(stream, cell, keep_graph=True)
        launch = graph.bind()
        assert graph.state == "ready"
        launch()
        graph.replay()
        assert self.read(cell) == applied(2)
