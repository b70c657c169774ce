"""Events that the host waits for, the time between two, and those that an executable records."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import PIECES, Case, applied, expect, needs


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
                assert end.query(), "work in progress had a time"
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
        """`query` of an event returns a bool, `elapsed_time` a float, until the event is destroyed."""
        backend, stream = self.backend, self.stream()
        start, end = (backend.record_event(stream.native, timed=True) for _ in range(2))
        backend.synchronize(end)
        assert backend.query(start) is True
        assert type(backend.elapsed_time(start, end)) is float
        backend.destroy_event(start)
        assert backend.query(end) is True
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


class GraphEventRules(Case):
    """What `instantiate_timed` makes does the work of the graph, and reports when its parts begin and end."""

    @needs(Capability.GRAPH_EVENTS)
    def test_graph_events_have_the_work_between_them(self) -> None:
        """Between an event before the first node and one after the last is the time of all the work."""
        stream, cell = self.stream(), self.cell()
        graph = self._slow(stream, cell)
        count = len(self.backend.nodes(graph)[0])
        found = self._times(stream, graph, [0], [count - 1], runs=2)
        assert self.read(cell) == applied(2 * PIECES)
        for begin, end, whole in found:
            assert 0 <= begin < end <= whole
            assert end - begin > PIECES / 2, f"{end - begin} ms"

    @needs(Capability.GRAPH_EVENTS)
    def test_graph_events_stand_where_they_are_asked_for(self) -> None:
        """Events before and after a node in the middle have the work before, of and behind it apart."""
        stream, cell = self.stream(), self.cell()
        graph = self._slow(stream, cell)
        count = len(self.backend.nodes(graph)[0])
        middle = count // 2
        ((first, begin, end, last, whole),) = self._times(stream, graph, [0, middle], [middle, count - 1])
        assert self.read(cell) == applied(PIECES)
        assert 0 <= first <= begin <= end <= last <= whole
        if self.used.nodes_per_piece == 1:
            for part, pieces in ((begin - first, middle), (end - begin, 1), (last - end, count - middle - 1)):
                assert part > pieces / 2, f"{part} of {last - first} ms"

    @needs(Capability.GRAPH_EVENTS)
    @needs(Capability.EVENTS)
    def test_graph_events_keep_every_dependency(self) -> None:
        """With events around every node of a fork, all work is done, in an order that its nodes allow."""
        first, second, cells = self.stream(), self.stream(), [self.cell(), self.cell()]
        token = self.begin(first)
        self.enqueue(first, cells[0])
        second.wait(first)
        self.enqueue(first, cells[0])
        self.enqueue(second, cells[1])
        first.wait(second)
        self.enqueue(first, cells[1])
        graph = self.backend.capture_end(token)
        nodes, edges = self.backend.nodes(graph)
        everywhere = range(len(nodes))
        (times,) = self._times(first, graph, everywhere, everywhere)
        assert (self.read(cells[0]), self.read(cells[1])) == (applied(2), applied(2))
        begin, end = times[: len(nodes)], times[len(nodes) : 2 * len(nodes)]
        assert all(begin[node] <= end[node] for node in everywhere)
        assert all(end[edge.source] <= begin[edge.target] for edge in edges)

    @needs(Capability.GRAPH_EVENTS)
    def test_graph_stays_as_it_is_when_a_timed_copy_is_made(self) -> None:
        """`instantiate_timed` leaves the graph as it is: its nodes, and what executables of it do."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        token = self.begin(stream)
        self.enqueue(stream, cell, times=3)
        graph = backend.capture_end(token)
        before = backend.nodes(graph)
        executable, events = backend.instantiate_timed(graph, [0, 1], [1, 2])
        assert backend.nodes(graph) == before
        backend.replay(executable, stream.native)
        stream.synchronize()
        start, end = events[0], events[-1]
        found = backend.elapsed_time(start, end)
        plain = backend.instantiate(graph)
        for _ in range(3):
            backend.replay(plain, stream.native)
            assert self.read(cell) != 0
            assert backend.elapsed_time(start, end) == found, "runs of the graph itself record the events"
        assert self.read(cell) == applied(12)
        for each in (plain, executable):
            backend.destroy_executable(each)
        for event in events:
            backend.destroy_event(event)
        backend.destroy_graph(graph)

    @needs(Capability.NODE_TIMES)
    def test_node_times_are_of_every_run(self) -> None:
        """`time_nodes` does the work as often as it is asked to and reports each run, or is refused."""
        stream, cell = self.stream(), self.cell()
        graph = self._slow(stream, cell)
        ids = {node.id for node in self.backend.nodes(graph)[0]}
        try:
            found = self.backend.time_nodes(graph, stream.native, 2)
        except ag.UnsupportedError as error:
            raise SkipTest(str(error)) from None
        finally:
            self.backend.destroy_graph(graph)
        assert self.read(cell) == applied(2 * PIECES)
        assert len(found) == 2
        for run in found:
            assert run.keys() <= ids
            assert (
                max(end for _, end in run.values()) - min(begin for begin, _ in run.values()) > 500 * PIECES
            )
            assert all(begin <= end for begin, end in run.values())

    def _slow(self, stream: ag.Stream, cell: Any) -> Any:
        token = self.begin(stream)
        self.enqueue_slow(stream, cell, times=PIECES)
        return self.backend.capture_end(token)

    def _times(
        self,
        stream: ag.Stream,
        graph: Any,
        before: Sequence[int],
        after: Sequence[int],
        *,
        runs: int = 1,
    ) -> list[list[float]]:
        """Run a graph with events before and after nodes; return the time of each, and of the run."""
        backend, native = self.backend, stream.native
        executable, events = backend.instantiate_timed(graph, before, after)
        assert len(events) == len(before) + len(after)
        backend.destroy_graph(graph)
        found = []
        for _ in range(runs):
            start = backend.record_event(native, timed=True)
            backend.replay(executable, native)
            end = backend.record_event(native, timed=True)
            backend.synchronize(native)
            times = [backend.elapsed_time(start, event) for event in (*events, end)]
            found.append([time for time in times if time is not None])
            assert len(found[-1]) == len(times), "the time of an event is not known after its run"
            for event in (start, end):
                backend.destroy_event(event)
        backend.destroy_executable(executable)
        for event in events:
            backend.destroy_event(event)
        return found
