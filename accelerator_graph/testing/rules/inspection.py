"""Looking into a graph: DOT files, raw handles, nodes and dependencies, and the nodes of a label."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, GraphEdge, GraphNode

from .._case import PIECES, Case, applied, expect, folder, needs


class DumpRules(Case):
    """The contents and the handles of a kept graph."""

    def test_debug_dump_writes_a_dot_file(self) -> None:
        """`debug_dump` writes a file in the DOT language to any kind of path, and replaces a longer one."""
        graph = self._kept()
        with folder() as path:
            (path / "b.dot").write_text("no graph " * 100_000)
            for file in (path / "a.dot", str(path / "b.dot")):
                graph.debug_dump(file)
                text = Path(file).read_text(encoding="utf-8")
                assert "digraph" in text
                assert "no graph" not in text
            graph.debug_dump(path / "c.dot", verbose=False)
            assert sorted(os.listdir(path)) == ["a.dot", "b.dot", "c.dot"]

    def test_debug_dump_draws_every_dependency(self) -> None:
        """The file has an arrow for each dependency of the dumped graph, and of no other graph."""
        self._kept()
        stream, cell = self.stream(), self.cell()
        for pieces in (2, 4):
            with self.graph(stream, keep_graph=True) as graph:
                self.enqueue(stream, cell, times=pieces)
            with folder() as path:
                graph.debug_dump(path / "graph.dot")
                arrows = (path / "graph.dot").read_text(encoding="utf-8").count("->")
            assert arrows >= pieces - 1
            if self.used.nodes_per_piece == 1:
                assert arrows == pieces - 1

    def test_debug_dump_to_an_unwritable_path_is_an_oserror(self) -> None:
        """A path that can't be written is an OSError; no file is left, and the graph is unchanged."""
        graph = self._kept()
        with folder() as path:
            expect(OSError, graph.debug_dump, path / "missing" / "graph.dot")
            (path / "folder.dot").mkdir()
            expect(OSError, graph.debug_dump, path / "folder.dot")
            assert os.listdir(path) == ["folder.dot"]
            graph.debug_dump(path / "graph.dot")

    def test_debug_dumps_to_one_path_at_once(self) -> None:
        """Threads that dump to the same path at once leave one complete file there, and no other."""
        graphs = [self._kept() for _ in range(4)]
        with folder() as path:
            file = path / "graph.dot"
            graphs[0].debug_dump(file)
            whole = file.read_text(encoding="utf-8")

            def dump(each: ag.Graph) -> None:
                for _ in range(20):
                    each.debug_dump(file)

            self.in_threads([partial(dump, each) for each in graphs])
            assert file.read_text(encoding="utf-8").count("digraph") == whole.count("digraph")
            assert os.listdir(path) == ["graph.dot"]

    def test_debug_mode_keeps_the_graph(self) -> None:
        """After `enable_debug_mode` a graph is ready at `capture_end`, and can still be dumped."""
        stream, cell, graph = self.setup()
        graph.enable_debug_mode()
        with graph:
            self.enqueue(stream, cell)
        assert graph.state == "ready"
        self._dump(graph)
        assert self.replayed(graph, cell) == applied(1)

    def test_dump_of_a_graph_that_was_not_kept_says_how(self) -> None:
        """`debug_dump` of a graph that was not kept is a `GraphStateError` with both ways to keep it."""
        graph, both = self.captured(self.stream(), self.cell()), r"keep_graph=True.*enable_debug_mode"
        expect(ag.GraphStateError, graph.debug_dump, "never-written.dot", match=both)
        assert not os.path.exists("never-written.dot")

    @needs(Capability.HANDLES)
    def test_raw_handles_are_ints(self) -> None:
        """`raw_graph` and `raw_executable` return non-zero ints, and different ones for two live graphs."""
        stream, cell = self.stream(), self.cell()
        graphs = [self.captured(stream, cell, keep_graph=True) for _ in range(2)]
        for graph in graphs:
            graph.instantiate()
        for call in (ag.Graph.raw_graph, ag.Graph.raw_executable):
            handles = [call(graph) for graph in graphs]
            assert all(type(handle) is int and handle for handle in handles)
            assert len(set(handles)) == 2

    def test_cuda_handles_exist_where_the_backend_is_like_cuda(self) -> None:
        """`raw_cuda_graph` and `raw_cuda_graph_exec` work with `cuda_like`, and are unsupported without."""
        stream, _, graph = self.setup_captured(keep_graph=True)
        graph.instantiate()
        if self.backend.cuda_like:
            assert graph.raw_cuda_graph() == graph.raw_graph()
            assert graph.raw_cuda_graph_exec() == graph.raw_executable()
        else:
            expect(ag.UnsupportedError, graph.raw_cuda_graph)
            expect(ag.UnsupportedError, graph.raw_cuda_graph_exec)
        for keep in (False, True):
            empty = self.graph(stream, keep_graph=keep)
            for call in (empty.raw_cuda_graph, empty.raw_cuda_graph_exec):
                nothing = rf"^Graph\.{call.__name__}\(\): nothing was captured"
                expect(ag.GraphStateError, call, match=nothing)

    def _kept(self) -> ag.Graph:
        graph = self.captured(self.stream(), self.cell(), keep_graph=True)
        self._dump(graph)
        return graph

    def _dump(self, graph: ag.Graph) -> None:
        """Dump a graph; skip the test if the backend does not have the capability for it."""
        with folder() as path:
            if self.has(Capability.NODES):
                graph.debug_dump(path / "graph.dot")
                return
            refused = expect(ag.UnsupportedError, graph.debug_dump, path / "graph.dot")
            assert refused.capability == Capability.NODES
            assert os.listdir(path) == []
            raise SkipTest(str(refused))


