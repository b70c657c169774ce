"""What waits, and what must not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import PIECES, Case, needs
from .._tools import Thread


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
