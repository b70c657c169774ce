"""Several captures at once, captures that the library did not begin, and waits that no capture can record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, CaptureStatus

from .._case import Case, applied, expect, folder, needs, only_if

BROKEN = ("illegal_call", "invalidated", "foreign_capture", "other")
"""The possible reasons when an invalidated capture ends."""


class IsolationRules(Case):
    """A capture is disturbed by no work of others, and its streams can wait for its own events only."""

    def test_preparing_a_capture_disturbs_no_other(self) -> None:
        """Waiting for a stream inside `relaxed` invalidates no capture of this thread or of another."""
        second, cell, inner = self.stream(), self.cell(), self.graph()
        with self.undisturbed_capture(), ag.graph(inner, stream=second):
            self.enqueue(second, cell)
        inner.replay(second)
        assert self.read(cell) == applied(1)

    @only_if(lambda backend: not backend.destroy_disturbs_captures, "lets the library wait for captures")
    def test_destroying_disturbs_no_capture(self) -> None:
        """The ``destroy_`` methods leave captures alone, unless `destroy_disturbs_captures` is True."""
        backend, other = self.backend, self.stream()
        graph = self.recorded(other, self.cell())
        executable, doomed = backend.instantiate(graph), backend.create_stream(0)
        event = backend.record_event(other.native) if self.has(Capability.EVENTS) else None
        with self.undisturbed_capture():
            backend.destroy_executable(executable)
            backend.destroy_graph(graph)
            backend.destroy_stream(doomed)
            if event is not None:
                backend.destroy_event(event)

    def test_calls_about_other_objects_disturb_no_capture(self) -> None:
        """Work on another stream, and calls about another graph, leave a capture as it is."""
        backend, other, capturing = self.backend, self.stream(), self.stream()
        graph, like = (self.recorded(other, self.cell()) for _ in range(2))
        executable = backend.instantiate(graph)
        calls: list[tuple[Capability | None, str, Callable[[], object]]] = [
            (None, "work on another stream", lambda: self.enqueue(other, self.cell())),
            (None, "`as_stream`", lambda: backend.as_stream(other.native)),
            (None, "`create_stream`", lambda: backend.destroy_stream(backend.create_stream(other.device))),
            (Capability.TIMING, "a timed event", lambda: self._timed_event(other)),
            (Capability.NODES, "`nodes`", lambda: backend.nodes(graph)),
            (Capability.NODES, "`parameters`", lambda: backend.parameters(graph)),
            (Capability.SET_NODE, "`node_setter`", lambda: backend.node_setter(graph, executable, 0)),
            (Capability.UPDATE, "`update`", lambda: backend.update(executable, graph, like)),
            (None, "`replay`", lambda: backend.replay(executable, other.native)),
            (
                Capability.GRAPH_EVENTS,
                "`instantiate_timed`",
                lambda: backend.destroy_executable(backend.instantiate_timed(graph, (), ())[0]),
            ),
            (Capability.NODES, "`dump`", lambda: self._dumped(graph)),
        ]
        with self.undisturbed_capture(capturing):
            for capability, name, call in calls:
                if capability is None or self.has(capability):
                    call()
                    assert self.status(capturing) is CaptureStatus.ACTIVE, f"{name} has broken a capture"
        backend.destroy_executable(executable)
        for each in (graph, like):
            backend.destroy_graph(each)

    @needs(Capability.EVENTS)
    def test_wait_for_an_event_from_before_the_capture_is_refused(self) -> None:
        """A capturing stream can't wait for an event that another stream recorded before the capture."""
        outside, cell = self._outside()
        event = outside.record()
        self._refused_in_a_capture(lambda stream: stream.wait(event))
        assert self.read(cell) == applied(1)

    @needs(Capability.EVENTS)
    def test_wait_for_an_event_of_its_own_from_before_the_capture_is_refused(self) -> None:
        """A capturing stream can't wait for an event that it recorded before its capture."""
        stream = self._outside()[0]
        event = stream.record()
        self._refused_in_a_capture(lambda stream: stream.wait(event), stream)

    @needs(Capability.EVENTS)
    def test_wait_for_a_stream_outside_the_capture_is_refused(self) -> None:
        """A capturing stream can't wait for a stream that is not in its capture, idle or not."""
        outside, cell = self._outside()
        self._refused_in_a_capture(lambda stream: stream.wait(outside))
        self.enqueue_slow(outside, cell)
        self._refused_in_a_capture(lambda stream: stream.wait(outside))
        assert self.read(cell) == applied(2)
        assert self.status(outside) is CaptureStatus.NONE

    @needs(Capability.EVENTS)
    def test_forked_stream_can_not_wait_for_a_stream_outside(self) -> None:
        """A stream that was forked into a capture can't wait for a stream outside it."""
        outside, fork = self._outside()[0], self.stream()

        def wait(stream: ag.Stream) -> None:
            fork.wait(stream)
            try:
                fork.wait(outside)
            finally:
                if self.status(stream) is CaptureStatus.ACTIVE:
                    stream.wait(fork)

        self._refused_in_a_capture(wait)
        assert self.status(fork) is CaptureStatus.NONE

    @needs(Capability.EVENTS)
    def test_wait_for_an_event_of_another_capture_is_refused(self) -> None:
        """A capturing stream can't wait for an event of another capture; neither loses work silently."""
        first, second, cell, other = self.stream(), self.stream(), self.cell(), self.cell()
        graph, theirs = self.graph(first), self.graph(second)
        theirs.capture_begin()
        self.enqueue(second, other)
        event = second.record()
        graph.capture_begin()
        self.enqueue(first, cell)
        self._refused(lambda: first.wait(event), "foreign_capture")
        captures = (graph, first, cell), (theirs, second, other)
        ended = [self._end(each, stream, cell) for each, stream, cell in captures]
        for (each, stream, cell), as_a_graph in zip(captures, ended, strict=True):
            self._check(each, stream, cell, as_a_graph)

    @needs(Capability.EVENTS)
    def test_wait_for_an_event_of_an_ended_capture_is_refused(self) -> None:
        """No stream can wait for an event of a capture that has ended, whether it became a graph or not."""
        for as_a_graph in (True, False):
            self._refused_after_the_end(as_a_graph)

    def _refused_after_the_end(self, as_a_graph: bool) -> None:
        stream, idle, cell = self.stream(), self.stream(), self.cell()
        graph = self.graph(stream)
        graph.capture_begin()
        self.enqueue(stream, cell)
        event = stream.record()
        self.enqueue(stream, cell)
        if as_a_graph:
            graph.capture_end()
        else:
            graph.reset()
        self._refused(lambda: idle.wait(event), "foreign_capture")
        self.works(idle, self.graph(idle))
        for capturing in (idle, stream):
            self._refused_in_a_capture(lambda stream: stream.wait(event), capturing)
        assert self.read(cell) == 0

    def test_capture_is_a_graph_only_if_it_is_active(self) -> None:
        """After an illegal call, an active capture becomes a complete graph, an invalidated one an error."""
        calls: list[Callable[[ag.Stream], object]] = [ag.Stream.synchronize]
        if self.has(Capability.EVENTS):
            calls.append(ag.Stream.query)
        for call in calls:
            stream, cell, graph = self.setup_capturing()
            if self.backend.recording == "stream":
                self._refused(lambda: call(stream), "illegal_call")  # noqa: B023
            else:
                self.refusal(lambda: call(stream))  # noqa: B023
            self._ends_as_it_says(graph, stream, cell)

    def _timed_event(self, stream: ag.Stream) -> None:
        self.backend.destroy_event(self.backend.record_event(stream.native, timed=True))

    def _dumped(self, graph: Any) -> None:
        with folder() as path:
            self.backend.dump(graph, str(path / "graph.dot"), False)

    def _outside(self) -> tuple[ag.Stream, Any]:
        """Return a stream that does slow work, and the cell that it works on."""
        stream, cell = self.stream(), self.cell()
        self.enqueue_slow(stream, cell)
        return stream, cell

    def _refused_in_a_capture(
        self,
        wait: Callable[[ag.Stream], None],
        stream: ag.Stream | None = None,
    ) -> None:
        stream, cell = stream or self.stream(), self.cell()
        graph = self.graph(stream)
        graph.capture_begin()
        self.enqueue(stream, cell)
        self._refused(lambda: wait(stream), "foreign_capture")
        self._ends_as_it_says(graph, stream, cell)

    def _refused(self, call: Callable[[], object], reason: str) -> None:
        error = self.refusal(call)
        assert error is not None, f"no error with the reason {reason!r} was raised"
        assert error.reason == reason, f"this error has the wrong reason: {error}"

    def _ends_as_it_says(self, graph: ag.Graph, stream: ag.Stream, cell: Any) -> None:
        self._check(graph, stream, cell, self._end(graph, stream, cell))

    def _end(self, graph: ag.Graph, stream: ag.Stream, cell: Any) -> bool:
        """End a capture that has one piece of work; return True if it became a graph, of two pieces."""
        active = self.status(stream) is CaptureStatus.ACTIVE
        if active:
            self.enqueue(stream, cell)
            graph.capture_end()
        else:
            assert self.status(stream) is CaptureStatus.INVALIDATED
            error = self.refusal(graph.capture_end)
            if error is None:
                raise AssertionError("a capture that was invalidated became a graph")
            assert error.reason in BROKEN, f"this error has the wrong reason: {error}"
        assert self.status(stream) is CaptureStatus.NONE
        return active

    def _check(self, graph: ag.Graph, stream: ag.Stream, cell: Any, as_a_graph: bool) -> None:
        assert self.read(cell) == 0
        if as_a_graph:
            assert self.replayed(graph, cell) == applied(2)
            graph.reset()
        self.works(stream, graph)


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
        """A replay onto a capturing stream is recorded with "child_graphs", and refused without it."""
        stream, home, cell, other = self.stream(), self.stream(), self.cell(), self.cell()
        inner = self.captured(home, cell, keep_graph=True)
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
        """A replay into somebody else's capture is recorded, or (`records_graphs`) refused; it never runs."""
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
                if self.has(Capability.CHILD_GRAPHS) and not backend.records_graphs:
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
        inner, outer = self.captured(home, cell, keep_graph=True), self.graph(stream)
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
        inner = self.captured(home, cell, 3, 0, keep_graph=True)
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
        inner = self.captured(home, cell, 1, 5, keep_graph=True)
        with self.graph(home, keep_graph=True) as middle:
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

    @needs(Capability.CHILD_GRAPHS, Capability.EVENTS)
    def test_recorded_replay_of_a_fork_keeps_its_place(self) -> None:
        """A recorded replay of a graph with a fork runs after the work before it, and before later work."""
        stream, home, side, cell, other = (*(self.stream() for _ in range(3)), self.cell(), self.cell())
        with self.graph(home, keep_graph=True) as inner:
            side.wait(home)
            self.enqueue(home, cell, 3, 0)
            self.enqueue(side, other, 3, 0)
            home.wait(side)
        with self.graph(stream) as outer:
            for each in (cell, other):
                self.enqueue_slow(stream, each, 1, 5)
            inner.replay(stream)
            for each in (cell, other):
                self.enqueue(stream, each, 1, 1)
        outer.replay()
        outer.replay()
        stream.synchronize()
        assert [self.read(cell), self.read(other)] == [((0 + 5) * 3 + 1 + 5) * 3 + 1] * 2

    @needs(Capability.CHILD_GRAPHS)
    def test_add_records_a_run(self) -> None:
        """`Graph.add` records a run onto the captured stream; outside a capture it is an error."""
        stream, home, cell = self.stream(), self.stream(), self.cell()
        inner = self.captured(home, cell, 3, 0, keep_graph=True)
        outer = self.graph(stream)
        expect(ag.GraphStateError, lambda: outer.add(inner))
        with outer:
            self.enqueue(stream, cell, 1, 5)
            outer.add(inner)
            outer.add(inner)
        assert self.replayed(outer, cell) == 45

    @needs(Capability.CHILD_GRAPHS)
    @only_if(lambda backend: backend.records_graphs, "records executables")
    def test_replay_that_can_not_be_recorded_is_refused(self) -> None:
        """A replay of a graph that was not kept is refused, says how, and leaves the capture valid."""
        stream, home, cell = self.stream(), self.stream(), self.cell()
        inner = self.captured(home, cell)
        with self.undisturbed_capture(stream):
            expect(ag.CaptureError, lambda: inner.replay(stream), match="keep_graph=True")
        assert self.replayed(inner, cell) == applied(1)

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
