"""Executables that are given the work of another graph, and the memory of graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import Case, applied


class UpdateRules(Case):
    """The capabilities "update" and "graph_memory"."""

    def _recorded(self, stream: ag.Stream, body: Callable[[], None]) -> Any:
        token = self.backend.capture_begin(stream.native, self.backend.default_capture_mode)
        body()
        return self.backend.capture_end(token)

    def test_updated_executable_does_the_other_graphs_work(self) -> None:
        """After `update` an executable does what the other graph does; runs before it did their own."""
        self.needs(Capability.UPDATE)
        stream, cell, other = self.stream(), self.cell(), self.cell()
        first = self._recorded(stream, lambda: self.enqueue(stream, cell, 3, 1))
        second = self._recorded(stream, lambda: self.enqueue(stream, other, 5, 7))
        executable = self.backend.instantiate(first)
        self.backend.replay(executable, stream.native)
        assert self.backend.update(executable, second) == ""
        for graph in (first, second):
            self.backend.destroy_graph(graph)
        for _ in range(2):
            self.backend.replay(executable, stream.native)
        assert (self.read(cell), self.read(other)) == (1, 7 * 5 + 7)
        self.backend.destroy_executable(executable)

    def test_update_says_what_differs_too_much(self) -> None:
        """A graph with another number of nodes can't be an update: `update` says so in words."""
        self.needs(Capability.UPDATE)
        stream, cell = self.stream(), self.cell()

        def twice() -> None:
            self.enqueue(stream, cell)
            self.enqueue(stream, cell)

        one = self._recorded(stream, lambda: self.enqueue(stream, cell))
        two = self._recorded(stream, twice)
        executable = self.backend.instantiate(one)
        assert self.backend.update(executable, two) != ""
        self.backend.destroy_executable(executable)
        executable = self.backend.instantiate(two)
        self.backend.replay(executable, stream.native)
        assert self.read(cell) == applied(2)
        self.backend.destroy_executable(executable)
        for graph in (one, two):
            self.backend.destroy_graph(graph)

    def test_update_of_branches(self) -> None:
        """Graphs that begin and end with several branches can be updated like any other."""
        self.needs(Capability.UPDATE)
        self.needs(Capability.EVENTS)
        first, second, cells = self.stream(), self.stream(), (self.cell(), self.cell())

        def branches(factor: int) -> Callable[[], None]:
            def body() -> None:
                second.wait(first)
                for stream, cell in zip((first, second), cells, strict=True):
                    self.enqueue_slow(stream, cell, factor, 1)
                first.wait(second)

            return body

        graphs = [self._recorded(first, branches(factor)) for factor in (3, 5)]
        executable = self.backend.instantiate(graphs[0])
        self.backend.replay(executable, first.native)
        assert self.backend.update(executable, graphs[1]) == ""
        self.backend.replay(executable, first.native)
        assert [self.read(cell) for cell in cells] == [6, 6]
        self.backend.destroy_executable(executable)
        for graph in graphs:
            self.backend.destroy_graph(graph)

    def test_update_disturbs_no_capture(self) -> None:
        """An executable can be updated while another stream captures."""
        self.needs(Capability.UPDATE)
        stream, side, cell = self.stream(), self.stream(), self.cell()
        graph = self._recorded(stream, lambda: self.enqueue(stream, cell))
        executable = self.backend.instantiate(graph)
        capture = self.graph(side)
        with capture:
            self.enqueue(side, cell)
            assert self.backend.update(executable, graph) == ""
            self.enqueue(side, cell)
        capture.replay()
        assert self.read(cell) == applied(2)
        self.backend.destroy_executable(executable)
        self.backend.destroy_graph(graph)

    def test_memory_of_graphs_can_be_asked_and_trimmed(self) -> None:
        """`graph_memory` says what is used and reserved, and `trim_graph_memory` gives some of that back."""
        self.needs(Capability.GRAPH_MEMORY)
        for device in range(self.backend.device_count()):
            used, reserved = self.backend.graph_memory(device)
            assert 0 <= used <= reserved
            self.backend.trim_graph_memory(device)
            assert self.backend.graph_memory(device).reserved <= reserved
