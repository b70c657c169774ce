"""Events that an executable records between the nodes of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import PIECES, Case, applied, expect, lacks, needs


class GraphEventRules(Case):
    """What `instantiate_timed` makes does the work of the graph, and tells when its parts begin and end."""

    @needs(Capability.GRAPH_EVENTS)
    def test_graph_events_have_the_work_between_them(self) -> None:
        """Between an event before the first node and one after the last is the time of all the work."""
        stream, cell = self.stream(), self.cell()
        graph = self._slow(stream, cell)
        count = self.backend.node_count(graph)
        assert count is not None
        found = self._times(stream, graph, [0], [count - 1], runs=2)
        assert self.read(cell) == applied(2 * PIECES)
        for begin, end, whole in found:
            assert 0 <= begin < end <= whole
            assert end - begin > PIECES / 2, f"{end - begin} ms"

    @needs(Capability.GRAPH_EVENTS)
    def test_graph_events_stand_where_they_are_asked_for(self) -> None:
        """Events before and after a node in the middle have the work before, of and behind it apart."""
        stream, cell = self.stream(), self.cell()
        graph = self._slow(stream, cell)
        count = self.backend.node_count(graph)
        assert count is not None
        middle = count // 2
        ((first, begin, end, last, whole),) = self._times(stream, graph, [0, middle], [middle, count - 1])
        assert self.read(cell) == applied(PIECES)
        assert 0 <= first <= begin <= end <= last <= whole
        if self.used.nodes_per_piece == 1:
            for part, pieces in ((begin - first, middle), (end - begin, 1), (last - end, count - middle - 1)):
                assert part > pieces / 2, f"{part} of {last - first} ms"

    @needs(Capability.GRAPH_EVENTS)
    @needs(Capability.EVENTS)
    def test_graph_events_keep_every_dependency(self) -> None:
        """With events around every node of a fork, all work is done, in an order that its nodes allow."""
        first, second, cells = self.stream(), self.stream(), [self.cell(), self.cell()]
        token = self.begin(first)
        self.enqueue(first, cells[0])
        second.wait(first)
        self.enqueue(first, cells[0])
        self.enqueue(second, cells[1])
        first.wait(second)
        self.enqueue(first, cells[1])
        graph = self.backend.capture_end(token)
        nodes, edges = self.backend.nodes(graph)
        everywhere = range(len(nodes))
        (times,) = self._times(first, graph, everywhere, everywhere)
        assert (self.read(cells[0]), self.read(cells[1])) == (applied(2), applied(2))
        begin, end = times[: len(nodes)], times[len(nodes) : 2 * len(nodes)]
        assert all(begin[node] <= end[node] for node in everywhere)
        assert all(end[edge.source] <= begin[edge.target] for edge in edges)

    @needs(Capability.NODES)
    def test_node_times_are_of_every_run(self) -> None:
        """`time_nodes` does the work as often as it is asked to and tells of each run, or is refused."""
        stream, cell = self.stream(), self.cell()
        graph = self._slow(stream, cell)
        ids = {node.id for node in self.backend.nodes(graph)[0]}
        try:
            found = self.backend.time_nodes(graph, stream.native, 2)
        except ag.UnsupportedError as error:
            raise SkipTest(str(error)) from None
        finally:
            self.backend.destroy_graph(graph)
        assert self.read(cell) == applied(2 * PIECES)
        assert len(found) == 2
        for run in found:
            assert run.keys() <= ids
            assert (
                max(end for _, end in run.values()) - min(begin for begin, _ in run.values()) > 500 * PIECES
            )
            assert all(begin <= end for begin, end in run.values())

    @needs(Capability.NODES)
    @lacks(Capability.GRAPH_EVENTS)
    def test_graphs_without_events_say_so(self) -> None:
        """Without "graph_events", `instantiate_timed` is an `UnsupportedError`."""
        graph = self.recorded(self.stream(), self.cell())
        refused = expect(ag.UnsupportedError, self.backend.instantiate_timed, graph, [0], [])
        assert refused.capability == Capability.GRAPH_EVENTS
        self.backend.destroy_graph(graph)

    def _slow(self, stream: ag.Stream, cell: Any) -> Any:
        token = self.begin(stream)
        self.enqueue_slow(stream, cell, times=PIECES)
        return self.backend.capture_end(token)

    def _times(
        self,
        stream: ag.Stream,
        graph: Any,
        before: Sequence[int],
        after: Sequence[int],
        *,
        runs: int = 1,
    ) -> list[list[float]]:
        """Run a graph with events before and after nodes; return the time of each, and of the run."""
        backend, native = self.backend, stream.native
        executable, events = backend.instantiate_timed(graph, before, after)
        assert len(events) == len(before) + len(after)
        backend.destroy_graph(graph)
        found = []
        for _ in range(runs):
            start = backend.record_timed_event(native)
            backend.replay(executable, native)
            end = backend.record_timed_event(native)
            backend.synchronize(native)
            times = [backend.elapsed_time(start, event) for event in (*events, end)]
            found.append([time for time in times if time is not None])
            assert len(found[-1]) == len(times), "the time of an event is not known after its run"
            for event in (start, end):
                backend.destroy_event(event)
        backend.destroy_executable(executable)
        for event in events:
            backend.destroy_event(event)
        return found
