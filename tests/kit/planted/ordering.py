"""Streams and events that lose an order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from accelerator_graph.backends.base import Capability, CaptureStatus
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.backends.recording import Event as CpuEvent
from kit.explicit_runtime import Event, Executable, Explicit, Latch, OneRun, Queue, Recording
from kit.planted.collection import caught_by
from kit.planted.without_a_fault import CrossesBorders, MovingEvent, NothingNative, TwoDevices
from kit.planted.works import WorkOfADevice


@caught_by("test_fork_and_join_keeps_the_order", "test_nodes_of_a_fork_and_join")
class DoesNotLinkStreams(CpuBackend):
    def wait_event(self, stream: Any, event: Any) -> None:
        if event.capture is None:
            super().wait_event(stream, event)


@caught_by(
    "test_forks_may_wait_for_each_other",
    "test_pipeline_over_two_forks",
    "test_fork_of_a_fork_is_joined_to_its_fork",
    "test_random_forks_and_joins_keep_their_order",
)
class LinksAStreamOnce(CpuBackend):
    def wait_event(self, stream: Any, event: Any) -> None:
        if stream.capture is None or stream.capture is not event.capture or event.capture.origin is stream:
            super().wait_event(stream, event)


@caught_by("test_wait_orders_streams", "test_entering_waits_for_the_current_stream")
class WaitDoesNothing(CpuBackend):
    def wait_event(self, stream: Any, event: Any) -> None:
        if event.capture is not None:
            super().wait_event(stream, event)


@caught_by("test_stream_runs_work_and_synchronize_waits")
class DoesNotWait(CpuBackend):
    def synchronize(self, stream: Any) -> None:
        self.captures.check_waiting(stream, "synchronize")


@caught_by("test_asking_for_a_run_while_one_runs_is_no_error")
class SynchronizeMissesReplays(Explicit):
    """Replays have a queue of their own beside each stream's."""

    def open(self) -> None:
        self.beside = Queue()

    def replay(self, executable: Executable, stream: Queue) -> None:
        latch = Latch()
        stream.put(latch.set)
        self.beside.put(latch.wait)
        super().replay(executable, self.beside)


@caught_by("test_branches_are_all_replayed")
class LastWaitWins(Explicit):
    def link(self, recording: Recording, stream: Queue, nodes: frozenset[int]) -> None:
        recording.ends[stream] = nodes | frozenset(
            recording.ends.get(stream, frozenset()) if not nodes else ()
        )


@caught_by("test_event_is_not_moved_by_later_ones")
class ReusesEvents(Explicit):
    """An event that was destroyed is given out again, and those who wait for it wait for the new mark."""

    def open(self) -> None:
        self.unused: list[Event] = []

    def record_event(self, stream: Queue, *, timed: bool = False) -> Event:
        new = super().record_event(stream)
        if new.latch is None or not self.unused:
            return new
        event = self.unused.pop()
        event.latch = new.latch
        return event

    def wait_event(self, stream: Queue, event: Event) -> None:
        if stream.recording is None and event.recording is None:
            stream.put(lambda: event.latch.wait())  # type: ignore[union-attr]
        else:
            super().wait_event(stream, event)

    def destroy_event(self, event: Event) -> None:
        if event.latch is not None:
            self.unused.append(event)


@caught_by("test_nodes_after_an_event")
class MovesEvents(Explicit):
    """Each stream has one event, which marks what was recorded last."""

    def open(self) -> None:
        self.events: dict[Queue, Event] = {}

    def record_event(self, stream: Queue, *, timed: bool = False) -> Event:
        new = super().record_event(stream)
        event = self.events.setdefault(stream, new)
        event.latch, event.recording, event.nodes = new.latch, new.recording, new.nodes
        return event


@caught_by("test_several_streams_wait_for_one_event")
class EventsAreUsedUp(Explicit):
    """As a binary semaphore: one wait takes it."""

    def record_event(self, stream: Queue, *, timed: bool = False) -> Event:
        event = super().record_event(stream)
        if event.latch is not None:
            latch = event.latch
            latch.wait = lambda: (Latch.wait(latch), latch.event.clear())  # type: ignore[assignment]
        return event


@caught_by("test_event_outlives_its_stream")
class EventsDieWithTheirStream(Explicit):
    """What was on a stream runs, but nobody hears of its marks any more."""

    def wait_event(self, stream: Queue, event: Event) -> None:
        if not event.stream.closed:
            super().wait_event(stream, event)


