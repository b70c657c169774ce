"""Captures: how they begin and end, by hand, on a side stream or in a mode, and what they record."""

from __future__ import annotations

import random
import time
import warnings
from functools import partial
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Backend, Capability, CaptureStatus

from .._case import Case, applied, expect, only_if, raises


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
        """The nodes of `progress` do not count: a capture of no others is empty."""
        stream, cell = self.stream(), self.cell()
        self._num_nodes(self.captured(stream, cell))
        for pieces in (0, 1):
            graph = self.graph(stream, observe=ag.progress())
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
            assert not self.has(Capability.NODES), "`capture_info` has to count nodes that are listed"
            raise SkipTest(str(error)) from error


def undeclared(backend: Backend) -> list[str]:
    """Return the known capture modes that a backend does not have."""
    return sorted({"global", "thread_local", "relaxed"}.difference(backend.capture_modes))


class BeginRules(Case):
    """`capture_begin`, `capture_end` and `reset`, `accelerator_graph.graph`, and the capture modes."""

    def test_capture_by_hand(self) -> None:
        """The stream is current and captured from `capture_begin` to `capture_end`, and not afterwards."""
        stream, cell, graph = self.setup()
        assert not ag.is_current_stream_capturing()
        graph.capture_begin()
        assert ag.current_stream() is stream
        assert ag.is_current_stream_capturing()
        self.enqueue(stream, cell)
        graph.capture_end()
        assert self.status(stream) is CaptureStatus.NONE
        assert not ag.is_current_stream_capturing()
        assert self.replayed(graph, cell) == applied(1)

    def test_reset_abandons_a_capture(self) -> None:
        """`reset` in the middle of a capture ends it and discards the recorded work."""
        stream, cell, graph = self.setup_capturing()
        graph.reset()
        self.works(stream, graph)
        assert self.read(cell) == 0

    def test_reset_makes_any_graph_usable_again(self) -> None:
        """After `reset`, once or twice, from any state, a graph captures and replays other work."""
        stream, cell = self.stream(), self.cell()
        for keep in (False, True):
            for begun, ended, replayed in ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)):
                graph = self.graph(stream, keep_graph=keep)
                if begun:
                    graph.capture_begin()
                    self.enqueue(stream, cell, 1, 0)
                if ended:
                    graph.capture_end()
                if replayed:
                    graph.replay()
                graph.reset()
                graph.reset()
                assert graph.stream is stream
                self.works(stream, graph)
        assert self.read(cell) == 0

    def test_capture_again_after_reset_replays_the_new_work(self) -> None:
        """A graph that is reset and captured again replays the latest capture, and nothing else."""
        stream, cell, graph = self.setup()
        wanted = 0
        for number in range(20):
            with graph:
                self.enqueue(stream, cell, 3, number)
            graph.replay()
            graph.replay()
            wanted = applied(2, 3, number, wanted)
            graph.reset()
        assert self.read(cell) == wanted

    def test_capture_without_a_stream_is_refused(self) -> None:
        """If no stream is named and none is current, `capture_begin` raises and says what to do."""
        graph = self.graph(backend=self.backend.name)
        assert expect(ag.CaptureError, graph.capture_begin).reason == "default_stream"
        assert graph.state == "empty"

    def test_stream_that_belongs_to_another_backend_is_refused(self) -> None:
        """A stream together with the name of another backend is a ValueError, or that backend's own error."""
        stream = self.stream()
        other = next(name for name in ag.backends.names() if name != self.backend.name)
        expect((ValueError, ag.errors.BackendError), ag.Graph, stream=stream, backend=other)

    def test_side_stream_is_made_and_made_current(self) -> None:
        """A new stream is captured and current; afterwards the former one is, and replays go there."""
        stream, cell, graph = self.stream(), self.cell(), self.graph()
        with stream:
            with ag.graph(graph) as entered:
                assert entered is graph
                side = ag.current_stream()
                assert side is not stream
                assert (side.backend, side.device) == (stream.backend, stream.device)
                assert self.status(side) is CaptureStatus.ACTIVE
                assert self.status(stream) is CaptureStatus.NONE
                self.enqueue(side, cell, 3, 0)
            assert ag.current_stream() is stream
        assert graph.stream is stream
        self.enqueue_slow(stream, cell, 1, 5)
        graph.replay()
        self.enqueue(stream, cell, 1, 1)
        assert self.read(cell) == 16

    def test_side_stream_waits_for_the_current_one(self) -> None:
        """The capture begins after the work on the former current stream is done."""
        stream, cell, other, graph = self.stream(), self.cell(), self.cell(), self.graph()
        with stream:
            self.enqueue_slow(stream, cell, times=5)
            with ag.graph(graph):
                self._enqueue_on_current(other)
        assert self.used.read(cell) == applied(5)
        assert self.replayed(graph, other) == applied(1)

    def test_without_a_current_stream_the_side_stream_is_the_graphs(self) -> None:
        """If no stream is current, replays go to the new stream."""
        cell, graph = self.cell(), self.graph(backend=self.backend.name)
        with ag.graph(graph):
            side = ag.current_stream()
            self._enqueue_on_current(cell)
        assert graph.stream is side
        graph.replay()
        assert graph.stream is not None
        graph.stream.synchronize()
        assert self.read(cell) == applied(1)

    def test_named_stream_is_captured(self) -> None:
        """A stream that `graph` or the graph was given is captured itself."""
        stream, other, cell = self.stream(), self.stream(), self.cell()
        given, own, moved = self.graph(), self.graph(stream), self.graph(stream)
        for context, captured in (
            (ag.graph(given, stream=stream), stream),
            (ag.graph(own), stream),
            (ag.graph(moved, stream=other), other),
        ):
            with context:
                assert ag.current_stream() is captured
                self.enqueue(captured, cell)
        given.replay()
        own.replay()
        stream.synchronize()
        assert self.replayed(moved, cell) == applied(3)
        assert (given.stream, own.stream) == (stream, stream)

    def test_arguments_are_passed_on(self) -> None:
        """The pool passed to `graph` overrides the graph's own; None does not."""
        stream, cell = self.stream(), self.cell()
        own, given = ag.graph_pool_handle(), ag.graph_pool_handle()
        for pool, wanted in ((given, given), (None, own)):
            graph = self.graph(stream, pool=own)
            with ag.graph(graph, pool=pool, capture_error_mode="default", prepare=False):
                self.enqueue(stream, cell)
            assert graph.pool() == wanted

    def test_failure_on_a_side_stream_leaves_no_trace(self) -> None:
        """If the body raises, the current stream is the same as before, and the graph is empty and usable."""
        stream, cell = self.stream(), self.cell()
        graph, error = self.graph(), ValueError("in the body")
        with stream:
            with raises(ValueError) as caught, ag.graph(graph):
                self._enqueue_on_current(cell)
                raise error
            assert ag.current_stream() is stream
            assert graph.state == "empty"
            assert caught.error is error
            self.works(stream, graph)
        assert self.read(cell) == 0

    def test_wrong_arguments_of_graph_are_refused(self) -> None:
        """A wrong graph, stream, pool or mode is refused before anything begins."""
        stream, _, graph = self.setup()
        expect(TypeError, ag.graph, "graph")
        expect(TypeError, ag.graph, graph, stream="stream")
        expect(ValueError, ag.graph, graph, pool=(1, 1))
        expect(ValueError, ag.graph, graph, capture_error_mode="nonsense")
        with raises(ag.GraphStateError), graph, ag.graph(graph):
            raise AssertionError("the body must not run")
        self.works(stream, graph)

    def _enqueue_on_current(self, cell: object) -> None:
        stream = ag.current_stream()
        self.enqueue(stream, cell)

    def test_default_mode_works(self) -> None:
        """The mode "default", passed in any way, and each of `capture_modes` capture a graph that replays."""
        stream, cell, graph = self.setup()
        graph.capture_error_mode = "default"
        graph.capture_begin(capture_error_mode="default")
        self.enqueue(stream, cell)
        graph.capture_end()
        assert self.replayed(graph, cell) == applied(1)
        for runs, mode in enumerate(self.modes(), 2):
            graph = self.captured(stream, cell, capture_error_mode=mode)
            assert graph.capture_error_mode == mode
            assert self.replayed(graph, cell) == applied(runs)

    @only_if(undeclared, "has every capture mode")
    def test_undeclared_mode_is_refused_before_anything_begins(self) -> None:
        """A mode that the backend does not have is an `UnsupportedError`, and no capture begins."""
        stream = self.stream()
        for mode in undeclared(self.backend):
            graph = self.graph(stream, capture_error_mode=mode)
            expect(ag.UnsupportedError, graph.capture_begin, match=mode)
            assert graph.state == "empty"
            assert self.status(stream) is CaptureStatus.NONE
            expect(ag.UnsupportedError, graph.__enter__, match=mode)
            graph.capture_error_mode = "default"
            self.works(stream, graph)

    @only_if(undeclared, "has every capture mode")
    def test_mode_of_capture_begin_wins(self) -> None:
        """The mode passed to `capture_begin` overrides the constructor's, for that capture."""
        mode = undeclared(self.backend)[0]
        stream, cell, graph = self.setup(capture_error_mode=mode)
        graph.capture_begin(capture_error_mode="default")
        self.enqueue(stream, cell)
        graph.capture_end()
        assert self.replayed(graph, cell) == applied(1)
        assert graph.capture_error_mode == mode
        expect(ag.UnsupportedError, self.graph(stream).capture_begin, capture_error_mode=mode)

    def test_nonsense_mode_is_refused_where_it_is_given(self) -> None:
        """An unknown mode is an immediate ValueError, and one that is not a string a TypeError."""
        stream, _, graph = self.setup()
        for mode in ("", "GLOBAL", "nonsense", 0, b"global"):
            kind = ValueError if isinstance(mode, str) else TypeError
            for call in (ag.Graph, graph.capture_begin, partial(ag.graph, graph)):
                expect(kind, call, capture_error_mode=mode, match="capture_error_mode")
            expect(kind, setattr, graph, "capture_error_mode", mode, match="capture_error_mode")
        expect(TypeError, setattr, graph, "capture_error_mode", None, match="capture_error_mode")
        assert graph.capture_error_mode == "default"
        self.works(stream, graph)
