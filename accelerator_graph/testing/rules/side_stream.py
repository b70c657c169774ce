"""`accelerator_graph.graph`: capturing on a side stream."""

from __future__ import annotations

import accelerator_graph as ag
from accelerator_graph.backends.base import CaptureStatus

from .._case import Case, applied, raises


class SideStreamRules(Case):
    """``with graph(g)`` makes a stream beside the current one, unless a stream is named."""

    def test_side_stream_is_made_and_made_current(self) -> None:
        """A new stream is captured and current; afterwards the former one is, and replays go there."""
        stream, cell = self.stream(), self.cell()
        graph = self.graph()
        with stream:
            with ag.graph(graph) as entered:
                assert entered is graph
                side = ag.current_stream()
                assert side is not None
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
        stream, cell, other = self.stream(), self.cell(), self.cell()
        graph = self.graph()
        with stream:
            for _ in range(5):
                self.enqueue_slow(stream, cell)
            with ag.graph(graph):
                self._enqueue_on_current(other)
        assert self.used.read(cell) == applied(5)
        graph.replay()
        assert self.read(other) == applied(1)

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
        with ag.graph(self.graph(), stream=stream) as given:
            assert ag.current_stream() is stream
            self.enqueue(stream, cell)
        with ag.graph(self.graph(stream)) as own:
            assert ag.current_stream() is stream
            self.enqueue(stream, cell)
        with ag.graph(self.graph(stream), stream=other) as moved:
            assert ag.current_stream() is other
            self.enqueue(other, cell)
        given.replay()
        own.replay()
        stream.synchronize()
        moved.replay()
        assert self.read(cell) == applied(3)
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
        stream = self.stream()
        graph = self.graph(stream)
        with raises(TypeError):
            ag.graph("graph")  # type: ignore[arg-type]
        with raises(TypeError):
            ag.graph(graph, stream="stream")
        with raises(ValueError):
            ag.graph(graph, pool=(1, 1))
        with raises(ValueError):
            ag.graph(graph, capture_error_mode="nonsense")
        with raises(ag.GraphStateError), graph, ag.graph(graph):
            raise AssertionError("the body must not run")
        self.works(stream, graph)

    def _enqueue_on_current(self, cell: object) -> None:
        stream = ag.current_stream()
        assert stream is not None
        self.enqueue(stream, cell)
