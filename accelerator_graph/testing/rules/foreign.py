"""Several captures at once, and captures that the library did not begin."""

from __future__ import annotations

from collections.abc import Callable

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, CaptureStatus

from .._case import Case, applied, expect, needs


class ForeignRules(Case):
    """The library never touches somebody else's capture."""

    def test_second_graph_on_a_capturing_stream_is_refused(self) -> None:
        """Capturing a stream that is capturing is a `CaptureError`; the first capture goes on."""
        stream = self.stream()
        second = self.graph(stream)
        with self.undisturbed_capture(stream):
            by_hand = expect(ag.CaptureError, second.capture_begin)
            expect(ag.CaptureError, second.__enter__)
            expect(ag.CaptureError, ag.graph(second, stream=stream).__enter__)
            assert by_hand.reason == "foreign_capture"
            assert "a graph of this thread is capturing the stream" in str(by_hand)
            assert second.state == "empty"
            assert ag.current_stream() is stream
        self.works(stream, second)

    def test_capture_that_is_not_the_librarys_is_left_alone(self) -> None:
        """A stream that somebody captures through the runtime is refused; their capture stays valid."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        graph = self.graph(stream)
        token = self.begin(stream)
        try:
            self.enqueue(stream, cell)
            assert expect(ag.CaptureError, graph.capture_begin).reason == "foreign_capture"
            assert self.status(stream) is CaptureStatus.ACTIVE
            self.enqueue(stream, cell)
        finally:
            theirs = backend.capture_end(token)
        executable = backend.instantiate(theirs)
        backend.replay(executable, stream.native)
        assert self.read(cell) == applied(2)
        backend.destroy_executable(executable)
        backend.destroy_graph(theirs)
        self.works(stream, graph)

    def test_replay_onto_a_capturing_stream(self) -> None:
        """A replay onto a capturing stream is recorded with "child_graphs", else refused."""
        stream, home, cell, other = self.stream(), self.stream(), self.cell(), self.cell()
        inner = self.captured(home, cell)
        ways: list[Callable[[], None]] = [lambda: inner.replay(stream), inner.bind(stream)]
        for replay in ways:
            outer = self.graph(stream)
            before = self.read(cell), self.read(other)
            with outer:
                self.enqueue(stream, other)
                if self.has(Capability.CHILD_GRAPHS):
                    replay()
                else:
                    expect(ag.CaptureError, replay)
                assert self.status(stream) is CaptureStatus.ACTIVE
                self.enqueue(stream, other)
            assert (self.read(cell), self.read(other)) == before
            outer.replay()
            outer.replay()
            runs = 2 * self.has(Capability.CHILD_GRAPHS)
            assert self.read(cell) == applied(runs, start=before[0])
            assert self.read(other) == applied(4, start=before[1])

    def test_replay_onto_a_stream_that_somebody_else_captures(self) -> None:
        """A replay into somebody else's capture is recorded or refused; it never runs at once."""
        backend, stream, home, cell = self.backend, self.stream(), self.stream(), self.cell()
        graph = self.captured(stream, cell)
        elsewhere = self.captured(home, cell)
        onto: list[Callable[[], None]] = [lambda: elsewhere.replay(stream), elsewhere.bind(stream)]
        for runs, replay in enumerate([graph.replay, *onto]):
            replay()
            replay()
            assert self.read(cell) == applied(3 * runs + 2)
            token = self.begin(stream)
            try:
                if self.has(Capability.CHILD_GRAPHS):
                    replay()
                else:
                    expect((ag.CaptureError, ag.DriverError), replay)
            finally:
                backend.capture_abandon(token)
            assert self.read(cell) == applied(3 * runs + 2)
            replay()
            assert self.read(cell) == applied(3 * runs + 3)

    @needs(Capability.CHILD_GRAPHS)
    def test_recorded_replay_outlives_its_graph(self) -> None:
        """With "child_graphs", a recorded replay still works after its graph is reset."""
        stream, home, cell = self.stream(), self.stream(), self.cell()
        inner, outer = self.captured(home, cell), self.graph(stream)
        with outer:
            inner.replay(stream)
        inner.reset()
        del inner
        self.collect()
        assert self.replayed(outer, cell, times=2) == applied(2)

    @needs(Capability.CHILD_GRAPHS)
    def test_recorded_replay_keeps_its_place(self) -> None:
        """With "child_graphs", a recorded replay runs after the work before it, and before later work."""
        stream, home, cell = self.stream(), self.stream(), self.cell()
        inner = self.captured(home, cell, 3, 0)
        ways: list[Callable[[], None]] = [lambda: inner.replay(stream), inner.bind(stream)]
        for replay in ways:
            with self.graph(stream) as outer:
                self.enqueue_slow(stream, cell, 1, 5)
                replay()
                self.enqueue(stream, cell, 1, 1)
            before = self.read(cell)
            assert self.replayed(outer, cell) == (before + 5) * 3 + 1

    @needs(Capability.CHILD_GRAPHS)
    def test_recorded_replays_nest(self) -> None:
        """With "child_graphs", a recorded replay runs what was recorded by replays in its graph, too."""
        stream, home, cell = self.stream(), self.stream(), self.cell()
        inner = self.captured(home, cell, 1, 5)
        with self.graph(home) as middle:
            inner.replay(home)
            self.enqueue(home, cell, 3, 0)
            inner.replay(home)
        with self.graph(stream) as outer:
            middle.replay(stream)
        assert self.replayed(outer, cell, times=2) == (20 + 5) * 3 + 5

    @needs(Capability.CHILD_GRAPHS)
    def test_recorded_replay_does_the_work_of_its_time(self) -> None:
        """With "child_graphs", a recorded replay does what its graph did then, even after an update of it."""
        stream, home, cell = self.stream(), self.stream(), self.cell()
        inner, other = (self.captured(home, cell, 1, b, keep_graph=True) for b in (1, 10))
        with self.graph(stream) as outer:
            inner.replay(stream)
        inner.update(other)
        assert self.replayed(outer, cell) == 1
        assert self.replayed(inner, cell) == 11

    def test_bind_onto_a_capturing_stream_leaves_the_capture_valid(self) -> None:
        """`bind` onto a capturing stream enqueues nothing; its callable works after the capture has ended."""
        stream, (_, cell, inner) = self.stream(), self.setup_captured()
        with self.undisturbed_capture(stream):
            launch = inner.bind(stream)
        assert self.read(cell) == 0
        launch()
        assert self.read(cell) == applied(1)

    def test_replay_beside_a_capture(self) -> None:
        """During a capture, a replay on another stream runs at once and does not disturb the capture."""
        _, cell, ready = self.setup_captured()
        with self.undisturbed_capture():
            ready.replay()
        assert self.read(cell) == applied(1)

    def test_captures_nest_on_different_streams(self) -> None:
        """One thread can capture two streams at once; each graph has its own stream's work."""
        first, second, cell, other = self.stream(), self.stream(), self.cell(), self.cell()
        outer, inner = self.graph(first), self.graph(second, capture_error_mode="default")
        outer.capture_begin()
        self.enqueue(first, cell)
        inner.capture_begin()
        self.enqueue(second, other)
        self.enqueue(first, cell)
        assert ag.current_stream() is second
        inner.capture_end()
        assert ag.current_stream() is first
        self.enqueue(first, cell)
        outer.capture_end()
        assert (self.read(cell), self.read(other)) == (0, 0)
        outer.replay()
        assert (self.read(cell), self.read(other)) == (applied(3), 0)
        inner.replay()
        assert (self.read(cell), self.read(other)) == (applied(3), applied(1))

    def test_entering_a_stream_of_another_capture_joins_nothing(self) -> None:
        """A stream with a capture of its own can be entered inside another capture."""
        first, second, cell, other = self.stream(), self.stream(), self.cell(), self.cell()
        outer, inner = self.graph(first), self.graph(second)
        with outer:
            with inner:
                with first:
                    assert ag.current_stream() is first
                    self.enqueue(first, cell)
                self.enqueue(second, other)
            self.enqueue(first, cell)
        outer.replay()
        inner.replay()
        assert (self.read(cell), self.read(other)) == (applied(2), applied(1))

    def test_one_pool_takes_one_capture_at_a_time(self) -> None:
        """A capture into a pool that another thread is capturing into is refused before it begins."""
        other, pool = self.stream(), ag.graph_pool_handle()
        second = self.graph(other, pool=pool)

        def try_second() -> None:
            expect(ag.GraphStateError, second.capture_begin, match="pool")
            assert second.state == "empty"
            assert ag.current_stream(required=False) is None

        with self.undisturbed_capture(pool=pool) as first:
            self.in_thread(try_second)
            assert self.status(other) is CaptureStatus.NONE
        self.works(other, second)
        assert second.pool() == first.pool() == pool

    def test_two_pools_take_two_captures_at_once(self) -> None:
        """Captures of two threads into different pools can overlap."""
        stream, cell, first = self.setup()
        other = self.stream()
        with first:
            second = self.in_thread(lambda: self.captured(other, cell, pool=ag.graph_pool_handle()))
            self.enqueue(stream, cell)
        assert second.pool() != first.pool()
        assert self.replayed(second, cell) == applied(1)
        assert self.replayed(first, cell) == applied(2)
