"""Other work for a graph: `Graph.update`, `Graph.recapture`, `Graph.clone`, and the backend's `update`."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, Misfit

from .._case import PIECES, Case, expect, needs, raises


class UpdateRules(Case):
    """A graph gets the work of another graph or of another capture, in place or by a new executable."""

    def test_updated_graph_does_the_work_of_the_other(self) -> None:
        """After `update` a graph and what was bound to it do the other's work, and so does the other."""
        stream, cell = self.stream(), self.cell()
        graph, other = (self._of(stream, cell, b) for b in (1, 10))
        bound = graph.bind()
        bound()
        assert self.read(cell) == 1
        for _ in range(2):
            self._checked(graph.update(other))
            bound()
            graph.replay(stream)
        other.replay()
        assert self.read(cell) == 51

    def test_updated_graph_gets_work_of_another_shape(self) -> None:
        """`update` with a graph of more or fewer nodes makes a new executable of it, and says why."""
        stream, cell = self.stream(), self.cell()
        graph = self._of(stream, cell, 1)
        bound = graph.bind()
        for pieces in (3, 1, 2):
            other = self._of(stream, cell, *[10] * pieces)
            done = graph.update(other)
            assert not done.in_place
            self._checked(done)
            before = self.read(cell)
            bound()
            assert self.read(cell) == before + 10 * pieces
            if self.has(Capability.NODES):
                assert graph.num_nodes == other.num_nodes

    def test_updates_of_and_with_empty_graphs(self) -> None:
        """A graph gets no work, no work once more, and work again."""
        stream, cell = self.stream(), self.cell()
        graph = self._of(stream, cell, 1)
        bound = graph.bind()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ag.EmptyGraphWarning)
            nothing = [self._of(stream, cell) for _ in range(2)]
        for other, b in ((nothing[0], 0), (nothing[1], 0), (self._of(stream, cell, 10), 10)):
            self._checked(graph.update(other))
            before = self.read(cell)
            bound()
            assert self.read(cell) == before + b

    def test_update_of_a_graph_that_was_not_kept(self) -> None:
        """A graph that was not kept can be updated, and is not kept afterwards, either."""
        stream, cell = self.stream(), self.cell()
        graph, other = self.captured(stream, cell), self._of(stream, cell, 10)
        self._checked(graph.update(other))
        assert (graph.state, other.state) == ("ready", "captured")
        expect(ag.GraphStateError, graph.clone, match="not kept")
        graph.replay()
        assert self.read(cell) == 10

    def test_updated_graph_outlives_the_other(self) -> None:
        """An updated graph does the other's work even when the other is reset and gone."""
        stream, cell = self.stream(), self.cell()
        graph = self._of(stream, cell, 1)
        graph.instantiate()
        for b in (10, 100):
            other = self._of(stream, cell, b)
            graph.update(other)
            other.reset()
            del other
            self.collect()
            graph.replay()
        graph.instantiate()
        graph.replay()
        assert self.read(cell) == 210

    def test_runs_under_way_do_the_former_work(self) -> None:
        """Runs that were enqueued before `update` do the former work, all of it."""
        stream, cell = self.stream(), self.cell()
        graph = self._of(stream, cell, 1, slow=True)
        other = self._of(stream, cell, 1000, slow=True)
        graph.replay()
        stream.synchronize()
        for _ in range(PIECES):
            graph.replay()
        graph.update(other)
        for _ in range(PIECES):
            graph.replay()
        assert self.read(cell) == PIECES + 1 + 1000 * PIECES

    def test_runs_of_a_new_executable_are_behind_the_former_runs(self) -> None:
        """After `update`, a recapture and `instantiate`, the next run is behind all runs, on any stream."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        other = self._of(first, cell, 1, 2)

        def recapture(graph: ag.Graph) -> None:
            with graph.recapture():
                self.enqueue(first, cell, 1, 1, times=3)

        exchanges: list[Callable[[ag.Graph], object]] = [lambda graph: graph.update(other), recapture]
        for exchange in (*exchanges, ag.Graph.instantiate):
            graph = self.captured(first, cell, 3, 1, slow=True, keep_graph=True)
            bound, expected = graph.bind(second), self.read(cell)
            for _ in range(PIECES):
                bound()
                expected = 3 * expected + 1
            exchange(graph)
            graph.replay(first)
            expected = 3 * expected + 1 if exchange is ag.Graph.instantiate else expected + 3
            assert self.read(cell) == expected % 2**32

    def test_updates_while_other_threads_replay(self) -> None:
        """Each replay of another thread during an `update` does either work, and none is lost."""
        stream, cell = self.stream(), self.cell()
        graph, low, high = (self._of(stream, cell, b) for b in (1, 1, 1 << 16))
        graph.instantiate()
        bound, begun, runs = graph.bind(), threading.Event(), 200

        def replay() -> None:
            for number in range(runs):
                bound()
                if number == 10:
                    begun.set()

        def update() -> None:
            self.wait(begun)
            for number in range(40):
                graph.update((high, low)[number % 2])

        self.in_threads([replay, update])
        found = self.read(cell)
        assert (found & 0xFFFF) + (found >> 16) == runs

    def test_backend_update_changes_all_or_nothing(self) -> None:
        """`update` of a backend returns None if later runs do the new work, else what did not fit."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        former, graph, longer = (self._of(stream, cell, *bs) for bs in ((1,), (10,), (100, 100)))
        made = [each._runner and each._runner.captured for each in (former, graph, longer)]
        values: list[Any] = [each and each.value for each in made]
        executable = backend.instantiate(values[0])
        misfit = backend.update(executable, values[0], values[2])
        assert isinstance(misfit, Misfit)
        assert misfit.reason
        assert not misfit.reason.endswith("."), "the reason of a misfit is a clause"
        if misfit.node is not None and (count := backend.node_count(values[2])) is not None:
            assert 0 <= misfit.node < count, "a misfit has the number of a node of the new graph"
        backend.replay(executable, stream.native)
        assert self.read(cell) == 1
        misfit = backend.update(executable, values[0], values[1])
        backend.replay(executable, stream.native)
        assert self.read(cell) == (11 if misfit is None else 2)
        backend.destroy_executable(executable)

    def test_recapture_replaces_the_work(self) -> None:
        """After a ``with graph.recapture()`` block the graph does what the block has recorded."""
        stream, cell = self.stream(), self.cell()
        for keep in (True, False):
            graph = self.captured(stream, cell, 1, 1, keep_graph=keep)
            bound = graph.bind()
            pool = graph.pool()
            for b in (10, 100):
                with graph.recapture() as again:
                    self.enqueue(stream, cell, 1, b)
                assert again.update is not None
                self._checked(again.update)
                before = self.read(cell)
                bound()
                graph.replay()
                assert self.read(cell) == before + 2 * b
                assert graph.pool() == pool

    def test_graph_is_replayed_during_its_recapture(self) -> None:
        """Other threads replay a graph during its recapture, and get its former work."""
        stream, elsewhere, cell = self.stream(), self.stream(), self.cell()
        graph = self._of(stream, cell, 1)
        bound = graph.bind(elsewhere)
        with graph.recapture():
            self.enqueue(stream, cell, 1, 10)
            self.in_thread(bound)
            assert self.in_thread(lambda: self.read_after(elsewhere, cell)) == 1
        bound()
        assert self.read(cell) == 11

    def test_failed_recapture_leaves_the_former_work(self) -> None:
        """If the body of a recapture raises, the graph and what was bound to it do what they did before."""
        stream, cell = self.stream(), self.cell()
        graph = self._of(stream, cell, 1)
        bound = graph.bind()
        with raises(ZeroDivisionError) as failed, graph.recapture() as again:
            self.enqueue(stream, cell, 1, 10)
            raise ZeroDivisionError
        assert "its former work" in failed.error.__notes__[0]
        assert again.update is None
        bound()
        graph.replay()
        assert self.read(cell) == 2
        with graph.recapture():
            self.enqueue(stream, cell, 1, 10)
        bound()
        assert self.read(cell) == 12

    def test_recapture_of_a_side_stream(self) -> None:
        """A graph that was captured on a side stream is captured on one again; replays go where they went."""
        stream, cell = self.stream(), self.cell()
        graph = self.graph(keep_graph=True)
        with stream:
            with ag.graph(graph):
                self.enqueue(ag.current_stream(), cell, 1, 1)
            with graph.recapture():
                captured = ag.current_stream()
                assert captured != stream
                self.enqueue(captured, cell, 1, 10)
        graph.replay()
        assert self.read_after(stream, cell) == 10

    def test_clone_is_independent(self) -> None:
        """A clone does the same work, whatever becomes of the original."""
        stream, cell = self.stream(), self.cell()
        graph = self._of(stream, cell, 1)
        clone = graph.clone()
        self.adopt([clone])
        assert clone.state == "captured"
        for each in (graph, clone):
            each.replay()
        graph.update(self._of(stream, cell, 10))
        clone.replay()
        graph.reset()
        self.collect()
        clone.replay()
        assert self.read(cell) == 4

    @needs(Capability.NODES)
    def test_description_follows_the_work(self) -> None:
        """`describe`, `num_nodes` and labels of an updated graph are those of the other."""
        stream, cell = self.stream(), self.cell()
        graph = self._of(stream, cell, 1)
        graph.instantiate()
        with self.graph(stream, keep_graph=True) as other:
            with ag.label("new"):
                self.enqueue(stream, cell, 1, 10)
            self.enqueue(stream, cell, 1, 10)
        graph.update(other)
        mine, its = graph.describe(), other.describe()
        assert (mine.nodes, mine.labels) == (its.nodes, its.labels)

    def test_graphs_that_can_not_be_used_for_an_update(self) -> None:
        """`update` with something else, itself, or a graph that is empty or not kept changes nothing."""
        stream, cell = self.stream(), self.cell()
        graph = self._of(stream, cell, 1)
        wrong: Any = "another"
        expect(TypeError, graph.update, wrong, match="another")
        expect(ValueError, graph.update, graph, match="itself")
        for unusable in (self.graph(stream), self.captured(stream, cell)):
            expect(ag.GraphStateError, graph.update, unusable, match="the other graph")
        graph.replay()
        assert self.read(cell) == 1

    def _of(self, stream: ag.Stream, cell: Any, *bs: int, slow: bool = False) -> ag.Graph:
        """Capture a piece of work for each number, which adds the number to the cell."""
        with self.graph(stream, keep_graph=True) as graph:
            for b in bs:
                (self.enqueue_slow if slow else self.enqueue)(stream, cell, 1, b)
        return graph

    def _checked(self, done: ag.GraphUpdate) -> None:
        """Check that a report is whole."""
        assert done.in_place == (not done.reason)
        assert str(done).endswith(".")
