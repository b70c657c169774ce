"""Forks and joins: one capture over several streams."""

from __future__ import annotations

from collections.abc import Callable

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, CaptureStatus

from .._case import Case, applied, expect, needs, only_if, raises
from .._programs.program import forks_and_joins
from .._programs.run import report, run


@needs(Capability.EVENTS)
class ForkRules(Case):
    """Streams that wait for a captured one take part in its capture, and must be joined."""

    def test_fork_and_join_keeps_the_order(self) -> None:
        """Work that `wait` orders, for a stream or an event, has the same order in every replay."""
        first, second, cell = self._fork()
        marks: list[Callable[[ag.Stream], object]] = [lambda stream: stream, ag.Stream.record]
        for before, mark in zip((0, 64), marks, strict=True):
            with self.graph(first) as graph:
                self.enqueue_slow(first, cell, 1, 5)
                second.wait(mark(first))
                assert self.status(second) is CaptureStatus.ACTIVE
                self.enqueue_slow(second, cell, 3, 0)
                first.wait(mark(second))
                self.enqueue(first, cell, 1, 1)
            assert self.status(second) is CaptureStatus.NONE
            assert self.read(cell) == before
            assert self.replayed(graph, cell, times=2) == ((before + 5) * 3 + 1 + 5) * 3 + 1

    def test_branches_are_all_replayed(self) -> None:
        """Every replay runs all branches of a fork, and the join after them."""
        first, second, left = self._fork()
        third, middle, right = self.stream(), self.cell(), self.cell()
        with self.graph(first) as graph:
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

    def test_forks_may_wait_for_each_other(self) -> None:
        """Two forks that wait for each other, and again for the captured stream, keep their order."""
        first, second, third, cell = *self._some(3), self.cell()
        with self.graph(first) as graph:
            self.enqueue_slow(first, cell, 1, 5)
            second.wait(first)
            third.wait(first)
            self.enqueue_slow(third, cell, 3, 0)
            second.wait(third)
            self.enqueue_slow(second, cell, 1, 2)
            second.wait(first)
            third.wait(second)
            self.enqueue_slow(third, cell, 2, 0)
            for stream in (second, third):
                first.wait(stream)
            self.enqueue(first, cell, 1, 1)
        self.replays(graph, cell, lambda value: ((value + 5) * 3 + 2) * 2 + 1)

    def test_stream_may_wait_for_itself(self) -> None:
        """In a capture, a stream can wait for itself or for its own earlier event, without any effect."""
        first, second, cell = self._fork()
        with self.graph(first) as graph:
            self.enqueue(first, cell, 1, 5)
            first.wait(first)
            second.wait(first)
            second.wait(second)
            event = second.record()
            self.enqueue_slow(second, cell, 3, 0)
            second.wait(event)
            first.wait(second)
            first.wait(event)
            self.enqueue(first, cell, 1, 1)
        self.replays(graph, cell, lambda value: (value + 5) * 3 + 1)

    def test_fork_of_a_fork_is_joined_to_its_fork(self) -> None:
        """A fork can have a fork of its own, wait for it, and then be joined."""
        first, second, third, cell = *self._some(3), self.cell()
        with self.graph(first) as graph:
            self.enqueue_slow(first, cell, 1, 5)
            second.wait(first)
            third.wait(second)
            self.enqueue_slow(third, cell, 3, 0)
            second.wait(third)
            self.enqueue_slow(second, cell, 1, 2)
            first.wait(second)
            self.enqueue(first, cell, 2, 0)
        self.replays(graph, cell, lambda value: ((value + 5) * 3 + 2) * 2)

    def test_pipeline_over_two_forks(self) -> None:
        """Forks that take turns on one piece of work, layer by layer, keep their order."""
        first, second, third, cell = *self._some(3), self.cell()
        with self.graph(first) as graph:
            self.enqueue(first, cell, 1, 5)
            second.wait(first)
            third.wait(first)
            for _ in range(3):
                third.wait(second)
                self.enqueue_slow(third, cell, 3, 0)
                second.wait(third)
                self.enqueue_slow(second, cell, 1, 2)
            first.wait(third)
            first.wait(second)
            self.enqueue(first, cell, 1, 1)
        self.replays(graph, cell, lambda value: (((value + 5) * 3 + 2) * 3 + 2) * 3 + 3)

    def test_random_forks_and_joins_keep_their_order(self) -> None:
        """With any order of forks, joins and work, replays give the result of the same work in sequence."""
        for seed in range(12):
            code = forks_and_joins(self.backend.name, seed)
            try:
                run(self, code)
            except Exception as error:
                raise AssertionError(report(self.used, code, error)) from error

    @only_if(lambda backend: backend.cuda_like, "has no null stream")
    def test_null_stream_takes_no_part_in_a_capture(self) -> None:
        """If the null stream waits for a capture, or is entered in it, that is an error without a trace."""
        stream, cell, graph = self.setup()
        null = self.graph(0, backend=self.backend.name).stream
        assert null is not None
        ways: list[Callable[[], object]] = [
            lambda: null.wait(stream),
            lambda: null.wait(stream.record()),
            null.__enter__,
        ]
        for way in ways:
            with raises(ag.CaptureError, ag.DriverError), graph:
                self.enqueue(stream, cell)
                raise expect((ag.CaptureError, ag.DriverError), way)
            assert self.read(cell) == 0
        self.works(stream, graph)

    def test_unjoined_fork_is_a_capture_error(self) -> None:
        """A capture that ends before all forked work is joined fails with reason "unjoined"."""
        first, second, cell = self._fork()
        with raises(ag.CaptureError) as caught, self.graph(first) as graph:
            self.enqueue(first, cell)
            second.wait(first)
            self.enqueue(second, cell)
        assert caught.error.reason == "unjoined"
        self._both_work(first, second, graph, cell)

    def test_exception_after_a_fork_frees_all_streams(self) -> None:
        """If the body raises while work is forked, all streams that took part stop capturing."""
        first, second, cell = self._fork()
        with raises(ValueError), self.graph(first) as graph:
            second.wait(first)
            self.enqueue(second, cell)
            raise ValueError
        self._both_work(first, second, graph, cell)

    def test_reset_after_a_fork_frees_all_streams(self) -> None:
        """`reset` in the middle of a forked capture frees all streams that took part."""
        first, second, cell = self._fork()
        graph = self.graph(first)
        graph.capture_begin()
        second.wait(first)
        self.enqueue(second, cell)
        graph.reset()
        self._both_work(first, second, graph, cell)

    def test_forked_stream_can_be_captured_afterwards(self) -> None:
        """A stream that took part in a capture can be captured itself after that capture has ended."""
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
        assert self.replayed(other, cell) == applied(2)

    def _fork(self) -> tuple[ag.Stream, ag.Stream, object]:
        return *self._some(2), self.cell()

    def _some(self, count: int) -> tuple[ag.Stream, ...]:
        return tuple(self.stream() for _ in range(count))

    def _both_work(self, first: ag.Stream, second: ag.Stream, graph: ag.Graph, cell: object) -> None:
        """Check that two streams work after a capture of both, and that nothing was done to a cell."""
        self.works(first, graph)
        self.works(second, self.graph(second))
        assert self.read(cell) == 0