BEFORE = "how many nodes each node depends on, directly or not, by the dependencies that `nodes` returned"


@needs(Capability.NODES)
class NodeRules(Case):
    """The listed nodes and dependencies agree with the recorded work."""

    def test_nodes_of_a_line(self) -> None:
        """The work of one stream is a chain of nodes, each with a kind in lower case and a name."""
        stream, cell = self.stream(), self.cell()
        assert self._dependencies(stream, lambda: self.enqueue(stream, cell, times=4)) == [0, 1, 2, 3], BEFORE

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

        assert self._dependencies(first, record) == [0, 1, 1, 3], BEFORE

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

        assert self._dependencies(first, record) == [0, 1, 1], BEFORE

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

        assert self._dependencies(stream, record) == [0, 1, 2, 3], BEFORE

    @needs(Capability.ENQUEUE)
    def test_kinds_tell_fills_and_copies_from_other_work(self) -> None:
        """A fill is not a "memcpy", a copy not a "memset", and both are not of the kind of other work."""
        stream, cell, source, target = self.stream(), self.cell(), self.used.buffer(8), self.used.buffer(8)
        kinds = [
            {node.kind for node in self._listed(stream, record)[0]}
            for record in (
                partial(stream.fill, source, 1),
                partial(stream.copy, target, source),
                partial(self.enqueue, stream, cell),
            )
        ]
        fill, copy, _ = kinds
        assert "memcpy" not in fill
        assert "memset" not in copy
        assert len(set.union(*kinds)) > 1, f"everything is a {fill.pop()!r}"

    def test_nodes_have_the_names_of_their_kernels(self) -> None:
        """A node has the name of what it runs: that of a piece of work has `Work.kernel_name` in it."""
        stream, cell, name = self.stream(), self.cell(), self.used.kernel_name
        self.skip_unless(name, "has a Work without `kernel_name`")
        nodes, _ = self._listed(stream, lambda: self.enqueue(stream, cell))
        names = [node.name for node in nodes]
        assert any(name in each for each in names), f"{name!r} is not in {names}"

    @needs(Capability.ENQUEUE)
    def test_dependencies_point_to_later_work(self) -> None:
        """The source of a dependency is the earlier work, and its target the later one."""
        stream, source, target = self.stream(), self.used.buffer(8), self.used.buffer(8)
        fill, copy = partial(stream.fill, source, 1), partial(stream.copy, target, source)
        (first, _), (second, _) = self._listed(stream, fill), self._listed(stream, copy)
        kinds = [node.kind for node in (*first, *second)]
        self.skip_unless(len(set(kinds)) == len(kinds) == 2, "has one kind of node for fills and copies")
        nodes, edges = self._listed(stream, lambda: (fill(), copy()))
        assert [(nodes[edge.source].kind, nodes[edge.target].kind) for edge in edges] == [tuple(kinds)]

    @needs(Capability.ENQUEUE)
    def test_parameters_of_fills_and_copies(self) -> None:
        """A fill's and a copy's size, value and addresses are those that were recorded, or None."""
        stream, source, target = self.stream(), self.used.buffer(8), self.used.buffer(8)
        (fill, *_), _ = self._listed(stream, lambda: stream.fill(source, 7))
        (copy, *_), _ = self._listed(stream, lambda: stream.copy(target, source))
        (back, *_), _ = self._listed(stream, lambda: stream.copy(source, target))
        for node in (fill, copy, back):
            assert node.nbytes in (8, None)
        assert fill.value in (7, None)
        assert fill.source is None
        assert None in (fill.target, copy.source) or fill.target == copy.source
        assert (back.source, back.target) == (copy.target, copy.source)

    def test_nodes_come_after_those_they_depend_on(self) -> None:
        """In the list of nodes, each comes after all those that it depends on."""
        stream, cell = self.stream(), self.cell()
        sides = [self.stream() for _ in range(2)] if self.has(Capability.EVENTS) else []

        def record() -> None:
            for side in sides:
                side.wait(stream)
            for number in range(6):
                self.enqueue(sides[number % 2] if sides and number % 3 else stream, self.cell())
            for side in sides:
                stream.wait(side)
            self.enqueue(stream, cell)

        _, edges = self._listed(stream, record)
        assert edges
        assert all(edge.source < edge.target for edge in edges)

    @needs(Capability.EVENTS, Capability.CHILD_GRAPHS)
    def test_nodes_inside_a_recorded_replay(self) -> None:
        """A recorded replay lists the nodes and the dependencies of its graph."""
        stream, home, fork, cell = self.stream(), self.stream(), self.stream(), self.cell()

        def record() -> None:
            self.enqueue(home, cell)
            fork.wait(home)
            self.enqueue(home, cell)
            self.enqueue(fork, self.cell())
            home.wait(fork)

        nodes, edges = self._listed(home, record)
        with self.graph(home, keep_graph=True) as graph:
            record()
        listed, _ = self._listed(stream, lambda: self.record_run(graph, stream))
        bodies = [body for node in listed for body in node.bodies]
        self.skip_unless(bodies, "does not list what a recorded replay runs")
        ((inside, between),) = bodies
        assert [(node.id, node.kind, node.name) for node in inside] == [
            (node.id, node.kind, node.name) for node in nodes
        ]
        assert set(between) == set(edges), "the dependencies inside are not those of the graph"

    def test_profilers_ids_are_as_many_as_the_nodes(self) -> None:
        """The numbers that a profiler has for the nodes of an executable differ, or there are none."""
        stream, backend = self.stream(), self.backend
        token = self.begin(stream)
        for _ in range(3):
            self.enqueue(stream, self.cell())
        graph = backend.capture_end(token)
        executable = backend.instantiate(graph)
        count = len(backend.nodes(graph)[0])
        ids = [node.profiler_id for node in backend.nodes(graph, executable)[0]]
        assert len(ids) == count
        assert len(set(ids)) == count or set(ids) == {None}
        backend.destroy_executable(executable)
        backend.destroy_graph(graph)

    def _listed(self, stream: ag.Stream, record: Callable[[], object]) -> tuple[list[Any], list[GraphEdge]]:
        """Capture, and return nodes and dependencies."""
        backend, token, count = self.backend, self.begin(stream), None
        try:
            record()
            count = self.recorded_so_far(stream)
        finally:
            graph = backend.capture_end(token)
        listed = backend.nodes(graph)
        assert count in (None, len(listed[0])), "`capture_info` has counted other nodes than `nodes` lists"
        backend.destroy_graph(graph)
        return listed

    def _dependencies(self, stream: ag.Stream, record: Callable[[], None]) -> list[int]:
        """Capture; check the nodes; return for each piece of work on how many others it depends, sorted."""
        nodes, edges = self._listed(stream, record)
        assert [node.id for node in nodes] == list(range(len(nodes)))
        for node in nodes:
            assert node.kind
            assert node.kind == node.kind.lower()
            assert isinstance(node.name, str)
        after = _closure(len(nodes), edges)
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
        self.skip_unless(bool(values), "does not report what fills write")
        assert values == [1, 2, 3, 4, 5, 6]

    @needs(Capability.PROGRESS)
    def test_host_memory_shows_how_far_a_replay_is(self) -> None:
        """Memory of `host_memory` is zero at first, and the host sees each fill before later work is done."""
        stream, cell, seen = self.stream(), self.cell(), set()
        with self.undisturbed_capture():
            address = self.backend.host_memory(stream.native, 2)
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
            found = [self.recorded_so_far(stream)]
            for step in steps:
                step()
                found += [self.recorded_so_far(stream) for _ in range(2)]
        finally:
            graph = backend.capture_end(token)
        nodes = backend.nodes(graph)[0]
        backend.destroy_graph(graph)
        self.skip_unless(found[0] is not None, "does not count nodes during a capture")
        assert found[0] == 0
        assert found[1::2] == found[2::2], "asking twice gives two numbers"
        assert found[-1] == len(nodes)
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
