"""Faults that many programs would meet, for rules that no other topic has a fault for."""

from __future__ import annotations

from typing import Any, ClassVar

from accelerator_graph.backends.base import CaptureStatus, Misfit
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.backends.recording import Graph
from accelerator_graph.errors import CaptureError
from kit.command_lists import CommandLists, Executable, ListsWork, Stream
from kit.command_lists import Event as ListsEvent
from kit.explicit_runtime import Explicit, Queue, Recording
from kit.planted.collection import caught_by
from kit.planted.without_a_fault import EveryCapability

# ---- captures ----------------------------------------------------------------------------------


@caught_by(
    "test_entering_inside_a_capture_records_or_refuses",
    "test_entering_again_inside_a_capture_keeps_the_order",
    work=ListsWork,
)
class CapturedEventsMarkNothing(CommandLists):
    def record_event(self, stream: Stream, *, timed: bool = False) -> ListsEvent:
        event = super().record_event(stream, timed=timed)
        return event if event.capture is None else ListsEvent(None, event.capture)


@caught_by("test_broken_capture_can_be_reset")
class BrokenCapturesCanNotBeAbandoned(CpuBackend):
    def capture_abandon(self, token: Any) -> None:
        if token.status is not CaptureStatus.INVALIDATED:
            super().capture_abandon(token)


@caught_by("test_capture_is_a_graph_only_if_it_is_active")
class IllegalCallsAreSilent(CpuBackend):
    def synchronize(self, stream: Any) -> None:
        if stream.capture is None:
            super().synchronize(stream)


@caught_by("test_two_pools_take_two_captures_at_once")
class OneCaptureAtATime(Explicit):
    latest: ClassVar[list[Recording]] = []

    def capture_begin(self, stream: Queue, mode: str) -> Recording:
        if any(not each.over for each in self.latest):
            raise CaptureError("there is a capture already.", reason="illegal_call")
        self.latest[:] = [super().capture_begin(stream, mode)]
        return self.latest[0]


@caught_by("test_replay_beside_a_capture")
class NoReplayBesideACapture(OneCaptureAtATime):
    def replay(self, executable: Any, stream: Queue) -> None:
        if any(not each.over for each in self.latest):
            raise CaptureError("there is a capture.", reason="illegal_call")
        super().replay(executable, stream)


@caught_by("test_streams_made_and_dropped_during_a_capture_leave_it_valid")
class NewStreamsEndCaptures(OneCaptureAtATime):
    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Queue:
        for each in self.latest:
            each.close()
        return super().create_stream(device)


@caught_by("test_exception_after_a_fork_frees_all_streams", "test_reset_after_a_fork_frees_all_streams")
class AbandonedForksGoOnRecording(Explicit):
    def capture_abandon(self, token: Recording) -> None:
        token.first.recording = None


# ---- replays and updates -----------------------------------------------------------------------


@caught_by("test_replays_from_several_threads_are_all_counted", work=ListsWork)
class DropsRunsWhileOneIsUnderWay(CommandLists):
    def replay(self, executable: Executable, stream: Stream) -> None:
        if not executable.runs:
            super().replay(executable, stream)


@caught_by("test_runs_of_two_graphs_on_one_stream_do_not_mix", work=ListsWork)
class RunsWhatWasMadeLast(CommandLists):
    made: Executable

    def instantiate(self, graph: Graph) -> Executable:
        self.made = super().instantiate(graph)
        return self.made

    def replay(self, executable: Executable, stream: Stream) -> None:
        super().replay(self.made, stream)


@caught_by("test_recapture_replaces_the_work", work=ListsWork)
class UpdatesNothing(CommandLists):
    def update(self, executable: Executable, former: Graph, graph: Graph) -> Misfit | None:
        return None


# ---- memory and handles ------------------------------------------------------------------------


@caught_by("test_copy_copies_bytes", work=ListsWork)
class CopiesReadWhenTheyAreEnqueued(CommandLists):
    def copy(self, stream: Stream, dst: Any, src: Any, nbytes: int | None) -> None:
        super().copy(stream, dst, bytes(src), nbytes)


@caught_by("test_raw_handles_are_ints")
class HandlesAreWords(EveryCapability):
    def handle_int(self, obj: Any) -> Any:
        return hex(super().handle_int(obj))
