"""Other work for a graph: `Graph.update`, `Graph.recapture`, `Graph.clone`, and changes of single nodes."""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, Change, GraphNode, Misfit, NodeSetter, word
from accelerator_graph.backends.memory import memory_of

from .._case import PIECES, Case, expect, needs, raises


class UpdateRules(Case):
    """A graph gets the work of another graph or of another capture, in place or by a new executable."""

    @needs(Capability.UPDATE)
    def test_backend_update_changes_all_or_nothing(self) -> None:
        """`update` of a backend returns None if later runs do the new work, otherwise what did not fit."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        graphs = [self._of(stream, cell, *bs) for bs in ((1,), (100, 100), (10,))]
        made = [each._runner and each._runner.captured for each in graphs]
        values: list[Any] = [each and each.value for each in made]
        executable, former, added, total = backend.instantiate(values[0]), values[0], 1, 0
        for value, new in ((values[1], 200), (values[2], 10)):
            misfit = backend.update(executable, former, value)
            if misfit is None:
                former, added = value, new
            else:
                assert isinstance(misfit, Misfit)
                assert misfit.reason
                assert not misfit.reason.endswith("."), "the reason of a misfit is a clause"
                count = len(backend.nodes(value)[0]) if self.has(Capability.NODES) else None
                if misfit.node is not None and count is not None:
                    assert 0 <= misfit.node < count, "a misfit has the number of a node of the new graph"
            backend.replay(executable, stream.native)
            total += added
            assert self.read(cell) == total
        backend.destroy_executable(executable)

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
        """`update` with a graph of more or fewer nodes does its work, in place or by a new executable."""
        stream, cell = self.stream(), self.cell()
        graph = self._of(stream, cell, 1)
        bound = graph.bind()
        for pieces in (3, 1, 2):
            other = self._of(stream, cell, *[10] * pieces)
            self._checked(graph.update(other))
            before = self.read(cell)
            bound()
            assert self.read(cell) == before + 10 * pieces
            if self.has(Capability.NODES):
                assert graph.num_nodes == other.num_nodes

    @needs(Capability.ENQUEUE)
    def test_updated_fills_and_copies_are_those_of_the_other(self) -> None:
        """After `update`, fills and copies use the memory and the values of the other graph, and no other."""
        stream = self.stream()
        memory = [[self.used.buffer(64) for _ in range(3)] for _ in range(2)]
        graphs = []
        for value, (filled, source, copied) in enumerate(memory, 1):
            stream.fill(source, 10 * value)
            with self.graph(stream, keep_graph=True) as graph:
                stream.fill(filled, value)
                stream.copy(copied, source)
            graphs.append(graph)
        graph, *others = graphs[0].clone(), *graphs
        self.adopt([graph])
        for number in (1, 0, 1):
            for filled, _, copied in memory:
                stream.fill(filled, 0)
                stream.fill(copied, 0)
            self._checked(graph.update(others[number]))
            graph.replay(stream)
            found = [self.bytes_of(each)[-1] for filled, _, copied in memory for each in (filled, copied)]
            assert found == ([1, 10, 0, 0], [0, 0, 2, 20])[number]

    @needs(Capability.EVENTS)
    def test_updated_graph_has_the_dependencies_of_the_other(self) -> None:
        """After `update`, forked work waits for what it waits for in the other graph."""
        stream, fork, cells = self.stream(), self.stream(), [self.cell() for _ in range(3)]

        def forked(first: Any, second: Any, *, late: bool) -> ag.Graph:
            with self.graph(stream, keep_graph=True) as graph:
                if not late:
                    fork.wait(stream)
                self.enqueue_slow(stream, first, 1, 1)
                if late:
                    fork.wait(stream)
                self.enqueue_slow(fork, second, 1, 1)
                stream.wait(fork)
            return graph

        graph = forked(cells[0], cells[1], late=False)
        graph.instantiate()
        self._checked(graph.update(forked(cells[2], cells[2], late=True)))
        assert self.replayed(graph, cells[2], times=PIECES) == 2 * PIECES, "the fork did not wait"

    @needs(Capability.EVENTS)
    def test_updated_graph_has_the_forks_of_the_other(self) -> None:
        """`update` with a graph of more or fewer forks gives the work of them all."""
        stream, cells = self.stream(), [self.cell() for _ in range(4)]
        forks = [self.stream() for _ in cells[1:]]
        graph = self._of(stream, cells[0], 1)
        graph.instantiate()
        expected = [0] * len(cells)
        for count in (2, 0, 3, 1):
            with self.graph(stream, keep_graph=True) as other:
                for fork in forks[:count]:
                    fork.wait(stream)
                for each, cell in zip((stream, *forks), cells[: count + 1], strict=False):
                    self.enqueue(each, cell, 1, 1)
                for fork in forks[:count]:
                    stream.wait(fork)
            self._checked(graph.update(other))
            graph.replay()
            expected = [value + (number <= count) for number, value in enumerate(expected)]
            assert [self.read(cell) for cell in cells] == expected, f"with {count} forks"

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


class NodeChangeRules(Case):
    """`Graph.set_node`, and the backend's `node_setter`."""

    @needs(Capability.SET_NODE, Capability.ENQUEUE, Capability.NODES)
    def test_what_can_be_changed_is_reported(self) -> None:
        """`GraphNode.settable` is what the setter of each node can change; nothing if there is none."""
        graph = self._filled_and_copied()[0]
        for each in (graph, self._around(graph)) if self.has(Capability.CHILD_GRAPHS) else (graph,):
            runner = each._runner
            assert runner is not None and runner.captured is not None and runner.executable is not None  # noqa: PT018
            setter_of = partial(self.backend.node_setter, runner.captured.native, runner.executable.native)
            self._reported(setter_of, each.describe().nodes)

    def _reported(
        self, setter_of: Callable[..., NodeSetter | None], nodes: Iterable[GraphNode], *around: int
    ) -> None:
        """Check what nodes, and those inside child graphs, say about their setters."""
        for node in nodes:
            setter = setter_of(*around, node.id)
            assert sorted(node.settable) == sorted(setter.settable if setter else ()), node
            if setter is not None:
                assert setter.kind == node.kind
                assert setter.nbytes in (node.nbytes, None)
            for body, _ in node.bodies if node.kind == "graph" else ():
                self._reported(setter_of, body, *around, node.id)
                assert setter_of(*around, node.id, len(body)) is None, "there is no such node"

    @needs(Capability.SET_NODE, Capability.ENQUEUE, Capability.NODES)
    def test_changed_nodes_do_something_else_in_later_runs(self) -> None:
        """The value and the target of a fill, and both addresses of a copy, are changed together."""
        graph, filled, copied, other = self._changeable("value", "target", "source")
        graph.set_nodes({0: {"value": 7, "target": other}, 1: {"source": other, "target": filled}})
        graph.replay()
        assert [self.bytes_of(each) for each in (filled, copied, other)] == [
            b"\x07" * 8,
            bytes(8),
            b"\x07" * 8,
        ]
        graph.instantiate()
        graph.replay()
        assert [self.bytes_of(each) for each in (filled, copied)] == [b"\x01" * 8] * 2

    @needs(Capability.SET_NODE, Capability.ENQUEUE, Capability.NODES)
    def test_disabled_nodes_are_left_out(self) -> None:
        """Later runs leave out what is disabled, and only that, until it is enabled; its parameters stay."""
        graph, filled, copied, _ = self._changeable("enabled", "value")
        fill, copy = ("enabled" in node.settable for node in graph.describe().nodes)
        if fill:
            graph.set_node(0, enabled=False)
        graph.set_node(0, value=6)
        graph.replay()
        assert [self.bytes_of(each) for each in (filled, copied)] == [bytes(8) if fill else b"\x06" * 8] * 2
        if fill:
            graph.set_node(0, enabled=True)
            graph.replay()
            assert [self.bytes_of(each) for each in (filled, copied)] == [b"\x06" * 8] * 2
        if copy:
            graph.set_node(1, enabled=False)
            graph.set_node(0, value=5)
            graph.replay()
            assert [self.bytes_of(each) for each in (filled, copied)] == [b"\x05" * 8, b"\x06" * 8]
            graph.set_node(1, enabled=True)
            graph.replay()
            assert [self.bytes_of(each) for each in (filled, copied)] == [b"\x05" * 8] * 2

    @needs(Capability.SET_NODE, Capability.ENQUEUE, Capability.NODES)
    def test_two_executables_are_changed_apart(self) -> None:
        """A change of one executable leaves the graph and its other executables as they are."""
        graph, filled, _, _ = self._changeable("value")
        assert graph._runner is not None
        captured = graph._runner.captured
        assert captured is not None
        second = self.backend.instantiate(captured.native)
        try:
            graph.set_node(0, value=9)
            self.backend.replay(second, graph.stream.native if graph.stream else None)
            assert self.bytes_of(filled) == b"\x01" * 8
            graph.replay()
            assert self.bytes_of(filled) == b"\x09" * 8
        finally:
            self.backend.destroy_executable(second)

    @needs(Capability.SET_NODE, Capability.ENQUEUE, Capability.NODES, Capability.CHILD_GRAPHS)
    def test_node_inside_a_recorded_run_is_changed_there_alone(self) -> None:
        """A change inside a graph leaves the graph that was recorded, and its other runs, as they are."""
        graph, filled, copied, other = self._changeable("value", "source")
        first, second = self._around(graph), self._around(graph)
        inside = [node for each in first.describe().nodes for body, _ in each.bodies for node in body]
        self.skip_unless(any(node.settable for node in inside), "does not change nodes inside others")
        first.set_nodes({(0, 0): {"value": 7}, (0, 1): {"source": other}})
        for each in (first, second, graph, first):
            each.replay()
            expected = [b"\x07" * 8, bytes(8)] if each is first else [b"\x01" * 8] * 2
            assert [self.bytes_of(memory) for memory in (filled, copied)] == expected
        first.instantiate()
        first.replay()
        assert self.bytes_of(filled) == b"\x01" * 8

    @needs(Capability.SET_NODE, Capability.ENQUEUE)
    def test_function_of_a_node_setter_sets_the_node(self) -> None:
        """The function of a `NodeSetter` does what the setter does, where its guard is met."""
        graph, filled, copied, other = self._filled_and_copied()
        runner = graph._runner
        assert runner is not None and runner.captured is not None and runner.executable is not None  # noqa: PT018
        setter = self.backend.node_setter(runner.captured.native, runner.executable.native, 1)
        self.skip_unless(setter and setter.function, "does not change copies in C")
        assert setter is not None and setter.function is not None  # noqa: PT018
        found = setter.function
        if found.guard is not None:
            current, context = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p()
            assert current(found.guard.address)(ctypes.addressof(context)) == 0
            self.skip_unless(context.value == found.guard.context, "has no context that is current here")
        stream = graph.stream
        assert stream is not None
        stream.fill(other, 7)
        source = memory_of(other, 8, writable=False, device=True).address
        ctypes.c_uint64.from_address(setter.address_of(1, 0)).value = source
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_void_p,) * len(found.arguments))
        assert prototype(found.address)(*found.arguments) == 0
        graph.replay()
        assert self.bytes_of(copied) == b"\x07" * 8
        setter([Change(1, 0, word(memory_of(filled, 8, writable=False, device=True).address))])
        graph.replay()
        assert self.bytes_of(copied) == b"\x01" * 8

    def _filled_and_copied(self) -> tuple[ag.Graph, Any, Any, Any]:
        """Return a graph that fills memory and copies it, both memories, and a third one; all are zero."""
        stream = self.stream()
        filled, copied, other = (self.used.buffer(8) for _ in range(3))
        for each in (filled, copied, other):
            stream.fill(each, 0)
        with self.graph(stream, keep_graph=True) as graph:
            stream.fill(filled, 1)
            stream.copy(copied, filled)
        graph.instantiate()
        return graph, filled, copied, other

    def _around(self, graph: ag.Graph) -> ag.Graph:
        """Return a graph with a run of another one inside."""
        with self.graph(graph.stream, keep_graph=True) as around:
            around.add(graph)
        around.instantiate()
        return around

    def _changeable(self, *names: str) -> tuple[ag.Graph, Any, Any, Any]:
        found = self._filled_and_copied()
        nodes = found[0].describe().nodes
        can = {name for node in nodes for name in node.settable}
        if not can.issuperset(names):
            raise SkipTest(
                f"backend {self.backend.name!r} does not change the {' and '.join(names)} of nodes"
            )
        return found
