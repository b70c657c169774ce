"""Events outside captures, what waits and what must not, and forks and joins in a capture."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, CaptureStatus

from .._case import PIECES, Case, applied, expect, needs, only_if, raises
from .._programs.program import forks_and_joins, report, run
from .._tools import Thread

NOT_WAITED = "the stream did not wait"


@needs(Capability.EVENTS)
class EventRules(Case):
    """An event marks one point in a stream's work, replays included, that other streams can wait for."""

    def test_wait_orders_streams(self) -> None:
        """After `wait`, work on a stream runs after the other stream, or after an event, timed or not."""
        for timing in (False, True) if self.has(Capability.TIMING) else (False,):
            first, second, cell = self.stream(), self.stream(), self.cell()
            self.enqueue_slow(first, cell, 1, 5, times=5)
            event = first.record(timing=timing)
            second.wait(event)
            self.enqueue_slow(second, cell, 3, 0)
            first.wait(second)
            self.enqueue(first, cell, 1, 1)
            assert self.read_after(first, cell) == 76, NOT_WAITED
            second.wait(event)
            second.synchronize()

    def test_destroyed_event_is_still_waited_for(self) -> None:
        """A stream that waits for an event goes on waiting after the event is destroyed."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        self.enqueue_slow(first, cell, 1, 5, times=5)
        event = self.backend.record_event(first.native)
        self.backend.wait_event(second.native, event)
        self.backend.destroy_event(event)
        self.enqueue(second, cell, 3, 0)
        assert self.read_after(second, cell) == 75, NOT_WAITED

    def test_event_marks_the_replays_before_it(self) -> None:
        """Waiting for an event waits for the replays that were enqueued on its stream before it."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        graph = self.captured(first, cell, 1, 5, slow=True)
        for replay in (graph.replay, graph.bind()):
            replay()
            replay()
            second.wait(first.record())
            self.enqueue(second, cell, 3, 0)
            second.synchronize()
            first.wait(second)
        assert self.used.read(cell) == ((10 * 3) + 10) * 3

    def test_replays_wait_for_events(self) -> None:
        """A replay runs after the events that its stream waits for, as other work does."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        graph = self.captured(second, cell, 3, 0)
        for replay in (graph.replay, graph.bind()):
            self.enqueue_slow(first, cell, 1, 5, times=3)
            second.wait(first.record())
            replay()
            second.synchronize()
        assert self.used.read(cell) == (15 * 3 + 15) * 3

    def test_event_is_not_moved_by_later_ones(self) -> None:
        """An event keeps marking the same point when others are recorded or destroyed, on any stream."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        idle = self.stream()
        self.enqueue_slow(first, cell, 1, 5, times=5)
        event = first.record()
        second.wait(event)
        del event
        gc.collect()
        for stream in (idle, idle, second):
            stream.wait(idle.record())  # an event that was destroyed must not come back as this one
        self.enqueue(second, cell, 3, 0)
        assert self.read_after(second, cell) == 75, NOT_WAITED

    def test_event_outlives_its_stream(self) -> None:
        """An event can be waited for after its stream was closed with work still on it."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        self.enqueue_slow(first, cell, 1, 5, times=5)
        event = first.record()
        first.close()
        gc.collect()
        second.wait(event)
        self.enqueue(second, cell, 3, 0)
        assert self.read_after(second, cell) == 75, NOT_WAITED

    def test_several_streams_wait_for_one_event(self) -> None:
        """Any number of streams can wait for the same event, each any number of times."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        third, other = self.stream(), self.cell()
        for _ in range(3):
            self.enqueue_slow(first, cell, 1, 5)
            self.enqueue_slow(first, other, 1, 5)
        event = first.record()
        for stream in (second, third, second, first):
            stream.wait(event)
        self.enqueue(second, cell, 3, 0)
        self.enqueue(third, other, 3, 0)
        for stream in (first, second, third):
            stream.synchronize()
        assert (self.used.read(cell), self.used.read(other)) == (45, 45), NOT_WAITED

    def test_stream_that_waits_for_itself_goes_on(self) -> None:
        """Outside captures, a stream can wait for itself or for its own event, without any effect."""
        stream, _, cell = self.stream(), self.stream(), self.cell()
        self.enqueue_slow(stream, cell, 1, 5)
        event = stream.record()
        stream.wait(stream)
        self.enqueue(stream, cell, 3, 0)
        stream.wait(event)
        self.enqueue(stream, cell, 1, 1)
        assert self.read_after(stream, cell) == 16

    def test_wait_refuses_what_is_no_mark(self) -> None:
        """`wait` takes an event or a stream; anything else is a TypeError."""
        stream = self.stream()
        for bad in (None, 1.5, "event", object()):
            expect(TypeError, stream.wait, bad)

    def test_query_says_whether_work_is_done(self) -> None:
        """`query` is True if all work on the stream is done, replays included, and else False."""
        stream, cell = self.stream(), self.cell()
        assert stream.query() is True
        graph = self.captured(stream, cell, slow=True)
        slow: Callable[[], None] = partial(self.enqueue_slow, stream, cell, times=3)
        for done, enqueue in ((3, slow), (4, graph.replay), (5, graph.bind())):
            enqueue()
            end = time.monotonic() + self.patience
            while (answer := stream.query()) is not True:  # soon, the last piece is the only one left
                assert answer is False
                assert time.monotonic() < end, "`query` is never True, unless the stream is waited for"
                time.sleep(1e-4)
            assert self.used.read(cell) == applied(done)
            stream.synchronize()
            assert stream.query() is True


