"""Events that are wrong about what is done, or when."""

from __future__ import annotations

import threading
import time
from typing import Any

from accelerator_graph.backends._cpu.contents import Mark
from accelerator_graph.backends._cpu.graph import Graph
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.backends.recording import Event as CpuEvent
from kit.explicit_runtime import Event, Explicit, Queue
from kit.planted.collection import caught_by


class AsksEvents(CpuBackend):
    """Leads questions about events to methods of their own, which the bugs below are in."""

    def query(self, stream: Any) -> bool:
        return self.query_event(stream) if isinstance(stream, CpuEvent) else super().query(stream)

    def query_event(self, event: Any) -> bool:
        return super().query(event)

    def synchronize(self, stream: Any) -> None:
        (self.synchronize_event if isinstance(stream, CpuEvent) else super().synchronize)(stream)

    def synchronize_event(self, event: Any) -> None:
        super().synchronize(event)


@caught_by("test_event_is_done_when_the_work_before_it_is")
class EventsAreDoneAtOnce(AsksEvents):
    def query_event(self, event: Any) -> bool:
        return True


@caught_by("test_event_is_done_when_the_work_before_it_is", "test_elapsed_time_is_in_milliseconds")
class DoesNotWaitForEvents(AsksEvents):
    def synchronize_event(self, event: Any) -> None:
        pass


@caught_by("test_event_does_not_wait_for_later_work")
class WaitsForTheWholeStream(AsksEvents):
    def synchronize_event(self, event: Any) -> None:
        event.mark.worker.synchronize()


@caught_by("test_elapsed_time_is_in_milliseconds")
class TimesInSeconds(CpuBackend):
    def elapsed_time(self, start: Any, end: Any) -> float | None:
        passed = super().elapsed_time(start, end)
        return None if passed is None else passed / 1000


@caught_by("test_elapsed_time_is_in_milliseconds")
class TimesInMicroseconds(Explicit):
    def elapsed_time(self, start: Event, end: Event) -> float | None:
        passed = super().elapsed_time(start, end)
        return None if passed is None else passed * 1000


@caught_by("test_elapsed_time_is_in_milliseconds")
class TimesHaveNoSign(Explicit):
    def elapsed_time(self, start: Event, end: Event) -> float | None:
        passed = super().elapsed_time(start, end)
        return None if passed is None else abs(passed)


@caught_by("test_time_of_undone_work_is_refused")
class TimesUndoneWork(Explicit):
    """What is not done counts until now."""

    def elapsed_time(self, start: Event, end: Event) -> float | None:
        if self.query_event(end):
            return super().elapsed_time(start, end)
        return (time.perf_counter() - self.latch(start).time) * 1000


@caught_by("test_time_of_a_replay_is_the_time_of_its_work")
class NotesTheTimeOfTheCall(Explicit):
    """The time at which an event was recorded, instead of the time at which the stream got there."""

    def record_event(self, stream: Queue, *, timed: bool = False) -> Event:
        event = super().record_event(stream, timed=timed)
        event.called = time.perf_counter()  # type: ignore[attr-defined]
        return event

    def elapsed_time(self, start: Any, end: Any) -> float | None:
        passed: float = end.called - start.called
        return passed * 1000


@caught_by("test_event_can_be_read_after_its_stream_and_on_any_thread")
class EventsOfAThread(AsksEvents):
    """Events belong to the thread that has recorded them."""

    def open(self) -> None:
        super().open()
        self.local = threading.local()

    def record_event(self, stream: Any, *, timed: bool = False) -> Any:
        event = super().record_event(stream, timed=timed)
        self.local.__dict__.setdefault("events", []).append(event)
        return event

    def synchronize_event(self, event: Any) -> None:
        if event in self.local.__dict__.get("events", ()):
            super().synchronize_event(event)


@caught_by("test_event_can_be_read_after_its_stream_and_on_any_thread")
class EventsGoWithTheirStream(Explicit):
    """The time of an event is lost with its stream."""

    def elapsed_time(self, start: Event, end: Event) -> float | None:
        return 0.0 if end.stream.closed else super().elapsed_time(start, end)


@caught_by("test_events_and_queries_wait_for_nothing")
class QueriesOfEventsWait(AsksEvents):
    def query_event(self, event: Any) -> bool:
        self.synchronize_event(event)
        return True


@caught_by("test_waiting_for_an_event_holds_up_no_other_thread")
class OneLockForEvents(Explicit):
    def open(self) -> None:
        self.lock = threading.RLock()

    def synchronize_event(self, event: Event) -> None:
        with self.lock:
            super().synchronize_event(event)

    def query(self, stream: Queue) -> bool:
        with self.lock:
            return super().query(stream)


@caught_by("test_answers_about_events_have_their_types")
class AnswersWithNumbers(AsksEvents):
    def query_event(self, event: Any) -> bool:
        return int(super().query_event(event))  # type: ignore[return-value]


@caught_by("test_methods_without_their_capability_are_unsupported")
class TimesWithoutSayingSo(CpuBackend):
    def capabilities(self, device: int) -> Any:
        return super().capabilities(device) - {"timing"}

    def elapsed_time(self, start: Any, end: Any) -> float | None:
        return 0.0


@caught_by("test_graph_events_have_the_work_between_them")
class EventsOfTheFirstRun(CpuBackend):
    """The events of a graph stay where its first run has recorded them."""

    def open(self) -> None:
        super().open()
        self.first: dict[Any, int] = {}

    def elapsed_time(self, start: Any, end: Any) -> float | None:
        passed = super().elapsed_time(start, end)
        if passed is not None and isinstance(end.mark, Mark):
            passed = (self.first.setdefault(end.mark, end.mark.time) - start.mark.time) / 1e6
        return passed


@caught_by("test_graph_events_stand_where_they_are_asked_for")
class EventsAfterInsteadOfBefore(CpuBackend):
    def instantiate_timed(self, graph: Any, before: Any, after: Any) -> Any:
        nodes = len(graph.nodes)
        executable, events = super().instantiate_timed(graph, [nodes // 2], [*range(nodes)])
        return executable, [*(events[1 + node] for node in before), *(events[1 + node] for node in after)]


@caught_by("test_graph_events_stand_where_they_are_asked_for")
class EventsAtTheStart(CpuBackend):
    """Every event is before its node."""

    def instantiate_timed(self, graph: Any, before: Any, after: Any) -> Any:
        executable, events = super().instantiate_timed(graph, sorted({*before, *after}), [])
        order = sorted({*before, *after})
        return executable, [events[order.index(node)] for node in (*before, *after)]


@caught_by("test_graph_events_keep_every_dependency")
class LosesDependencies(CpuBackend):
    """The copy with events has no order between its branches."""

    def instantiate_timed(self, graph: Any, before: Any, after: Any) -> Any:
        alone = Graph([node._replace(after=()) for node in graph.nodes])
        return super().instantiate_timed(alone, before, after)


@caught_by("test_graph_events_keep_every_dependency")
class DoesNoWork(CpuBackend):
    """The copy with events has the events alone."""

    def instantiate_timed(self, graph: Any, before: Any, after: Any) -> Any:
        idle = Graph([node._replace(call=(int, (), {}, None)) for node in graph.nodes])
        return super().instantiate_timed(idle, before, after)


@caught_by("test_event_can_be_read_after_its_stream_and_on_any_thread")
class EventsOfClosedStreamsAreDone(Explicit):
    def query_event(self, event: Event) -> bool:
        return event.stream.closed or super().query_event(event)
