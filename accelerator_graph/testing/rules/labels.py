"""Labels: which nodes of a graph were recorded inside a block."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Sequence
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, GraphNode, Lends

from .._case import PIECES, Case, applied, needs


@needs(Capability.NODES)
class LabelRules(Case):
    """What the backend counts while it records, and the labels that are made of that."""

    def test_recorded_counts_the_nodes_so_far(self) -> None:
        """`recorded` is 0 at first, and grows by the nodes of each piece of work; asking changes nothing."""
        stream, cell = self.stream(), self.cell()
        self._counts(stream, [lambda: self.enqueue(stream, cell)] * 3)

    @needs(Capability.EVENTS)
    def test_recorded_counts_the_work_of_forks(self) -> None:
        """`recorded` counts the work of every stream that takes part, before the streams are joined."""
        stream, side, cells = self.stream(), self.stream(), [self.cell(), self.cell()]

        def forked() -> None:
            side.wait(stream)
            self.enqueue(side, cells[1])

        def joined() -> None:
            stream.wait(side)
            self.enqueue(stream, cells[0])

        self._counts(stream, [lambda: self.enqueue(stream, cells[0]), forked, joined], waits=True)

    def test_labels_name_the_nodes_recorded_inside(self) -> None:
        """A label's nodes are those that were recorded in its block and the blocks inside."""
        stream, cell, graph = self.setup(keep_graph=True)
        with graph:
            self.enqueue(stream, cell)
            with ag.label("outer"):
                self.enqueue(stream, cell)
                with ag.label("inner"):
                    self.enqueue(stream, cell, times=2)
            self.enqueue(stream, cell)
        self._labelled(graph, {"outer": (1, 4), "inner": (2, 4)})
        assert self.replayed(graph, cell) == applied(5)

    @needs(Capability.EVENTS)
    def test_a_label_has_the_forks_and_not_what_is_joined(self) -> None:
        """Work of a fork belongs to the label in which it was enqueued, wherever the fork is joined."""
        stream, cell, graph = self.setup(keep_graph=True)
        side, other = self.stream(), self.cell()
        with graph:
            self.enqueue(stream, cell)
            with ag.label("fork"):
                side.wait(stream)
                self.enqueue(side, other)
            with ag.label("join"):
                stream.wait(side)
                self.enqueue(stream, cell)
        self._labelled(graph, {"fork": (1, 2), "join": (2, 3)}, waits=True)
        assert self.replayed(graph, cell) == applied(2)
        assert self.read(other) == applied(1)

    @needs(Capability.ENQUEUE)
    def test_nodes_are_in_the_order_of_recording(self) -> None:
        """If `recorded` is known, nodes are listed in the order of recording, over several streams, too."""
        stream, buffers = self.stream(), [self.used.buffer(8) for _ in range(6)]
        self._counts(stream, [])
        sides = [self.stream() for _ in range(2)] if self.has(Capability.EVENTS) else []
        turns = [stream, stream, *sides, *reversed(sides)] if sides else [stream] * 6
        with self.graph(stream, keep_graph=True) as graph:
            for side in sides:
                side.wait(stream)
            for number, (turn, buffer) in enumerate(zip(turns, buffers, strict=True)):
                turn.fill(buffer, number + 1)
            for side in sides:
                stream.wait(side)
        values = [node.value for node in graph.describe().nodes if node.value is not None]
        self.skip_unless(bool(values), "does not tell what fills write")
        assert values == [1, 2, 3, 4, 5, 6]

    @needs(Capability.ENQUEUE)
    def test_host_memory_shows_how_far_a_replay_is(self) -> None:
        """Memory of `host_memory` is zero at first, and the host sees each fill before later work is done."""
        stream, cell, seen = self.stream(), self.cell(), set()
        with self.undisturbed_capture():
            address = self.backend.host_memory(stream.native, 2)
        if address is None:
            raise SkipTest(f"backend {self.backend.name!r} has no memory of the host that a graph can write")
        assert ctypes.string_at(address, 2) == bytes(2)
        for pieces in (PIECES << doublings for doublings in range(5)):  # some may be done too soon
            with self.graph(stream) as graph:
                stream.fill(address, 1, 1)
                stream.fill(address + 1, 0, 1)
                self.enqueue_slow(stream, cell, times=pieces)
                stream.fill(address + 1, 1, 1)
                stream.fill(address, 2, 1)
            for _ in range(2):
                graph.replay()
                while not stream.query():
                    seen.add(ctypes.string_at(address, 2))
                assert ctypes.string_at(address, 2) == b"\2\1"
            assert seen <= {bytes(2), b"\1\0", b"\1\1", b"\2\1", b"\2\0"}
            if b"\1\0" in seen:
                return
        raise AssertionError("what a fill had written was never seen while later work was in progress")

    def _counts(self, stream: ag.Stream, steps: list[Callable[[], object]], *, waits: bool = False) -> None:
        """Capture; check what is counted after each step, which records one piece of work, and may wait."""
        backend, token = self.backend, self.begin(stream)
        try:
            found = [backend.recorded(token)]
            for step in steps:
                step()
                found += [backend.recorded(token) for _ in range(2)]
            if isinstance(backend, Lends):
                assert backend.recorded_on(stream._native) == found[-1], "recorded_on and recorded differ"
        finally:
            graph = backend.capture_end(token)
        count, nodes = backend.node_count(graph), backend.nodes(graph)[0]
        backend.destroy_graph(graph)
        self.skip_unless(found[0] is not None, "does not count nodes during a capture")
        assert found[0] == 0
        assert found[1::2] == found[2::2], "asking twice gives two numbers"
        assert found[-1] == count
        if self.used.nodes_per_piece == 1:
            counted = [_pieces(nodes, each or 0, waits) for each in found[1::2]]
            assert counted == list(range(1, len(steps) + 1))

    def _labelled(
        self, graph: ag.Graph, expected: dict[str, tuple[int, int]], *, waits: bool = False
    ) -> None:
        """Check the labels of a graph, whose nodes are given as pieces of work."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            description = graph.describe()
        labels, nodes = description.labels, description.nodes
        if not labels:
            self._counts(self.stream(), [])
        assert [label.name for label in labels] == list(expected)
        per_piece = self.used.nodes_per_piece
        if per_piece is not None:
            found = {
                label.name: (_pieces(nodes, label.start, waits), _pieces(nodes, label.stop, waits))
                for label in labels
            }
            assert found == {
                name: (start * per_piece, stop * per_piece) for name, (start, stop) in expected.items()
            }


def _pieces(nodes: Sequence[GraphNode], end: int, waits: bool) -> int:
    """Return how many of the first nodes are work. Some runtimes record waits as empty nodes."""
    return sum(not waits or node.kind != "empty" for node in nodes[:end])
