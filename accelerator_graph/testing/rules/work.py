"""The `Work` that the author wrote: if it is wrong, the other rules could not fail."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import PIECES, Case, applied, expect, needs

MILLISECOND = 1e-3
ATTEMPTS = 30
OR_NOT_DONE = "or `synchronize` returns before the work is done"


class WorkRules(Case):
    """Cells, pieces of work, slow ones, and buffers."""

    def test_work_new_cells_hold_zero(self) -> None:
        """`Work.new` returns a new cell each time, which holds 0."""
        stream, cells = self.stream(), [self.cell() for _ in range(3)]
        assert [self.read(cell) for cell in cells] == [0, 0, 0]
        self.enqueue(stream, cells[1], 1, 5)
        assert [self.read(cell) for cell in (*cells, self.cell())] == [0, 5, 0, 0]

    def test_work_computes_what_it_says(self) -> None:
        """A piece of work, slow or not, is ``cell = (cell * a + b) % 2**32``, for all 32-bit factors."""
        for enqueue in (self.enqueue, self.enqueue_slow):
            chance, stream, cell, expected = random.Random(7), self.stream(), self.cell(), 0
            for a, b in [(2**32 - 1, 2**32 - 1), *((chance.getrandbits(32), 1) for _ in range(5)), (0, 7)]:
                enqueue(stream, cell, a, b)
                expected = applied(1, a, b, expected)
                assert self.read(cell) == expected, (
                    f"a={a}, b={b}: the work computes something else, {OR_NOT_DONE}"
                )

    def test_work_that_is_slow_takes_a_millisecond(self) -> None:
        """`Work.enqueue_slow` takes a millisecond or more between reading the cell and writing it."""
        stream, cell = self.stream(), self.cell()
        elapsed = self._seconds(lambda: self._enqueue_slow(cell, stream))
        assert elapsed >= PIECES * MILLISECOND, (
            f"{PIECES} slow pieces of work took {elapsed * 1000:.3f} ms; override Work.enqueue_slow, "
            f"{OR_NOT_DONE}"
        )
        other = self.stream()
        assert self._loses_an_update(stream, other) or not self._runs_beside(stream, other), (
            "work that ran beside it was never lost: it must wait between reading and writing the cell"
        )

    def test_work_read_waits_for_nothing(self) -> None:
        """`Work.read` returns what the cell holds now, even while work on it is in progress."""
        stream, cell = self.stream(), self.cell()
        if self.seen_in_progress(lambda: self._enqueue_slow(cell, stream), stream, cell):
            return
        if all(self._enqueue_slow(cell, stream) >= PIECES * MILLISECOND for _ in range(3)):
            raise SkipTest("work is done when enqueue_slow returns")
        raise AssertionError(
            "all enqueued work was always done when Work.read returned; let it wait for no stream"
        )

    @needs(Capability.ENQUEUE)
    def test_work_buffers_hold_zeros(self) -> None:
        """`Work.buffer` returns memory of that many bytes, all 0, and `Work.read_bytes` returns them."""
        stream, buffers = self.stream(), [self.used.buffer(nbytes) for nbytes in (1, 8, 8)]
        stream.fill(buffers[1], 3)
        stream.synchronize()
        assert [self.used.read_bytes(buffer) for buffer in buffers] == [bytes(1), b"\x03" * 8, bytes(8)]

    def _loses_an_update(self, slow: ag.Stream, fast: ag.Stream) -> bool:
        """Return True if an unordered piece of work beside a slow one is lost in one of many attempts."""
        cell = self.cell()
        for _ in range(10 * ATTEMPTS):  # on a busy machine, most miss it
            before = self.used.read(cell)
            self.enqueue_slow(slow, cell, 1, 5)
            self.enqueue(fast, cell, 1, 1)
            if self.read(cell) != before + 6:
                return True
        return False

    def _runs_beside(self, first: ag.Stream, second: ag.Stream) -> bool:
        """Return True if the streams were seen to do slow work at the same time."""
        cell, other = self.cell(), self.cell()

        def on_both() -> None:
            self._enqueue_slow(cell, first)
            self._enqueue_slow(other, second)

        def on_one() -> None:
            self._enqueue_slow(cell, first, first)

        if min(self._enqueue_slow(cell, first) for _ in range(5)) >= PIECES * MILLISECOND:
            return False
        both = one = math.inf
        for attempt in range(ATTEMPTS):  # on a busy machine, most take longer than they should
            both, one = min(both, self._seconds(on_both)), min(one, self._seconds(on_one))
            if attempt >= 4 and both < 0.75 * one:
                return True
        return False

    def _enqueue_slow(self, cell: Any, *streams: ag.Stream) -> float:
        """Enqueue some slow work on each stream in turn; return how many seconds the calls took."""
        begin = time.perf_counter()
        for stream in streams:
            self.enqueue_slow(stream, cell, times=PIECES)
        return time.perf_counter() - begin

    def _seconds(self, enqueue: Callable[[], object]) -> float:
        """Return how many seconds the work takes."""
        self.synchronize()
        begin = time.perf_counter()
        enqueue()
        self.synchronize()
        return time.perf_counter() - begin


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

    @needs(Capability.EVENTS)
    def test_error_that_was_raised_is_not_raised_again(self) -> None:
        """An error of work is raised once, even if streams that wait for each other have both seen it."""
        stream, side = self.stream(), self.stream()
        self._fail(stream)
        for first, second in ((side, stream), (stream, side)):
            first.wait(second)
        expect(ag.DriverError, stream.synchronize)
        for each in (stream, side, stream):
            stream.wait(side)
            side.wait(stream)
            self.works(each, self.graph(each))

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

    @needs(Capability.EVENTS)
    def test_error_of_forked_work_in_a_replay_is_raised_where_the_stream_is_waited_for(self) -> None:
        """If forked work fails in a replay, the `synchronize` of the replay's stream raises that, once."""
        stream, other, fork, cell = self.stream(), self.stream(), self.stream(), self.cell()
        with self.graph(stream) as graph:
            self.enqueue(stream, cell)
            fork.wait(stream)
            self._fail(fork)
            stream.wait(fork)
            self.enqueue(stream, cell)  # what waits for failed work does not wait for ever
        for used in (stream, other, stream):
            graph.replay(used)
            expect(ag.DriverError, used.synchronize)
            for each in (used, fork):
                self.works(each, self.graph(each))

    @needs(Capability.TIMING)
    def test_waiting_for_an_event_loses_no_error(self) -> None:
        """An error of work before an event is raised by who asks about the event, or else by the stream."""
        stream = self.stream()
        for timing in (False, True):
            for ask in (ag.Event.synchronize, self._poll):
                self._fail(stream)
                event = stream.record(timing=timing)
                if self.refusal(partial(ask, event)) is None:
                    expect(ag.DriverError, stream.synchronize)
                self.works(stream, self.graph(stream))

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
        exhausted = self.used.exhausted(0)
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

    def _poll(self, asked: ag.Stream | ag.Event) -> None:
        end = time.monotonic() + self.patience
        while not asked.query() and time.monotonic() < end:
            time.sleep(0.001)
