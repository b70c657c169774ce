"""Forks and joins: one capture over several streams."""

from __future__ import annotations

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, CaptureStatus

from .._case import Case, applied, raises


class ForkRules(Case):
    """Streams that wait for a captured one take part in its capture, and have to be joined."""

    def test_fork_and_join_keeps_the_order(self) -> None:
        """Work that is ordered by `wait` during the capture is ordered so in every replay."""
        first, second, cell = self._fork()
        graph = self.graph(first)
        with graph:
            self.enqueue_slow(first, cell, 1, 5)
            second.wait(first)
            assert self.status(second) is CaptureStatus.ACTIVE
            self.enqueue_slow(second, cell, 3, 0)
            first.wait(second)
            self.enqueue(first, cell, 1, 1)
        assert self.status(second) is CaptureStatus.NONE
        assert self.read(cell) == 0
        for _ in range(3):
            graph.replay()
        wanted = 0
        for _ in range(3):
            wanted = (wanted + 5) * 3 + 1
        assert self.read(cell) == wanted

    def test_branches_are_all_replayed(self) -> None:
        """Branches of a fork are all there in every replay, and the join comes after them."""
        first, second, left = self._fork()
        third, middle, right = self.stream(), self.cell(), self.cell()
        graph = self.graph(first)
        with graph:
            for stream in (second, third):
                stream.wait(first)
            for stream, cell in ((first, left), (second, middle), (third, right)):
                self.enqueue_slow(stream, cell)
                self.enqueue(stream, cell)
            for stream in (second, third):
                first.wait(stream)
            for cell in (left, middle, right):
                self.enqueue(first, cell, 2, 0)
        wanted = 0
        for _ in range(4):
            graph.replay()
            wanted = applied(2, start=wanted) * 2 % 2**32
        assert [self.read(cell) for cell in (left, middle, right)] == [wanted] * 3

    def test_event_links_as_a_stream_does(self) -> None:
        """Waiting for an event from a capturing stream takes part in the capture, up to that event."""
        first, second, cell = self._fork()
        graph = self.graph(first)
        with graph:
            self.enqueue_slow(first, cell, 1, 5)
            event = first.record()
            second.wait(event)
            self.enqueue(second, cell, 3, 0)
            first.wait(second.record())
        graph.replay()
        assert self.read(cell) == 15

    def test_unjoined_fork_is_a_capture_error(self) -> None:
        """A capture that ends before all forked work was joined fails with reason "unjoined"."""
        first, second, cell = self._fork()
        graph = self.graph(first)
        with raises(ag.CaptureError) as caught, graph:
            self.enqueue(first, cell)
            second.wait(first)
            self.enqueue(second, cell)
        assert caught.error.reason == "unjoined"
        self._both_work(first, second, graph)
        assert self.read(cell) == 0

    def test_exception_after_a_fork_frees_all_streams(self) -> None:
        """If the body raises while work is forked, all streams that took part are ordinary ones again."""
        first, second, cell = self._fork()
        graph = self.graph(first)
        with raises(ValueError), graph:
            second.wait(first)
            self.enqueue(second, cell)
            raise ValueError
        self._both_work(first, second, graph)
        assert self.read(cell) == 0

    def test_reset_after_a_fork_frees_all_streams(self) -> None:
        """`reset` in the middle of a forked capture frees all streams that took part."""
        first, second, cell = self._fork()
        graph = self.graph(first)
        graph.capture_begin()
        second.wait(first)
        self.enqueue(second, cell)
        graph.reset()
        self._both_work(first, second, graph)
        assert self.read(cell) == 0

    def test_forked_stream_can_be_captured_afterwards(self) -> None:
        """A stream that took part in a capture can be captured itself when that has ended."""
        first, second, cell = self._fork()
        graph, other = self.graph(first), self.graph(second)
        with graph:
            second.wait(first)
            self.enqueue(second, cell)
            first.wait(second)
        with other:
            self.enqueue(second, cell)
        graph.replay()
        second.wait(first)
        other.replay()
        assert self.read(cell) == applied(2)

    def _fork(self) -> tuple[ag.Stream, ag.Stream, object]:
        self.needs(Capability.EVENTS)
        return self.stream(), self.stream(), self.cell()

    def _both_work(self, first: ag.Stream, second: ag.Stream, graph: ag.Graph) -> None:
        assert self.status(first) is CaptureStatus.NONE
        assert self.status(second) is CaptureStatus.NONE
        self.works(first, graph)
        self.works(second, self.graph(second))
