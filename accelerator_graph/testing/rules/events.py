"""Events outside captures, what waits, and what must not."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import PIECES, Case, applied, expect, needs
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
            answer = stream.query()
            assert answer is False or self.used.read(cell) == applied(done)
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
            waiter.result(self.time_limit / 4)
            if done < pieces:
                return
        self.skip_unless(asynchronous, "does work while it is enqueued")
        raise AssertionError("no call of another thread returned in the second half of the wait")