class WaitingRules(Case):
    """Only `synchronize` waits for work, and it holds up nobody else."""

    @needs(Capability.EVENTS)
    def test_events_and_queries_wait_for_nothing(self) -> None:
        """`record_event`, `wait_event` and `query` return while work on the stream is in progress."""
        stream, other, cell = self.stream(), self.stream(), self.cell()

        def busy(call: Callable[[], object]) -> bool:
            def enqueue() -> None:
                self.enqueue_slow(stream, cell, times=PIECES)
                call()

            return self.seen_in_progress(enqueue, stream, cell)

        self.skip_unless(busy(lambda: None), "does work while it is enqueued")
        calls: dict[str, Callable[[], object]] = {
            "record": stream.record,
            "wait": lambda: other.wait(stream),
            "query": stream.query,
        }
        if self.has(Capability.TIMING):
            calls["query of an event"] = lambda: stream.record(timing=True).query()
        waiting = [name for name, call in calls.items() if not busy(call)]
        assert waiting == [], "the work was always done when these calls returned"

    def test_destroying_waits_for_nothing(self) -> None:
        """``destroy_graph`` and ``destroy_executable`` return while runs are in progress."""
        backend, stream, cell = self.backend, self.stream(), self.cell()

        def run(destroy: bool) -> None:
            graph = self.recorded(stream, cell, slow=True)
            executable = backend.instantiate(graph)
            made.append((graph, executable))
            for _ in range(PIECES):
                backend.replay(executable, stream.native)
            if destroy:
                backend.destroy_graph(graph)
                backend.destroy_executable(executable)

        made: list[tuple[Any, Any]] = []
        self.skip_unless(
            self.seen_in_progress(partial(run, False), stream, cell), "does work while it is enqueued"
        )
        for graph, executable in made:
            backend.destroy_graph(graph)
            backend.destroy_executable(executable)
        in_progress = self.seen_in_progress(partial(run, True), stream, cell)
        assert in_progress, "the work was always done when these calls returned"

    def test_synchronize_holds_up_no_other_thread(self) -> None:
        """While one thread waits in `synchronize`, calls of another thread return, for any stream."""
        self._others_go_on(lambda stream: stream.synchronize())

    @needs(Capability.TIMING)
    def test_waiting_for_an_event_holds_up_no_other_thread(self) -> None:
        """While one thread waits for an event, calls of another thread return, for any stream."""
        self._others_go_on(lambda stream: stream.record().synchronize())

    def _others_go_on(self, wait: Callable[[ag.Stream], object]) -> None:
        stream, other, cell, elsewhere = self.stream(), self.stream(), self.cell(), self.cell()
        calls: list[Callable[[], object]] = [
            partial(self.status, stream),
            partial(self.enqueue, other, elsewhere),
            self.captured(other, self.cell()).bind(other),
        ]
        if self.has(Capability.EVENTS):
            calls += [stream.query, stream.record]
        asynchronous = False
        for doublings in range(5):  # on a busy machine, this thread may not run in time
            before, pieces = self.used.read(cell), PIECES << doublings
            self.enqueue_slow(stream, cell, 1, 1, times=pieces)
            waiter = Thread(partial(wait, stream), "waiter")
            while (done := self.used.read(cell) - before) < pieces:
                asynchronous = True
                if done > pieces / 2:
                    break
                for call in calls:
                    call()
            waiter.result(self.time_limit / 2)
            if done < pieces:
                return
        self.skip_unless(asynchronous, "does work while it is enqueued")
        raise AssertionError("no call of another thread returned in the second half of the wait")


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
        self._keeps_the_order("a+5 b<a c<a c*3 b<c b+2 b<a c<b c*2 a<b a<c a+1")

    def test_stream_may_wait_for_itself(self) -> None:
        """In a capture, a stream can wait for itself or for its own earlier event, without any effect."""
        self._keeps_the_order("a+5 a<a b<a b<b e=b b*3 b<e a<b a<e a+1")

    def test_fork_of_a_fork_is_joined_to_its_fork(self) -> None:
        """A fork can have a fork of its own, wait for it, and then be joined."""
        self._keeps_the_order("a+5 b<a c<b c*3 b<c b+2 a<b a*2")

    def test_pipeline_over_two_forks(self) -> None:
        """Forks that take turns on one piece of work, layer by layer, keep their order."""
        self._keeps_the_order("a+5 b<a c<a" + 3 * " c<b c*3 b<c b+2" + " a<c a<b a+1")

    def _keeps_the_order(self, script: str) -> None:
        """Check that replays do the work of a script in its order.

        ``b<a`` lets the stream b wait for a, and ``a+5`` or ``a*3`` is work on a, slow except for the last;
        ``e=b`` records an event on b. The stream a is captured, and all of them work on one cell.
        """
        streams, cell, steps = dict(zip("abc", self._some(3), strict=True)), self.cell(), script.split()
        marks: dict[str, Any] = {**streams}
        work: list[tuple[int, int]] = []
        with self.graph(streams["a"]) as graph:
            for step in steps:
                name, sign, operand = step[0], step[1], step[2:]
                if sign == "=":
                    marks[name] = streams[operand].record()
                elif sign == "<":
                    streams[name].wait(marks[operand])
                else:
                    work.append((1, int(operand)) if sign == "+" else (int(operand), 0))
                    enqueue = self.enqueue if step is steps[-1] else self.enqueue_slow
                    enqueue(streams[name], cell, *work[-1])

        def done(value: int) -> int:
            for a, b in work:
                value = value * a + b
            return value

        self.replays(graph, cell, done)

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


