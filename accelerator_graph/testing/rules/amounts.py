"""How much memory there is, and which memory a graph uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import (
    Capability,
    DeviceMemory,
    GraphNode,
    NodeParameters,
    addresses_in,
    word,
)

from .._case import Case, applied, needs


class AmountRules(Case):
    """What the backend tells of memory, and the report that is made of that."""

    def test_memory_is_told_and_disturbs_no_capture(self) -> None:
        """`device_memory` and `host_bytes` are plausible or None, and captures go on meanwhile."""
        stream, cell, graph = self.setup()
        recorded = self.recorded(stream, cell)
        executable = self.backend.instantiate(recorded)
        self._plausible(self.backend.device_memory(recorded))
        told = self.backend.host_bytes(recorded)
        with graph:
            self.enqueue(stream, cell)
            self._plausible(self.backend.device_memory(recorded))
            self._plausible(self.backend.device_memory(executable))
            for each in (told, self.backend.host_bytes(recorded), self.backend.host_bytes(executable)):
                assert each is None or each >= 0
            self.enqueue(stream, cell)
        self.backend.destroy_graph(recorded)
        self.backend.destroy_executable(executable)
        assert self.replayed(graph, cell) == applied(2)

    @needs(Capability.ENQUEUE, Capability.NODES)
    def test_parameters_are_those_of_the_nodes(self) -> None:
        """`parameters` has what the fills and copies of a graph read and write, or is None."""
        stream, source, target = self.stream(), self.used.buffer(8), self.used.buffer(8)
        parameters, nodes = self._parameters(stream, lambda: self._fill_and_copy(stream, source, target))
        found = addresses_in(parameters)
        self.skip_unless(found is not None, "does not tell all parameters of nodes")
        assert found is not None
        assert [each.kind for each in parameters] == [node.kind for node in nodes]
        for node, each in zip(nodes, parameters, strict=True):
            assert {node.source, node.target} - {None} <= found
            if node.target is not None:
                assert each.blocks is not None
                assert each.blocks[0] == word(node.target)
        fewer, _ = self._parameters(stream, lambda: self._fill_and_copy(stream, source, target, 4))
        for whole, part in zip(parameters, fewer, strict=True):
            assert (whole.kind, whole.rest) != (part.kind, part.rest), (
                f"the {whole.kind!r} nodes of 8 and of 4 bytes have the same `rest`: put the size into it"
            )

    @needs(Capability.ENQUEUE, Capability.NODES, Capability.CHILD_GRAPHS)
    def test_parameters_inside_a_recorded_replay(self) -> None:
        """With "child_graphs", `parameters` has those of the graph whose replay was recorded."""
        stream, home, source, target = self.stream(), self.stream(), self.used.buffer(8), self.used.buffer(8)
        with self.graph(home) as graph:
            self._fill_and_copy(home, source, target)
        alone, _ = self._parameters(home, lambda: self._fill_and_copy(home, source, target))
        parameters, nodes = self._parameters(stream, lambda: graph.replay(stream))
        self.skip_unless(addresses_in(alone) is not None, "does not tell all parameters of nodes")
        self.skip_unless(any(node.bodies for node in nodes), "does not list what a recorded replay runs")
        assert [each.inside for each in parameters] == [tuple(alone)]

    def _fill_and_copy(self, stream: ag.Stream, source: Any, target: Any, nbytes: int | None = None) -> None:
        stream.fill(source, 7, nbytes)
        stream.copy(target, source, nbytes)

    def _parameters(
        self, stream: ag.Stream, record: Callable[[], None]
    ) -> tuple[Sequence[NodeParameters], list[GraphNode]]:
        """Capture, and return the parameters and the nodes."""
        token = self.begin(stream)
        try:
            record()
        finally:
            graph = self.backend.capture_end(token)
        parameters, (nodes, _) = self.backend.parameters(graph), self.backend.nodes(graph)
        self.backend.destroy_graph(graph)
        self.skip_unless(parameters is not None, "does not tell all parameters of nodes")
        return parameters or (), nodes

    def test_memory_of_a_graph_is_told(self) -> None:
        """`Graph.memory` says of each part how large it is or why that is not known, and changes nothing."""
        stream, cell = self.stream(), self.cell()
        with self.executable(stream, cell) as executable:
            told = self.backend.host_bytes(executable)
            assert told is None or told >= 0
        with ag.measure_memory():
            graph = self.captured(stream, cell, keep_graph=True)
            before = graph.memory()
            graph.instantiate()
        memory = graph.memory()
        assert before.executable.nbytes is None
        assert (memory.backend, memory.device) == (stream.backend, stream.device)
        assert (memory.pool.id, memory.pool.graphs) == (tuple(graph.pool()), 1)
        parts = (memory.executable, memory.executable_host, memory.definition, memory.touched)
        for part in (*parts, memory.pool.held, memory.pool.used):
            assert part.note
            assert part.nbytes is None or part.nbytes >= 0
        assert ag.GraphMemory.from_json(memory.to_json()) == memory
        assert memory.name in str(memory)
        assert self.replayed(graph, cell) == applied(1)
        report = partial(ag.memory_report, {"this": graph})
        assert [each.name for each in report().graphs] == ["this"]
        graph.reset()
        assert report().graphs == ()

    def _plausible(self, memory: DeviceMemory | None) -> None:
        if memory is None:
            return
        assert 0 <= memory.free <= memory.total
        if memory.graphs_reserved is not None and memory.graphs_used is not None:
            assert memory.graphs_used >= 0
            assert memory.graphs_reserved >= 0