@caught_by("test_event_marks_the_replays_before_it")
class EventsMissReplays(Explicit):
    """A mark is set behind the eager work of its stream."""

    def open(self) -> None:
        self.eager: dict[Queue, Latch] = {}

    def enqueue(self, stream: Queue, kind: str, run: Callable[[], object]) -> None:
        super().enqueue(stream, kind, run)
        if stream.recording is None:
            self.eager[stream] = Latch()
            stream.put(self.eager[stream].set)

    def record_event(self, stream: Queue, *, timed: bool = False) -> Event:
        event = super().record_event(stream)
        if event.latch is not None:
            event.latch = self.eager.get(stream) or Latch()
            if stream not in self.eager:
                event.latch.set()
        return event


@caught_by("test_replays_wait_for_events")
class ReplaysDoNotWait(Explicit):
    """Waits hold up eager work; replays go round them, once what is on the stream is done."""

    def open(self) -> None:
        self.waits: dict[Queue, list[Latch]] = {}

    def wait_event(self, stream: Queue, event: Event) -> None:
        if stream.recording is None and event.latch is not None:
            self.waits.setdefault(stream, []).append(event.latch)
        else:
            super().wait_event(stream, event)

    def enqueue(self, stream: Queue, kind: str, run: Callable[[], object]) -> None:
        if stream.recording is None:
            for latch in self.waits.pop(stream, []):
                stream.put(latch.wait)
        super().enqueue(stream, kind, run)


@caught_by("test_stream_that_waits_for_itself_goes_on")
class WaitsForItselfForEver(Explicit):
    def wait_event(self, stream: Queue, event: Event) -> None:
        if stream is event.stream and event.latch is not None and stream.recording is None:
            never = Latch()
            stream.put(never.wait)
        super().wait_event(stream, event)


@caught_by("test_wait_orders_streams")
class EventsMarkTheBeginning(Explicit):
    """An event is set at once."""

    def record_event(self, stream: Queue, *, timed: bool = False) -> Event:
        event = super().record_event(stream)
        if event.latch is not None:
            event.latch.set()
        return event


@caught_by("test_fork_and_join_keeps_the_order")
class JoinsWithoutOrder(CpuBackend):
    """A stream takes part in a capture, after nothing."""

    def wait_event(self, stream: Any, event: Any) -> None:
        joins = event.capture is not None and stream.capture is None
        super().wait_event(stream, event)
        if joins:
            del stream.capture._joins[stream.capture.streams[stream]]


@caught_by("test_query_says_whether_work_is_done")
class IsAlwaysDone(CpuBackend):
    def query(self, stream: Any) -> bool:
        super().query(stream)
        return True


@caught_by("test_query_says_whether_work_is_done")
class QueryMissesReplays(Explicit):
    """Counts the eager work."""

    def query(self, stream: Queue) -> bool:
        self.refuse_recording(stream)
        return all(getattr(each, "__func__", None) is OneRun.begin for each in list(stream.waiting))


@caught_by("test_several_streams_wait_for_one_event")
class OneStreamWaits(Explicit):
    """The last one that asks."""

    def wait_event(self, stream: Queue, event: Event) -> None:
        if event.latch is not None and stream.recording is None:
            event.waits = stream
            stream.put(lambda: event.latch.wait() if event.waits is stream else None)
        else:
            super().wait_event(stream, event)


@caught_by("test_replay_is_behind_the_streams_work")
class ReplaysOvertake(Explicit):
    """Graphs have a priority of their own."""

    def replay(self, executable: Executable, stream: Queue) -> None:
        super().replay(executable, stream)
        with stream.changed:
            if stream.waiting:
                stream.waiting.appendleft(stream.waiting.pop())


@caught_by("test_streams_of_two_devices_keep_the_order_or_refuse", work=WorkOfADevice)
class IgnoresEventsOfOtherDevices(TwoDevices):
    def open(self) -> None:
        super().open()
        self.recorded_on: dict[Any, int] = {}

    def record_event(self, stream: Any, *, timed: bool = False) -> Any:
        event = super().record_event(stream)
        if event.mark is not None:
            self.recorded_on[event.mark.worker] = self.device_of(stream)
        return event

    def wait_event(self, stream: Any, event: Any) -> None:
        latch = event.mark
        if latch is None or self.recorded_on[latch.worker] == self.device_of(stream):
            super().wait_event(stream, event)


