"""Captures that succeed: the recorded work, and its replays."""

from __future__ import annotations

import random
import time
import warnings
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import Case, applied, raises


class CaptureRules(Case):
    """Captures that succeed."""

    def test_capturing_does_not_run_the_work(self) -> None:
        """Work that is enqueued during a capture is recorded, and does not run before a replay."""
        stream, cell, graph = self.setup()
        with graph:
            self.enqueue(stream, cell, times=3)
        assert graph.state == "ready"
        assert self.read(cell) == 0

    def test_each_replay_runs_the_work_once(self) -> None:
        """One replay runs the work once, n replays run it n times."""
        _, cell, graph = self.setup_captured()
        assert self.replayed(graph, cell) == applied(1)
        assert self.replayed(graph, cell, times=20) == applied(21)

    def test_replays_equal_the_eager_work(self) -> None:
        """A random sequence of work gives the same result replayed several times as eagerly."""
        for seed in range(5):
            chance = random.Random(seed)
            stream, cells, wanted = self.stream(), [self.cell() for _ in range(3)], [0, 0, 0]
            pieces = [
                (chance.randrange(3), chance.getrandbits(32), chance.getrandbits(32)) for _ in range(30)
            ]
            for which, a, b in pieces:
                self.enqueue(stream, cells[which], a, b)
            with self.graph(stream) as graph:
                for which, a, b in pieces:
                    self.enqueue(stream, cells[which], a, b)
            for _ in range(3):
                graph.replay()
            for which, a, b in pieces * 4:
                wanted[which] = applied(1, a, b, wanted[which])
            assert [self.read(cell) for cell in cells] == wanted, f"seed {seed}"

    def test_work_under_way_when_a_capture_begins_is_not_recorded(self) -> None:
        """Work that was enqueued before `capture_begin` runs once, even if it has not started by then."""
        stream, cell = self.stream(), self.cell()
        self.enqueue_slow(stream, cell, times=5)
        graph = self.graph(stream)
        graph.capture_begin()
        self.enqueue(stream, cell)
        time.sleep(0.02)  # the device has started some of it by now
        graph.capture_end()
        assert self.read(cell) == applied(5)
        assert self.replayed(graph, cell) == applied(6)

    def test_large_capture_is_whole(self) -> None:
        """A capture of a thousand pieces of work replays all of them, in order."""
        stream, cell, graph = self.setup()
        with graph:
            for number in range(1000):
                self.enqueue(stream, cell, 3, number)
        graph.replay()
        wanted = 0
        for number in range(1000):
            wanted = applied(1, 3, number, wanted)
        assert self.read(cell) == wanted

    def test_several_graphs_of_one_stream_are_independent(self) -> None:
        """Graphs captured one after another on one stream each replay their own work, in call order."""
        stream, cell = self.stream(), self.cell()
        first, second = self.captured(stream, cell, 1, 10), self.captured(stream, cell, 2, 0)
        for graph in (first, second, first, second, second):
            graph.replay()
        assert self.read(cell) == (10 * 2 + 10) * 4

    def test_num_nodes_counts_what_was_captured(self) -> None:
        """`num_nodes` is the number of pieces times `Work.nodes_per_piece`."""
        stream, cell, graph = self.stream(), self.cell(), self.graph(keep_graph=True)
        with stream, graph:
            self.enqueue(stream, cell, times=4)
        count = self._num_nodes(graph)
        per_piece = self.used.nodes_per_piece
        if per_piece is None:
            assert count > 0
        else:
            assert count == 4 * per_piece
        graph.instantiate()
        assert self._num_nodes(graph) == count

    def test_entering_returns_the_graph_and_makes_its_stream_current(self) -> None:
        """``with graph as g`` returns the graph; inside the block, its stream is the current one."""
        stream, graph = self.stream(), self.graph(backend=self.backend.name)
        with stream:
            with graph as entered:
                assert entered is graph
                assert graph.state == "capturing"
                assert graph.stream is stream
                assert ag.current_stream() is stream
                assert ag.is_current_stream_capturing()
                self.enqueue(stream, self.cell())
            assert not ag.is_current_stream_capturing()
            assert ag.current_stream() is stream
        assert (graph.backend, graph.device) == (self.backend.name, stream.device)

    def test_keep_graph_leaves_instantiating_for_later(self) -> None:
        """With ``keep_graph`` a graph has no executable until `instantiate`, `bind` or a replay."""
        stream, cell = self.stream(), self.cell()
        graphs = [self.captured(stream, cell, keep_graph=True) for _ in range(3)]
        assert [graph.state for graph in graphs] == ["captured"] * 3
        graphs[0].instantiate()
        graphs[1].bind()
        assert [graph.state for graph in graphs] == ["ready", "ready", "captured"]
        assert self.read(cell) == 0
        for graph in graphs:
            graph.replay()
            assert graph.state == "ready"
        assert self.read(cell) == applied(3)

    def test_a_kept_graph_can_be_instantiated_again(self) -> None:
        """`instantiate` on a kept graph makes a new executable that does the same work."""
        _, cell, graph = self.setup_captured(keep_graph=True)
        for _ in range(3):
            graph.instantiate()
            graph.replay()
        assert self.read(cell) == applied(3)

    def test_empty_capture_warns(self) -> None:
        """An empty capture issues an `EmptyGraphWarning` with backend and device, and can be replayed."""
        stream, graph = self.stream(), self.graph()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with stream, graph:
                pass
        self._num_nodes(graph)
        found = [each for each in caught if issubclass(each.category, ag.errors.EmptyGraphWarning)]
        assert len(found) == 1, f"{len(found)} times EmptyGraphWarning"
        (warning,) = found
        assert repr(self.backend.name) in str(warning.message)
        assert f"device {stream.device}" in str(warning.message)
        graph.replay()
        stream.synchronize()

    def test_empty_capture_with_markers_warns(self) -> None:
        """The nodes of `progress=True` do not count: a capture of no others is empty."""
        stream, cell = self.stream(), self.cell()
        self._num_nodes(self.captured(stream, cell))
        for pieces in (0, 1):
            graph = self.graph(stream, progress=True)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    with graph:
                        for _ in range(pieces):
                            self.enqueue(stream, cell)
                except ag.UnsupportedError as error:  # no markers on this backend
                    raise SkipTest(str(error)) from None
            found = [each for each in caught if issubclass(each.category, ag.errors.EmptyGraphWarning)]
            assert len(found) == 1 - pieces, f"{len(found)} warnings, {pieces} pieces of work"

    def test_empty_capture_as_an_error_leaves_the_graph_empty(self) -> None:
        """If warnings are errors, an empty capture raises, and leaves the graph empty and usable."""
        stream, _, graph = self.setup()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self.graph(stream) as counted:
                pass
            self._num_nodes(counted)
            warnings.simplefilter("error")
            with raises(ag.errors.EmptyGraphWarning), graph:
                pass
        self.works(stream, graph)

    def _num_nodes(self, graph: ag.Graph) -> int:
        try:
            return graph.num_nodes
        except ag.UnsupportedError as error:
            assert not self.has(Capability.NODES), "node_count must return a number if nodes can be listed"
            raise SkipTest(str(error)) from error
