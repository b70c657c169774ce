"""Captures that end wrongly, or not at all."""

from __future__ import annotations

import threading
from copy import copy
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends._cpu.graph import graph_of
from accelerator_graph.backends.base import (
    CaptureStatus,
)
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.errors import DriverError
from kit.explicit_runtime import Explicit, Queue, Recording
from kit.planted.collection import caught_by
from kit.planted.without_a_fault import EveryCapability


@caught_by(
    "test_swallowed_illegal_call_is_a_capture_error_at_the_end",
    "test_swallowed_illegal_call_is_a_capture_error_by_hand",
    "test_capture_is_a_graph_only_if_it_is_active",
)
class ForgetsThatACaptureIsBroken(CpuBackend):
    def capture_end(self, token: Any) -> Any:
        token.status = CaptureStatus.ACTIVE
        return super().capture_end(token)


@caught_by(
    "test_exception_in_the_body_passes_unchanged",
    "test_reset_abandons_a_capture",
    "test_capture_abandon_ends_the_capture",
    "test_capture_of_a_thread_that_ended_is_abandoned",
)
class NeverAbandons(CpuBackend):
    def capture_abandon(self, token: Any) -> None:
        pass


@caught_by("test_borrowed_captures_can_be_abandoned")
class BorrowersEndNothing(EveryCapability):
    def borrow_capture(self, stream: Any) -> Any:
        return copy(super().borrow_capture(stream))

    def capture_abandon(self, token: Any) -> None:
        if token in self.captures._open:
            super().capture_abandon(token)


@caught_by("test_capture_abandon_twice_is_harmless")
class AbandonsTheNextCapture(CpuBackend):
    def capture_abandon(self, token: Any) -> None:
        super().capture_abandon(token)
        for capture in list(self.captures._open):
            super().capture_abandon(capture)


@caught_by("test_interrupted_capture_begin_leaves_no_capture")
class BeginsBeforeItNotes(CpuBackend):
    def capture_begin(self, stream: Any, mode: str) -> Any:
        token = super().capture_begin(stream, mode)
        self.note(token)
        return token

    def note(self, token: Any) -> None:
        pass


@caught_by("test_interrupted_capture_end_leaves_no_capture")
class NotesTheEndBeforeItEnds(CpuBackend):
    def capture_end(self, token: Any) -> Any:
        self.ended = token
        return super().capture_end(token)

    def capture_abandon(self, token: Any) -> None:
        if token is not getattr(self, "ended", None):
            super().capture_abandon(token)


@caught_by("test_unjoined_fork_is_a_capture_error")
class AcceptsUnjoinedWork(CpuBackend):
    def capture_end(self, token: Any) -> Any:
        work = token.recorded()
        try:
            return super().capture_end(token)
        except ag.DriverError:
            return graph_of(work)


@caught_by("test_reset_after_a_fork_frees_all_streams")
class AbandonLeavesForks(Explicit):
    def capture_abandon(self, token: Recording) -> None:
        token.over = True
        token.first.recording = None


@caught_by("test_capture_abandon_after_the_end_leaves_the_graph")
class AbandonTakesTheGraph(Explicit):
    def capture_abandon(self, token: Recording) -> None:
        super().capture_abandon(token)
        token.entries.clear()


@caught_by(
    "test_capture_is_a_graph_only_if_it_is_active",
    "test_swallowed_illegal_call_is_a_capture_error_at_the_end",
)
class MakesAGraphOfABrokenRecording(Explicit):
    """An illegal call breaks a recording here, and nobody looks at that when it ends."""

    def open(self) -> None:
        self.broken: set[Recording] = set()

    def refuse_recording(self, stream: Queue) -> None:
        if stream.recording is not None:
            self.broken.add(stream.recording)
        super().refuse_recording(stream)

    def capture_status(self, stream: Queue) -> CaptureStatus:
        if stream.recording in self.broken:
            return CaptureStatus.INVALIDATED
        return super().capture_status(stream)


@caught_by("test_capture_end_that_raises_leaves_no_capture")
class EndThatRaisesEndsNothing(Explicit):
    def capture_end(self, token: Recording) -> Any:
        try:
            return super().capture_end(token)
        except DriverError:
            for stream in token.ends:
                stream.recording = token
            raise


@caught_by("test_capture_end_that_raises_leaves_no_capture")
class OneJoinIsEnough(Explicit):
    """Takes work for joined that is enqueued after its stream was joined."""

    def link(self, recording: Recording, stream: Queue, nodes: frozenset[int]) -> None:
        super().link(recording, stream, nodes)
        recording.joined = stream is recording.first

    def capture_end(self, token: Recording) -> Any:
        if not getattr(token, "joined", False):
            return super().capture_end(token)
        token.close()
        return token.entries


@caught_by("test_forked_stream_can_be_captured_afterwards")
class EndLeavesForks(CpuBackend):
    """The end of a capture is the end for its first stream only."""

    def capture_end(self, token: Any) -> Any:
        forks = [stream for stream in token.streams if stream is not token.origin]
        graph = super().capture_end(token)
        for stream in forks:
            stream.capture = super().capture_begin(self.create_stream(0), "relaxed")
        return graph


@caught_by("test_capture_abandon_ends_the_capture")
class AbandonRaises(CpuBackend):
    def capture_abandon(self, token: Any) -> None:
        super().capture_abandon(token)
        raise DriverError("the recording was not whole.")


@caught_by("test_capture_abandon_twice_is_harmless")
class AbandonsOnce(CpuBackend):
    def capture_abandon(self, token: Any) -> None:
        self.captures._open.remove(token)
        super().capture_abandon(token)


@caught_by("test_reset_abandons_the_capture_of_a_thread_that_has_ended")
class AbandonNeedsItsThread(CpuBackend):
    def capture_abandon(self, token: Any) -> None:
        if token.thread is threading.current_thread():
            super().capture_abandon(token)


@caught_by("test_swallowed_illegal_call_is_a_capture_error_by_hand")
class EndHidesTheReason(CpuBackend):
    def capture_end(self, token: Any) -> Any:
        try:
            return super().capture_end(token)
        except DriverError as error:
            raise DriverError(f"{error}", reason="other") from None


@caught_by("test_failures_do_not_add_up")
class AbandonLeaks(Explicit):
    """An abandoned recording takes a place for ever, and there are twenty."""

    def open(self) -> None:
        self.places = 20

    def capture_begin(self, stream: Queue, mode: str) -> Recording:
        if not self.places:
            raise DriverError("there is no room for a recording.", reason="out_of_memory")
        self.places -= 1
        return super().capture_begin(stream, mode)

    def capture_end(self, token: Recording) -> Any:
        self.places += 1
        return super().capture_end(token)


@caught_by("test_exception_in_the_body_passes_unchanged")
class AbandonMakesAGraph(Explicit):
    """What was recorded before the exception runs."""

    def capture_abandon(self, token: Recording) -> None:
        over = token.over
        super().capture_abandon(token)
        if not over:
            for entry in token.entries:
                entry.run()


@caught_by("test_capture_abandon_twice_is_harmless")
class AbandonGoesByTheStream(Explicit):
    """An old token ends the stream's next recording."""

    def capture_abandon(self, token: Recording) -> None:
        if token.first.recording is not None:
            super().capture_abandon(token.first.recording)