class ExternalEventRules(Case):
    """Events that are recorded in one capture and waited for in another one, or outside."""

    def test_external_events_need_the_capability(self) -> None:
        """Without "external_events", `record(external=True)` is unsupported, in a capture and outside."""
        self.skip_unless(not self.has(Capability.EXTERNAL_EVENTS), "has external events")
        stream = self.stream()
        expect(ag.UnsupportedError, lambda: stream.record(external=True))
        with self.undisturbed_capture(stream):
            expect(ag.UnsupportedError, lambda: stream.record(external=True))

    @needs(Capability.EXTERNAL_EVENTS)
    def test_external_event_orders_two_graphs(self) -> None:
        """A graph waits for the event of another one's latest replay, which lives as long as the two."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        with self.graph(first) as ahead:
            self.enqueue_slow(first, cell, 1, 1)
            reached = first.record(external=True)
        with self.graph(second) as behind:
            second.wait(reached)
            self.enqueue(second, cell, 3, 0)
            left = second.record(external=True)
        del reached
        self.collect()
        expected = 0
        for _ in range(10):
            ahead.replay()
            behind.replay()
            first.wait(left)
            expected = (expected + 1) * 3 % 2**32
        second.synchronize()
        first.synchronize()
        assert self.read(cell) == expected

    @needs(Capability.EXTERNAL_EVENTS)
    def test_external_event_recorded_outside_orders_a_graph(self) -> None:
        """A graph waits for what is recorded outside ahead of each replay; if nothing is, for nothing."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        event = first.record(external=True)
        with self.graph(second) as graph:
            self.enqueue(second, self.cell())
            second.wait(event)
            self.enqueue(second, cell, 3, 0)
        assert self.replayed(graph, cell) == 0
        for _ in range(5):
            self.enqueue_slow(first, cell, 1, 1)
            assert first.record(external=event) is event
            graph.replay()
            second.synchronize()
        assert self.read(cell) == 363

    @needs(Capability.EXTERNAL_EVENTS)
    def test_external_event_recorded_in_a_graph_orders_what_is_outside(self) -> None:
        """Work outside waits for the event of the latest replay; before the first one, for nothing."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        with self.graph(first) as graph:
            self.enqueue_slow(first, cell, 1, 1)
            event = first.record(external=True)
            self.enqueue(first, self.cell())
        second.wait(event)
        for _ in range(5):
            graph.replay()
            second.wait(event)
            self.enqueue(second, cell, 3, 0)
            second.synchronize()
        assert self.read(cell) == 363

    @needs(Capability.EXTERNAL_EVENTS)
    def test_external_events_join_no_captures(self) -> None:
        """Waiting for an event of another capture in progress leaves the two apart, and both valid."""
        first, second, cell, other = self.stream(), self.stream(), self.cell(), self.cell()
        with self.graph(first) as ahead:
            self.enqueue(first, cell)
            event = first.record(external=True)
            with self.graph(second) as behind:
                second.wait(event)
                self.enqueue(second, other)
            assert self.status(second) is CaptureStatus.NONE
            assert self.status(first) is CaptureStatus.ACTIVE
            self.enqueue(first, cell)
        assert self.replayed(ahead, cell) == applied(2)
        assert self.replayed(behind, other) == applied(1)
