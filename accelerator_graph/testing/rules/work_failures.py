"""Work that fails when it runs, and a runtime that has nothing left."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import Case, applied, expect


class WorkFailureRules(Case):
    """A failure is raised where it is noticed, and nothing else is broken by it."""

    def test_error_of_work_is_raised_where_the_stream_is_waited_for(self) -> None:
        """If work fails, the next `synchronize` or `query` raises `DriverError`; then the stream works."""
        stream = self.stream()
        waits = [stream.synchronize, *([partial(self._poll, stream)] if self.has(Capability.EVENTS) else ())]
        for wait in waits:
            self._fail(stream)
            expect(ag.DriverError, wait)
            self.works(stream, self.graph(stream))

    def test_error_of_a_replay_is_raised_where_the_stream_is_waited_for(self) -> None:
        """If work fails in a replay, the next `synchronize` raises `DriverError`, after each replay."""
        stream, other, graph = self.stream(), self.stream(), self.graph()
        with stream, graph:
            self._fail(stream)
        stream.synchronize()
        pool, bound = graph.pool(), graph.bind()
        for replay, used in ((graph.replay, stream), (bound, stream), (partial(graph.replay, other), other)):
            for _ in range(2):
                replay()
                expect(ag.DriverError, used.synchronize)
            self.works(used, self.graph(used))
        self.works(stream, self.graph(stream, pool=pool))
        graph.reset()
        with stream:
            self.works(stream, graph)

    def test_calls_that_the_runtime_refuses_have_no_effect(self) -> None:
        """If the runtime has nothing left, each call works, or raises `DriverError` and does nothing."""
        stream, new, cells = self.stream(), self.stream(), [self.cell() for _ in range(3)]
        graph, captured = self.captured(stream, cells[0], keep_graph=True), list[ag.Graph]()
        calls: dict[str, Callable[[], object]] = {
            "enqueue": partial(self.enqueue, new, cells[1]),
            "instantiate": graph.instantiate,
            "replay": graph.replay,
            "create": self.stream,
            "capture": lambda: captured.append(self.captured(stream, cells[2])),
            "record": new.record if self.has(Capability.EVENTS) else new.synchronize,
        }
        exhausted = self.used.exhausted()
        self.skip_unless(exhausted, "has a Work without `exhausted`")
        assert exhausted is not None
        with exhausted:
            refused = {name for name, call in calls.items() if self.refusal(call) is not None}
        assert refused, "everything worked inside Work.exhausted()"
        done = [applied("replay" not in refused), applied("enqueue" not in refused)]
        assert [self.read(cell) for cell in cells[:2]] == done
        assert graph.state in ("captured", "ready")
        assert self.replayed(graph, cells[0], times=2) == applied(2, start=done[0])
        for late in captured:
            assert self.replayed(late, cells[2]) == applied(1), "the capture has lost work without an error"
        for each in (stream, new):
            self.works(each, self.graph(each))

    def _fail(self, stream: ag.Stream) -> None:
        self.skip_unless(self.used.fail(stream), "has a Work without `fail`")

    def _poll(self, stream: ag.Stream) -> None:
        end = time.monotonic() + self.time_limit / 4
        while not stream.query() and time.monotonic() < end:
            time.sleep(0.001)