@caught_by("test_capture_over_two_devices_keeps_the_order_or_is_refused", work=WorkOfADevice)
class ForksToOtherDevicesAtOnce(TwoDevices):
    """The branch of another device begins with the graph."""

    def wait_event(self, stream: Any, event: Any) -> None:
        if event.capture is not None and stream.capture is None and self.device_of(stream):
            event = CpuEvent(None, event.capture)
        super().wait_event(stream, event)


@caught_by("test_capture_over_two_devices_keeps_the_order_or_is_refused", work=WorkOfADevice)
class LeavesOtherDevicesOutOfCaptures(TwoDevices):
    """Their work runs at once."""

    def wait_event(self, stream: Any, event: Any) -> None:
        if event.capture is None or self.device_of(stream) == 0 == self.device_of(event.capture.origin):
            super().wait_event(stream, event)


@caught_by("test_wait_orders_streams")
class NobodyWaitsForTimedEvents(Explicit):
    def record_event(self, stream: Queue, *, timed: bool = False) -> Event:
        event = super().record_event(stream, timed=timed)
        if timed:
            event.timed = True  # type: ignore[attr-defined]
        return event

    def wait_event(self, stream: Queue, event: Event) -> None:
        if not hasattr(event, "timed"):
            super().wait_event(stream, event)


@caught_by("test_runs_of_a_new_executable_are_behind_the_former_runs")
class EventsMissTheLatestReplay(NothingNative):
    """An event marks the end of the work before a replay that is in progress."""

    def open(self) -> None:
        super().open()
        self.ends: dict[Any, CpuEvent] = {}

    def replay(self, executable: Any, stream: Any) -> None:
        end = super().record_event(stream)
        super().replay(executable, stream)
        if stream.capture is None:
            self.ends[stream] = end

    def _enqueue(self, stream: Any, *work: Any) -> None:
        self.ends.pop(stream, None)
        super()._enqueue(stream, *work)

    def record_event(self, stream: Any, *, timed: bool = False) -> CpuEvent:
        new = super().record_event(stream)
        return new if stream.capture is not None else self.ends.get(stream, new)


@caught_by("test_runs_of_a_new_executable_are_behind_the_former_runs")
class SynchronizeMissesReplaysWithoutEvents(SynchronizeMissesReplays):
    """The library has nothing else to wait with."""

    def capabilities(self, device: int) -> Any:
        return super().capabilities(device) - {Capability.EVENTS}


# ---- events that cross the border of a capture ---------------------------------------------------


@caught_by(
    "test_external_event_orders_two_graphs",
    "test_external_event_recorded_outside_orders_a_graph",
)
class GraphsWaitForNothing(CrossesBorders):
    def wait_external(self, stream: Any, event: MovingEvent) -> None:
        if stream.capture is None:
            super().wait_external(stream, event)


@caught_by("test_external_event_recorded_in_a_graph_orders_what_is_outside")
class MarksTheFirstReplay(CrossesBorders):
    """A replay does not move the event again."""

    def requested(self, nodes: Any) -> None:
        for node in nodes:
            crossing = node.call[0]
            if node.kind == "event_record" and crossing.event.done is not None:
                crossing.runs.append(crossing.event.done)
            else:
                super().requested([node])


@caught_by("test_external_event_recorded_outside_orders_a_graph")
class WaitsForWhatTheCaptureSaw(CrossesBorders):
    """A graph waits for what the event has marked in the capture."""

    def wait_external(self, stream: Any, event: MovingEvent) -> None:
        then = MovingEvent()
        then.done = event.done
        super().wait_external(stream, event if stream.capture is None else then)


@caught_by("test_external_event_recorded_in_a_graph_orders_what_is_outside")
class WaitsForARecordToCome(CrossesBorders):
    def record_external(self, stream: Any, event: Any = None, *, timed: bool = False) -> MovingEvent:
        if event is None:
            event = MovingEvent()
            event.done = threading.Event()
        return super().record_external(stream, event)


@caught_by("test_external_events_join_no_captures")
class ExternalEventsJoinCaptures(CrossesBorders):
    def wait_external(self, stream: Any, event: MovingEvent) -> None:
        if event.capture is not None and event.capture.status is CaptureStatus.ACTIVE:
            self.captures.link(stream, event)
        else:
            super().wait_external(stream, event)
