"""Inspecting a kept graph: debug mode, DOT files, raw handles."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import Case, applied, needs, raises


class DumpRules(Case):
    """The contents and the handles of a kept graph."""

    def test_debug_dump_writes_a_dot_file(self) -> None:
        """`debug_dump` writes a file in the DOT language to any kind of path, and leaves no other file."""
        graph = self._kept()
        with _folder() as folder:
            for path in (folder / "a.dot", str(folder / "b.dot")):
                graph.debug_dump(path)
                assert "digraph" in Path(path).read_text(encoding="utf-8")
            graph.debug_dump(folder / "c.dot", verbose=False)
            assert sorted(os.listdir(folder)) == ["a.dot", "b.dot", "c.dot"]

    def test_debug_dump_draws_every_dependency(self) -> None:
        """The file has an arrow for each dependency of the dumped graph, and of no other graph."""
        self._kept()
        stream, cell = self.stream(), self.cell()
        for pieces in (2, 4):
            graph = self.graph(stream, keep_graph=True)
            with graph:
                for _ in range(pieces):
                    self.enqueue(stream, cell)
            with _folder() as folder:
                graph.debug_dump(folder / "graph.dot")
                arrows = (folder / "graph.dot").read_text(encoding="utf-8").count("->")
            assert arrows >= pieces - 1
            if self.used.nodes_per_piece == 1:
                assert arrows == pieces - 1

    def test_debug_dump_replaces_a_file(self) -> None:
        """`debug_dump` replaces an existing file, even a longer one."""
        graph = self._kept()
        with _folder() as folder:
            path = folder / "graph.dot"
            path.write_text("no graph " * 100_000)
            graph.debug_dump(path)
            assert "no graph" not in path.read_text(encoding="utf-8")
            assert os.listdir(folder) == ["graph.dot"]

    def test_debug_dump_to_an_unwritable_path_is_an_oserror(self) -> None:
        """A path that can't be written is an OSError; no file is left, and the graph is unchanged."""
        graph = self._kept()
        with _folder() as folder:
            with raises(OSError):
                graph.debug_dump(folder / "missing" / "graph.dot")
            (folder / "folder.dot").mkdir()
            with raises(OSError):
                graph.debug_dump(folder / "folder.dot")
            assert os.listdir(folder) == ["folder.dot"]
            graph.debug_dump(folder / "graph.dot")

    def test_debug_dumps_to_one_path_at_once(self) -> None:
        """Threads that dump to the same path at once leave one complete file there, and no other."""
        graph = self._kept()
        with _folder() as folder:
            path = folder / "graph.dot"
            graph.debug_dump(path)
            whole = path.read_text(encoding="utf-8")
            graphs = [self._kept() for _ in range(4)]

            def dump(each: ag.Graph) -> None:
                for _ in range(20):
                    each.debug_dump(path)

            self.in_threads([partial(dump, each) for each in graphs])
            assert path.read_text(encoding="utf-8").count("digraph") == whole.count("digraph")
            assert os.listdir(folder) == ["graph.dot"]

    def test_debug_mode_keeps_the_graph(self) -> None:
        """After `enable_debug_mode` a graph is ready at `capture_end`, and can still be dumped."""
        stream, cell = self.stream(), self.cell()
        graph = self.graph(stream)
        graph.enable_debug_mode()
        with graph:
            self.enqueue(stream, cell)
        assert graph.state == "ready"
        self._dump(graph)
        graph.replay()
        assert self.read(cell) == applied(1)

    def test_dump_of_a_graph_that_was_not_kept_says_how(self) -> None:
        """`debug_dump` of a graph that was not kept is a `GraphStateError` with both ways to keep it."""
        stream, cell = self.stream(), self.cell()
        graph = self.captured(stream, cell)
        with raises(ag.GraphStateError, match=r"keep_graph=True.*enable_debug_mode"):
            graph.debug_dump("never-written.dot")
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
        stream, cell = self.stream(), self.cell()
        graph = self.captured(stream, cell, keep_graph=True)
        graph.instantiate()
        if self.backend.cuda_like:
            assert graph.raw_cuda_graph() == graph.raw_graph()
            assert graph.raw_cuda_graph_exec() == graph.raw_executable()
        else:
            with raises(ag.UnsupportedError):
                graph.raw_cuda_graph()
            with raises(ag.UnsupportedError):
                graph.raw_cuda_graph_exec()
        for empty in (self.graph(stream), self.graph(stream, keep_graph=True)):
            with raises(ag.GraphStateError, match=r"^Graph\.raw_cuda_graph\(\): nothing was captured"):
                empty.raw_cuda_graph()
            with raises(ag.GraphStateError, match=r"^Graph\.raw_cuda_graph_exec\(\): nothing was captured"):
                empty.raw_cuda_graph_exec()

    def _kept(self) -> ag.Graph:
        stream, cell = self.stream(), self.cell()
        graph = self.captured(stream, cell, keep_graph=True)
        self._dump(graph)
        return graph

    def _dump(self, graph: ag.Graph) -> None:
        """Dump a graph; skip the test if the backend does not have the capability for it."""
        with _folder() as folder:
            try:
                graph.debug_dump(folder / "graph.dot")
            except ag.UnsupportedError as error:
                refused = error
            else:
                return
            assert refused.capability == Capability.NODES
            assert not self.has(Capability.NODES)
            assert os.listdir(folder) == []
            raise SkipTest(str(refused))


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
