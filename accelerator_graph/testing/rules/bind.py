"""`bind`: replays with all decisions made beforehand."""

from __future__ import annotations

import gc

import accelerator_graph as ag

from .._case import Case, applied, expect


class BindRules(Case):
    """A bound callable does what `replay` does, and raises if its graph is gone."""

    def test_bound_callable_replays(self) -> None:
        """The callable from `bind` runs the graph once per call, on the captured stream or on another."""
        (stream, cell, graph), other = self.setup_captured(3, 0), self.stream()
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
        graph = self.captured(first, cell, slow=True)
        calls = graph.bind(first), graph.bind(second), graph.replay
        for _ in range(5):
            for call in calls:
                call()
        assert self.read(cell) == applied(15)

    def test_bound_callable_keeps_graph_and_stream_alive(self) -> None:
        """The callable holds graph and stream: it works when nobody else does, and after `Stream.close`."""
        (stream, cell, graph), other, closed = self.setup_captured(), self.stream(), self.stream()
        calls = graph.bind(), graph.bind(other), graph.bind(closed)
        closed.close()
        del graph, stream, other, closed
        self.collect()
        for call in calls:
            call()
        self.eventually(cell, applied(3))

    def test_bound_callable_raises_after_reset(self) -> None:
        """After `reset` the callable raises `GraphStateError` and runs nothing."""
        _, cell, graph = self.setup_captured()
        launch, replay = graph.bind(), graph.replay
        graph.reset()
        for call in (launch, replay):
            expect(ag.GraphStateError, call)
        assert self.read(cell) == 0

    def test_bound_callable_raises_after_a_recapture(self) -> None:
        """A callable from an earlier capture never runs a later one; `bind` makes a new one that does."""
        stream, cell, graph = self.setup_captured()
        old = graph.bind()
        graph.reset()
        with graph:
            self.enqueue(stream, cell, 1, 1)
        expect(ag.GraphStateError, old)
        assert self.read(cell) == 0
        graph.bind()()
        assert self.read(cell) == 1

    def test_bound_callable_goes_on_with_a_new_executable(self) -> None:
        """After `instantiate`, existing callables launch the new executable."""
        (_, cell, graph), other = self.setup_captured(keep_graph=True), self.stream()
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
        _, cell, graph = self.setup_captured(keep_graph=True)
        launch = graph.bind()
        assert graph.state == "ready"
        launch()
        assert self.replayed(graph, cell) == applied(2)
