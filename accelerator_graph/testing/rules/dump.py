"""Inspecting a kept graph: debug mode, DOT files, raw handles."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import Case, applied, expect, folder, needs


class DumpRules(Case):
    """The contents and the handles of a kept graph."""

    def test_debug_dump_writes_a_dot_file(self) -> None:
        """`debug_dump` writes a file in the DOT language to any kind of path, and leaves no other file."""
        graph = self._kept()
        with folder() as path:
            for file in (path / "a.dot", str(path / "b.dot")):
                graph.debug_dump(file)
                assert "digraph" in Path(file).read_text(encoding="utf-8")
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

    def test_debug_dump_replaces_a_file(self) -> None:
        """`debug_dump` replaces an existing file, even a longer one."""
        graph = self._kept()
        with folder() as path:
            file = path / "graph.dot"
            file.write_text("no graph " * 100_000)
            graph.debug_dump(file)
            assert "no graph" not in file.read_text(encoding="utf-8")
            assert os.listdir(path) == ["graph.dot"]

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
        graph, other = (self.captured(stream, cell, keep_graph=True) for _ in range(2))
        for each in (graph, other):
            each.instantiate()
        for handles in (
            [graph.raw_graph(), other.raw_graph()],
            [graph.raw_executable(), other.raw_executable()],
        ):
            assert all(type(handle) is int and handle for handle in handles)
            assert len(set(handles)) == 2

    def test_cuda_handles_exist_where_the_backend_is_like_cuda(self) -> None:
        """`raw_cuda_graph` and `raw_cuda_graph_exec` work if `cuda_like` is True, else are unsupported."""
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
