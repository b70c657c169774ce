"""`Backend.nodes`: the nodes and the dependencies of a graph."""

from __future__ import annotations

from collections.abc import Callable
from graphlib import TopologicalSorter
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, GraphEdge, GraphNode

from .._case import Case, needs


@needs(Capability.NODES)
class NodeRules(Case):
    """The listed nodes and dependencies agree with the recorded work."""

    def test_nodes_of_a_line(self) -> None:
        """The work of one stream is a chain: each node depends on the one before."""
        stream, cell = self.stream(), self.cell()

        def record() -> None:
            self.enqueue(stream, cell, times=4)

        assert self._dependencies(stream, record) == [0, 1, 2, 3]

    @needs(Capability.EVENTS)
    def test_nodes_of_a_fork_and_join(self) -> None:
        """Forked branches depend on the work before the fork, not on each other; the join depends on both."""
        first, second, cells = self.stream(), self.stream(), [self.cell(), self.cell()]

        def record() -> None:
            self.enqueue(first, cells[0])
            second.wait(first)
            self.enqueue(first, cells[0])
            self.enqueue(second, cells[1])
            first.wait(second)
            self.enqueue(first, cells[0])

        assert self._dependencies(first, record) == [0, 1, 1, 3]

    @needs(Capability.EVENTS)
    def test_nodes_after_an_event(self) -> None:
        """Work that waits for an event depends on the work before the event, and not on later work."""
        first, second, cells = self.stream(), self.stream(), [self.cell(), self.cell()]

        def record() -> None:
            self.enqueue(first, cells[0])
            event = first.record()
            self.enqueue(first, cells[0])
            first.record()
            second.wait(event)
            self.enqueue(second, cells[1])
            first.wait(second)

        assert self._dependencies(first, record) == [0, 1, 1]

    @needs(Capability.EVENTS)
    def test_nodes_of_streams_that_take_turns(self) -> None:
        """A side stream that is entered several times in a capture waits for the captured one each time."""
        stream, side, cell = self.stream(), self.stream(), self.cell()

        def record() -> None:
            with stream:
                for _ in range(2):
                    self.enqueue(stream, cell)
                    with side:
                        self.enqueue(side, cell)
                    stream.wait(side)

        assert self._dependencies(stream, record) == [0, 1, 2, 3]

    def test_nodes_have_a_kind(self) -> None:
        """Every node has a kind in lower case, and a name, which may be empty."""
        stream, cell = self.stream(), self.cell()
        nodes, _ = self._listed(stream, lambda: self.enqueue(stream, cell))
        for node in nodes:
            assert node.kind
            assert node.kind == node.kind.lower()
            assert isinstance(node.name, str)

    def _listed(
        self, stream: ag.Stream, record: Callable[[], None]
    ) -> tuple[list[GraphNode], dict[int, set[int]]]:
        """Capture; return the nodes, and for each node all nodes that it depends on."""
        backend = self.backend
        token = self.begin(stream)
        try:
            record()
        finally:
            graph = backend.capture_end(token)
        try:
            nodes, edges = backend.nodes(graph)
            assert backend.node_count(graph) == len(nodes)
        finally:
            backend.destroy_graph(graph)
        assert [node.id for node in nodes] == list(range(len(nodes)))
        return nodes, _closure(len(nodes), edges)

    def _dependencies(self, stream: ag.Stream, record: Callable[[], None]) -> list[int]:
        """Capture; return for each piece of work on how many others it depends, sorted."""
        nodes, after = self._listed(stream, record)
        if self.used.nodes_per_piece != 1:
            raise SkipTest("a piece of work is not one node")
        work = {node.id for node in nodes if node.kind != "empty"}
        return sorted(len(after[node] & work) for node in work)


def _closure(count: int, edges: list[GraphEdge]) -> dict[int, set[int]]:
    """Return all nodes that each node depends on. `graphlib.CycleError` if there is a cycle."""
    assert len(set(edges)) == len(edges), "an edge is listed twice"
    before: dict[int, set[int]] = {node: set() for node in range(count)}
    for edge in edges:
        assert edge.source in before
        assert edge.target in before
        before[edge.target].add(edge.source)
    after: dict[int, set[int]] = {}
    for node in TopologicalSorter(before).static_order():
        after[node] = before[node].union(*(after[source] for source in before[node]))
    return after
