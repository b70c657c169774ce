"""`capture_begin`, `capture_end` and `reset`, called by hand."""

from __future__ import annotations

from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import CaptureStatus

from .._case import Case, applied, raises


class ByHandRules(Case):
    """Without ``with``, the caller must call `capture_end` or `reset`."""

    def test_capture_by_hand(self) -> None:
        """The stream is current and captured from `capture_begin` to `capture_end`, and not afterwards."""
        stream, cell = self.stream(), self.cell()
        graph = self.graph(stream)
        assert not ag.is_current_stream_capturing()
        graph.capture_begin()
        assert ag.current_stream() is stream
        assert ag.is_current_stream_capturing()
        self.enqueue(stream, cell)
        graph.capture_end()
        assert self.status(stream) is CaptureStatus.NONE
        assert not ag.is_current_stream_capturing()
        graph.replay()
        assert self.read(cell) == applied(1)

    def test_reset_abandons_a_capture(self) -> None:
        """`reset` in the middle of a capture ends it and discards the recorded work."""
        stream, cell = self.stream(), self.cell()
        graph = self.graph(stream)
        graph.capture_begin()
        self.enqueue(stream, cell)
        graph.reset()
        self.works(stream, graph)
        assert self.read(cell) == 0

    def test_reset_twice_is_harmless(self) -> None:
        """`reset` on an empty graph does nothing, however often."""
        stream, cell = self.stream(), self.cell()
        graph = self.graph(stream)
        graph.reset()
        with graph:
            self.enqueue(stream, cell)
        graph.reset()
        graph.reset()
        self.works(stream, graph)

    def test_reset_makes_any_graph_usable_again(self) -> None:
        """After `reset`, from any state, a graph captures and replays other work."""
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
                assert graph.stream is stream
                self.works(stream, graph)
        assert self.read(cell) == 0

    def test_capture_again_after_reset_replays_the_new_work(self) -> None:
        """A graph that is reset and captured again replays the latest capture, and nothing else."""
        stream, cell = self.stream(), self.cell()
        graph = self.graph(stream)
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
        if self.backend.current_stream() is not None:
            raise SkipTest(f"backend {self.backend.name!r} always has a current stream")
        graph = self.graph(backend=self.backend.name)
        with raises(ag.CaptureError) as caught:
            graph.capture_begin()
        assert caught.error.reason == "default_stream"
        assert graph.state == "empty"

    def test_stream_that_belongs_to_another_backend_is_refused(self) -> None:
        """A stream together with the name of another backend is a ValueError, or that backend's own error."""
        stream = self.stream()
        other = next(name for name in ag.backends.names() if name != self.backend.name)
        with raises(ValueError, ag.errors.BackendError):
            ag.Graph(stream=stream, backend=other)
