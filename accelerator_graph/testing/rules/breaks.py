"""Captures with breaks: calls of Python between the segments of a graph."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import Case, applied, expect, needs
from .._work import A, B


class BreakRules(Case):
    """A graph with breaks does what its body does, once in the capture and once in each replay."""

    def broken(self, cell: Any, call: Any, stream: ag.Stream, **how: Any) -> ag.Graph:
        """Capture two pieces of work on a cell with a call between them."""
        graph = self.graph(stream, **how)
        with ag.graph(graph, breaks=True):
            self.enqueue(stream, cell)
            call()
            self.enqueue(stream, cell)
        return graph

    def test_breaks_run_in_the_capture_and_in_replays(self) -> None:
        """An eager call sees what the segment before it has written, in the capture and in each replay."""
        stream, cell, seen = self.stream(), self.cell(), list[int]()

        @ag.eager
        def call() -> None:
            seen.append(self.read(cell))

        graph = self.broken(cell, call, stream)
        assert self.read(cell) == applied(2)
        for _ in range(2):
            graph.replay()
        assert self.read(cell) == applied(6)
        assert seen == [applied(1), applied(3), applied(5)]

    def test_breaks_write_between_segments(self) -> None:
        """What an eager call enqueues on the current stream runs between the segments, on whatever stream."""
        stream, other, cell = self.stream(), self.stream(), self.cell()

        @ag.eager
        def change() -> None:
            current = ag.current_stream()
            self.enqueue(current, cell, 1, 7)

        graph = self.broken(cell, change, stream)
        want = (applied(1) + 7) * A + B
        assert self.read(cell) == want
        for each in (other, stream, other):
            graph.replay(each)
            want = (want * A + B + 7) * A + B
        other.synchronize()
        assert self.read(cell) == want

    def test_breaks_share_a_pool_with_other_graphs(self) -> None:
        """The segments share the pool that was named; another graph of it is replayed in between."""
        stream, cell, second = self.stream(), self.cell(), self.cell()
        graph = self.broken(cell, ag.graph_break, stream)
        with self.graph(stream, pool=graph.pool()) as between:
            self.enqueue(stream, second)
        call = ag.eager(between.replay)
        third = self.broken(cell, call, stream, pool=graph.pool())
        third.replay(), graph.replay()
        stream.synchronize()
        assert self.read(cell) == applied(8)
        assert self.read(second) == applied(2)
        assert third.pool() == graph.pool() == between.pool()

    def test_breaks_leave_no_trace_of_a_body_that_raises(self) -> None:
        """If the body raises, in a call or after one, the graph is empty and can be captured again."""
        stream, cell, graph = self.setup()
        for fails in (True, False):

            @ag.eager
            def call(fails: bool = fails) -> None:
                if fails:
                    raise ZeroDivisionError

            def body(call: Callable[[], None] = call) -> None:
                with ag.graph(graph, breaks=True):
                    self.enqueue(stream, cell)
                    call()
                    self.enqueue(stream, cell)
                    raise ZeroDivisionError

            expect(ZeroDivisionError, body)
            assert graph.state == "empty"
            assert ag.current_graph() is None
            assert not stream._is_capturing()
        with graph:
            self.enqueue(stream, cell)
        stream.synchronize()
        before = self.read(cell)
        graph.replay()
        stream.synchronize()
        assert self.read(cell) == before * A + B

    def test_breaks_begin_anew_after_a_call_that_raised(self) -> None:
        """After an eager call has raised in a replay, the next replay begins at the first segment."""
        stream, cell, runs = self.stream(), self.cell(), list[int]()

        @ag.eager
        def call() -> None:
            runs.append(1)
            if len(runs) == 3:
                raise ZeroDivisionError

        graph = self.broken(cell, call, stream)
        graph.replay()
        expect(ZeroDivisionError, graph.replay)
        graph.replay()
        stream.synchronize()
        assert self.read(cell) == applied(7)

    def test_breaks_are_not_changed_while_half_run(self) -> None:
        """In an eager call a replay or reset of its graph is refused, and the replay goes on."""
        stream, cell, graph = self.setup()

        @ag.eager
        def call() -> None:
            if graph.state == "ready":
                expect(ag.GraphStateError, graph.replay)
                expect(ag.GraphStateError, graph.reset)

        with ag.graph(graph, breaks=True):
            self.enqueue(stream, cell)
            call()
            self.enqueue(stream, cell)
        graph.replay()
        stream.synchronize()
        assert self.read(cell) == applied(4)

    @needs(Capability.EVENTS)
    def test_breaks_while_a_stream_is_forked_are_refused(self) -> None:
        """A break while a forked stream is not joined is a `CaptureError`, and the graph stays usable."""
        stream, side, cell = self.stream(), self.stream(), self.cell()
        graph = self.graph(stream)

        def body() -> None:
            with ag.graph(graph, breaks=True):
                self.enqueue(stream, cell)
                side.wait(stream)
                self.enqueue(side, cell)
                ag.graph_break()

        expect(ag.CaptureError, body)
        assert graph.state == "empty"
        with graph:
            self.enqueue(stream, cell)
        graph.replay()
        stream.synchronize()
        assert self.read(cell) == applied(1)

    def test_breaks_in_another_capture_are_refused(self) -> None:
        """A replay of a graph with breaks onto a stream that is capturing is refused; the capture goes on."""
        home, cell = self.stream(), self.cell()
        graph = self.broken(self.cell(), ag.graph_break, home)
        stream = self.stream()
        with self.graph(stream) as outer:
            self.enqueue(stream, cell)
            expect(ag.CaptureError, graph.replay, stream)
            self.enqueue(stream, cell)
        assert self.replayed(outer, cell) == applied(2)

    def test_breaks_get_the_live_objects_of_the_replay(self) -> None:
        """`Graph.replay` passes what `live=` names; a name that is missing, or one too many, is refused."""
        stream, cell, seen = self.stream(), self.cell(), list[object]()
        graph = self.graph(stream)
        with ag.graph(graph, breaks=True):
            self.enqueue(stream, cell)
            ag.eager(seen.extend)(ag.live("step", [0]))
            self.enqueue(stream, cell)
        for step in (1, 2):
            graph.replay(live={"step": [step]})
        expect(ag.GraphStateError, graph.replay)
        expect(ag.GraphStateError, graph.replay, live={"step": [3], "other": 4})
        stream.synchronize()
        assert seen == [0, 1, 2]
        assert self.read(cell) == applied(6)

    @needs(Capability.ENQUEUE)
    def test_breaks_keep_the_arguments_of_calls(self) -> None:
        """A call reads in each replay what it got in the capture, whatever the program has dropped since."""
        stream, cell, seen = self.stream(), self.cell(), list[bytes]()
        cache = {"given": self.used.buffer(8)}
        stream.fill(cache["given"], 5)

        @ag.eager
        def call(cache: dict[str, Any]) -> None:
            seen.append(self.bytes_of(cache["given"]))

        graph = self.broken(cell, lambda: call(cache), stream)
        cache["given"] = self.used.buffer(8)  # as the capture of another size may do
        self.collect()
        others = [self.used.buffer(8) for _ in range(32)]
        for each in (cache["given"], *others):
            stream.fill(each, 9)
        assert self.replayed(graph, cell) == applied(4)
        assert seen == [bytes([5] * 8)] * 2

    def test_breaks_bear_graphs_that_die_in_the_body(self) -> None:
        """Graphs that die in a segment or in an eager call, by their last reference, disturb nothing."""
        stream, cell, other = self.stream(), self.cell(), self.cell()
        dying = [self.captured(stream, other) for _ in range(3)]
        for each in dying:
            each.replay()
        graph = self.graph(stream)
        del each
        with ag.graph(graph, breaks=True):
            self.enqueue(stream, cell)
            dying.pop()
            self.stream()  # an ordinary call, which destroys what is due
            self.enqueue(stream, cell)
            ag.eager(dying.clear)()
            self.enqueue(stream, cell)
        graph.replay()
        assert self.read(cell) == applied(6)
        assert self.read(other) == applied(3)

    def test_breaks_in_random_bodies(self) -> None:
        """Random bodies do in the capture and in each replay what they do without a graph."""
        kinds = ["work", "work", "slow", "break", "enqueued", "seen"]
        if Capability.EVENTS in self.backend.capabilities(0):
            kinds.append("fork")
        for seed in range(12):
            draw = Random(seed)
            steps = [("work", 0, 1)]
            for _ in range(draw.randrange(3, 14)):
                steps.insert(
                    draw.randrange(len(steps) + 1),
                    (draw.choice(kinds), draw.randrange(3), draw.randrange(1, 9)),
                )
            self._check_random_body(steps, draw)

    def _check_random_body(self, steps: list[tuple[str, int, int]], draw: Random) -> None:
        stream, other, side = self.stream(), self.stream(), self.stream()
        cells, beside, seen = [self.cell() for _ in range(3)], self.cell(), list[int]()
        want, wanted = [0, 0, 0], list[int]()

        @ag.eager
        def enqueued(cell: Any, number: int) -> None:
            self.enqueue(ag.current_stream(), cell, A, number)

        @ag.eager
        def look(cell: Any) -> None:
            seen.append(self.read(cell))

        def body() -> None:
            for kind, i, number in steps:
                if kind == "break":
                    ag.graph_break()
                elif kind == "enqueued":
                    enqueued(cells[i], number)
                elif kind == "seen":
                    look(cells[i])
                elif kind == "fork":
                    side.wait(stream)
                    self.enqueue_slow(side, cells[i], A, number)
                    stream.wait(side)
                else:
                    (self.enqueue_slow if kind == "slow" else self.enqueue)(stream, cells[i], A, number)

        graph = self.graph(stream)
        with ag.graph(graph, breaks=True):
            body()
        between = self.captured(stream, beside, pool=graph.pool())
        for run in range(4):
            for kind, i, number in steps:
                if kind == "seen":
                    wanted.append(want[i])
                elif kind != "break":
                    want[i] = (want[i] * A + number) % 2**32
            assert [self.read(each) for each in cells] == want, (run, steps)
            assert seen == wanted, (run, steps)
            between.replay()
            if run < 3:
                graph.replay(draw.choice((None, other)))
        assert self.read(beside) == applied(4)

    @needs(Capability.ENQUEUE)
    def test_breaks_refuse_live_objects_that_work_uses(self) -> None:
        """Memory that work of a segment uses can't be live, whether it is named before or behind the work."""
        stream, graph, target = self.stream(), self.graph(), self.used.buffer(8)
        call = ag.eager(lambda given: None)
        for used in (True, False):
            given = self.used.buffer(8)
            source = given if used else self.used.buffer(8)

            def before(given: Any = given, source: Any = source) -> None:
                with ag.graph(graph, stream=stream, breaks=True):
                    call(ag.live("given", given))
                    stream.copy(target, source)

            def behind(given: Any = given, source: Any = source) -> None:
                with ag.graph(graph, stream=stream, breaks=True):
                    stream.copy(target, source)
                    call(ag.live("given", given))

            for body in (before, behind):
                expect(ag.CaptureError, body) if used else body()
                assert (graph.state == "empty") is used
                graph.reset()

    @needs(Capability.EVENTS)
    def test_breaks_make_events_real(self) -> None:
        """An event of a segment is waited for behind the break, in a call as well as in a later segment."""
        stream, cell, graph = self.setup()
        sides = [self.stream(), self.stream()]

        @ag.eager(streams=sides[:1])
        def call(event: ag.Event) -> None:
            sides[0].wait(event)
            self.enqueue_slow(sides[0], cell, 1, 7)

        with ag.graph(graph, breaks=True):
            self.enqueue_slow(stream, cell)
            event = stream.record()
            call(event)
            stream.wait(event)
            sides[1].wait(event)
            self.enqueue_slow(sides[1], cell)
            stream.wait(sides[1])
        graph.replay()
        want = 0
        for _ in range(2):
            want = (want * A + B + 7) * A + B
        assert self.read(cell) == want
        graph.reset()
        expect(ag.DriverError, sides[0].wait, event)

    @needs(Capability.EVENTS)
    def test_breaks_wait_for_the_streams_that_are_named(self) -> None:
        """The next segment waits for what an eager call leaves on a stream that it was marked with."""
        stream, side, cell = self.stream(), self.stream(), self.cell()

        @ag.eager(streams=[side])
        def call() -> None:
            side.wait(ag.current_stream())
            self.enqueue_slow(side, cell, 1, 7)

        graph = self.broken(cell, call, stream)
        graph.replay()
        stream.synchronize()
        want = 0
        for _ in range(2):
            want = (want * A + B + 7) * A + B
        assert self.read(cell) == want

    @needs(Capability.TIMING)
    def test_breaks_are_profiled_by_their_parts(self) -> None:
        """The profile has the time of each segment and of each call, in order."""
        stream, cell = self.stream(), self.cell()
        graph = self.broken(cell, ag.eager(int), stream)
        profile = graph.profile(2)
        assert [each.is_call for each in profile.parts] == [False, True, False]
        assert all(each.time >= 0 for each in profile.parts)
        assert len(profile.times) == 2
        assert self.read(cell) == applied(2 * (1 + 3 + 2))

    @needs(Capability.NODES)
    def test_breaks_are_described_as_a_whole(self) -> None:
        """The description has the nodes of all segments, a node for each call, and labels over breaks."""
        stream, cell, graph = self.setup(keep_graph=True)
        with ag.graph(graph, breaks=True), ag.label("all"):
            self.enqueue(stream, cell)
            ag.eager(int)()
            self.enqueue(stream, cell)
        found = graph.describe()
        (at,) = [node.id for node in found.nodes if node.kind == "eager"]
        assert 0 < at < len(found.nodes) - 1
        assert all(edge.source < edge.target for edge in found.edges)
        assert [(each.name, each.start, each.stop) for each in found.labels] in (
            [],
            [("all", 0, len(found.nodes))],
        )
