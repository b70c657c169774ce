"""Events that the host waits for, and the time between them."""

from __future__ import annotations

import gc
import time
from functools import partial

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import PIECES, Case, applied, expect, lacks, needs


class TimingRules(Case):
    """The host can ask for an event, wait for it, and read the time between two of them."""

    @needs(Capability.TIMING)
    def test_event_is_done_when_the_work_before_it_is(self) -> None:
        """`query` of an event is True once the work before it is done, and so it is after `synchronize`."""
        stream, cell = self.stream(), self.cell()
        graph = self.captured(stream, cell, slow=True)
        done = 0
        for timing in (False, True):
            self.enqueue_slow(stream, cell, times=3)
            graph.replay()
            event = stream.record(timing=timing)
            done += 4
            answer = event.query()
            assert answer is False or self.used.read(cell) == applied(done)
            event.synchronize()
            assert self.used.read(cell) == applied(done)
            assert event.query() is True

    @needs(Capability.TIMING)
    def test_event_does_not_wait_for_later_work(self) -> None:
        """An event is done while work that was enqueued behind it is in progress."""
        stream, cell = self.stream(), self.cell()

        def enqueue() -> None:
            event = stream.record(timing=True)
            self.enqueue_slow(stream, cell, times=PIECES)
            event.synchronize()
            assert event.query() is True

        if not self.seen_in_progress(enqueue, stream, cell):
            plain = self.cell()
            slow = self.seen_in_progress(
                lambda: self.enqueue_slow(stream, plain, times=PIECES), stream, plain
            )
            self.skip_unless(slow, "does work while it is enqueued")
            raise AssertionError("work behind the event was always done when `synchronize` returned")

    @needs(Capability.TIMING)
    def test_elapsed_time_is_in_milliseconds(self) -> None:
        """`elapsed_time` is the time that the work between two events takes, in milliseconds, as a float."""
        stream, cell = self.stream(), self.cell()
        began = time.perf_counter()
        start = stream.record(timing=True)
        self.enqueue_slow(stream, cell, times=PIECES)
        middle = stream.record(timing=True)
        self.enqueue_slow(stream, cell, times=PIECES)
        end = stream.record(timing=True)
        end.synchronize()
        seen = (time.perf_counter() - began) * 1000
        whole, parts = start.elapsed_time(end), [start.elapsed_time(middle), middle.elapsed_time(end)]
        assert type(whole) is float
        for part in parts:  # a slow piece of work takes a millisecond or more
            assert PIECES / 2 < part < seen + 1, f"{part} of {seen} ms"
        assert abs(sum(parts) - whole) < 0.01 * whole
        assert abs(end.elapsed_time(start) + whole) < 0.01 * whole

    @needs(Capability.TIMING)
    def test_time_of_a_replay_is_the_time_of_its_work(self) -> None:
        """Events before and after a replay have all of its work between them."""
        stream, cell = self.stream(), self.cell()
        with self.graph(stream) as graph:
            self.enqueue_slow(stream, cell, times=PIECES)
        for replay in (graph.replay, graph.bind()):
            start = stream.record(timing=True)
            replay()
            end = stream.record(timing=True)
            end.synchronize()
            assert start.elapsed_time(end) > PIECES / 2

    @needs(Capability.TIMING)
    def test_event_can_be_read_after_its_stream_and_on_any_thread(self) -> None:
        """Events answer on any thread, after their stream was closed, and beside other captures."""
        stream, cell = self.stream(), self.cell()
        start = stream.record(timing=True)
        self.enqueue_slow(stream, cell, times=PIECES)
        end = self.in_thread(partial(stream.record, timing=True))
        stream.close()
        del stream
        gc.collect()
        answer = end.query()
        assert answer is False or self.used.read(cell) == applied(PIECES), "work in progress was called done"
        self.in_thread(end.synchronize)
        assert self.in_thread(end.query) is True
        assert self.in_thread(lambda: start.elapsed_time(end)) > PIECES / 2

    @needs(Capability.TIMING)
    def test_time_of_undone_work_is_refused(self) -> None:
        """`elapsed_time` of an event whose work is not done is a `GraphStateError`."""
        stream, cell = self.stream(), self.cell()
        for doublings in range(5):  # on a busy machine, the work may be done by then
            start = stream.record(timing=True)
            self.enqueue_slow(stream, cell, times=PIECES << doublings)
            end = stream.record(timing=True)
            try:
                start.elapsed_time(end)
                assert end.query(), "the time of work in progress was told"
                refused = False
            except ag.GraphStateError:
                refused = True
            stream.synchronize()
            assert start.elapsed_time(end) > PIECES / 2
            if refused:
                return
        self.skip_unless(False, "does work while it is enqueued")

    @needs(Capability.TIMING)
    def test_answers_about_events_have_their_types(self) -> None:
        """`query_event` answers with a bool, `elapsed_time` with a float, until the event is destroyed."""
        backend, stream = self.backend, self.stream()
        start, end = (backend.record_timed_event(stream.native) for _ in range(2))
        backend.synchronize_event(end)
        assert backend.query_event(start) is True
        assert type(backend.elapsed_time(start, end)) is float
        backend.destroy_event(start)
        assert backend.query_event(end) is True
        backend.destroy_event(end)

    @needs(Capability.TIMING)
    def test_events_without_a_time_have_none(self) -> None:
        """`elapsed_time` of an event without timing is a ValueError, of anything else a TypeError."""
        stream = self.stream()
        timed, plain = stream.record(timing=True), stream.record()
        stream.synchronize()
        expect(ValueError, timed.elapsed_time, plain, match="timing=True")
        expect(ValueError, plain.elapsed_time, timed, match="timing=True")
        expect(TypeError, timed.elapsed_time, stream)

    @needs(Capability.TIMING)
    def test_captured_events_can_not_be_waited_for(self) -> None:
        """A timed event in a capture, and waiting for one of a capture, are refused and break nothing."""
        stream = self.stream()
        with self.undisturbed_capture(stream):
            expect(ag.GraphStateError, lambda: stream.record(timing=True), match="captured")
            event = stream.record()
            for call in (event.query, event.synchronize):
                expect(ag.GraphStateError, call, match="capture")
        expect(ag.GraphStateError, event.synchronize, match="capture")

    @needs(Capability.EVENTS)
    @lacks(Capability.TIMING)
    def test_events_without_timing_are_only_waited_for_by_streams(self) -> None:
        """Without "timing", timed events, and waiting for events on the host, are an `UnsupportedError`."""
        stream = self.stream()
        event = stream.record()
        for call in (lambda: stream.record(timing=True), event.query, event.synchronize):
            assert expect(ag.UnsupportedError, call).capability == Capability.TIMING
