"""Errors that are swallowed, late, or of the wrong kind."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import (
    CaptureStatus,
)
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.errors import DriverError
from kit.explicit_runtime import Event, Explicit, Queue, Recording
from kit.planted.collection import caught_by
from kit.planted.without_a_fault import EveryCapability, LaunchesKernels, kernel
from kit.planted.works import KernelWork


@caught_by(
    "test_wait_for_an_event_from_before_the_capture_is_refused",
    "test_wait_for_an_event_of_its_own_from_before_the_capture_is_refused",
    "test_wait_for_a_stream_outside_the_capture_is_refused",
    "test_forked_stream_can_not_wait_for_a_stream_outside",
)
class IgnoresEventsFromOutside(CpuBackend):
    def wait_event(self, stream: Any, event: Any) -> None:
        if stream.capture is None or event.capture is not None:
            super().wait_event(stream, event)


@caught_by("test_wait_for_a_stream_outside_the_capture_is_refused")
class WaitsForTheOutsideAtOnce(CpuBackend):
    """Waits while capturing, so that the replays wait for nothing."""

    def wait_event(self, stream: Any, event: Any) -> None:
        if stream.capture is None or event.capture is not None:
            super().wait_event(stream, event)
        else:
            event.mark.wait()


@caught_by("test_wait_for_an_event_of_an_ended_capture_is_refused")
class AcceptsEventsOfEndedCaptures(CpuBackend):
    def wait_event(self, stream: Any, event: Any) -> None:
        if event.capture is None or event.capture.status is not CaptureStatus.NONE:
            super().wait_event(stream, event)


@caught_by("test_wait_for_an_event_of_another_capture_is_refused")
class IgnoresEventsOfOtherCaptures(CpuBackend):
    def wait_event(self, stream: Any, event: Any) -> None:
        if stream.capture in (None, event.capture) or event.capture is None:
            super().wait_event(stream, event)


@caught_by("test_wait_for_an_event_from_before_the_capture_is_refused")
class ForgetsWhatAWaitHasBroken(CpuBackend):
    """The call raises, the capture is invalidated, and it becomes a graph all the same."""

    def wait_event(self, stream: Any, event: Any) -> None:
        try:
            super().wait_event(stream, event)
        except ag.DriverError:
            self.broken_by_a_wait = stream.capture
            raise

    def capture_end(self, token: Any) -> Any:
        if token is getattr(self, "broken_by_a_wait", None):
            token.status = CaptureStatus.ACTIVE
        return super().capture_end(token)


@caught_by("test_capture_is_a_graph_only_if_it_is_active")
class ErrorsHaveNoReason(CpuBackend):
    def synchronize(self, stream: Any) -> None:
        try:
            super().synchronize(stream)
        except ag.DriverError as error:
            raise ag.DriverError(str(error)) from None


@caught_by("test_capture_is_a_graph_only_if_it_is_active")
class RefusesWithTheVendorsError(Explicit):
    def refuse_recording(self, stream: Queue) -> None:
        if stream.recording is not None:
            raise RuntimeError("RT_ERROR_STREAM_RECORDING")


@caught_by("test_query_says_whether_work_is_done")
class QueryRaisesForWorkInProgress(Explicit):
    def query(self, stream: Queue) -> bool:
        if not super().query(stream):
            raise RuntimeError("RT_NOT_READY")
        return True


@caught_by(
    "test_wrong_memory_is_refused_before_anything_is_enqueued", "test_wrong_memory_does_not_hurt_a_capture"
)
class FillChecksTooLate(CpuBackend):
    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        fill = partial(super().fill, self.create_stream(0), dst, value, nbytes)

        def when_it_runs() -> None:
            with suppress(TypeError, ValueError):
                fill()

        self.launch(stream, when_it_runs)


@caught_by("test_wrong_memory_is_refused_before_anything_is_enqueued")
class ClipsMemory(Explicit):
    def view(self, buffer: Any, nbytes: int | None, *, writable: bool = True) -> memoryview:
        return memoryview(buffer).cast("B")[:nbytes]


@caught_by("test_priorities_are_clamped")
class PrioritiesOutOfRange(CpuBackend):
    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Any:
        if abs(priority) > 5:
            raise ag.DriverError("priority")
        return super().create_stream(device, like=like, priority=priority)


@caught_by("test_unjoined_fork_is_a_capture_error")
class EndRefusesWithoutAReason(Explicit):
    def unjoined(self) -> DriverError:
        return DriverError("a fork was not joined.")


@caught_by("test_capture_is_a_graph_only_if_it_is_active")
class WaitsInACaptureInSilence(CpuBackend):
    """Returns from `synchronize` as if a captured stream had no work, and breaks the capture."""

    def synchronize(self, stream: Any) -> None:
        with suppress(DriverError):
            super().synchronize(stream)


@caught_by("test_capture_is_a_graph_only_if_it_is_active")
class AnswersQueriesInACapture(CpuBackend):
    def query(self, stream: Any) -> bool:
        return True if stream.capture is not None else super().query(stream)


@caught_by("test_wrong_memory_is_refused_before_anything_is_enqueued")
class WritesWhatIsReadOnly(Explicit):
    """Says yes to memory that can't be written, and drops the work."""

    def view(self, buffer: Any, nbytes: int | None, *, writable: bool = True) -> memoryview:
        if isinstance(buffer, bytes) and writable:
            buffer = bytearray(buffer)
        return super().view(buffer, nbytes, writable=writable)


@caught_by("test_wrong_memory_does_not_hurt_a_capture")
class AWrongArgumentEndsTheRecording(Explicit):
    def view(self, buffer: Any, nbytes: int | None, *, writable: bool = True) -> memoryview:
        try:
            return super().view(buffer, nbytes, writable=writable)
        except (TypeError, ValueError):
            for thread_local in list(self.begun):
                thread_local.close()
            raise

    def open(self) -> None:
        self.begun: list[Recording] = []

    def capture_begin(self, stream: Queue, mode: str) -> Recording:
        self.begun.append(super().capture_begin(stream, mode))
        return self.begun[-1]


@caught_by("test_wait_for_an_event_of_another_capture_is_refused")
class MergesRecordings(Explicit):
    """Waits for an event of another recording by taking part in both."""

    def wait_event(self, stream: Queue, event: Event) -> None:
        if stream.recording is None or event.recording in (None, stream.recording) or event.recording.over:
            super().wait_event(stream, event)


@caught_by("test_wait_for_an_event_of_an_ended_capture_is_refused")
class OldEventsAreDone(Explicit):
    """An event of a recording that has ended counts as done."""

    def wait_event(self, stream: Queue, event: Event) -> None:
        if event.recording is None or not event.recording.over:
            super().wait_event(stream, event)


@caught_by("test_what_is_no_stream_is_refused")
class TakesAnythingForAStream(CpuBackend):
    def as_stream(self, obj: object) -> Any:
        return super().as_stream(obj) or self.create_stream(0)


@caught_by("test_what_is_no_stream_is_refused")
class RefusesStreamsWithTheVendorsError(CpuBackend):
    """Raises what the library raises then, so that no caller sees whose it is."""

    def as_stream(self, obj: object) -> Any:
        if super().as_stream(obj) is None:
            raise TypeError("RT_ERROR_INVALID_STREAM")
        return obj


@caught_by("test_runtimes_own_object_stands_for_the_stream")
class TakesStreamsForOthers(EveryCapability):
    """The runtime's own object stands for a new stream."""

    def as_stream(self, obj: object) -> Any:
        found = super().as_stream(obj)
        return found if found is None or isinstance(obj, int) else self.create_stream(0)


@caught_by("test_without_handles_there_are_none")
class TakesIntsForStreams(CpuBackend):
    """Without the capability for handles."""

    def as_stream(self, obj: object) -> Any:
        return self.create_stream(0) if type(obj) is int else super().as_stream(obj)


@caught_by("test_wrong_launch_is_refused_before_anything_is_enqueued", work=KernelWork)
class IgnoresUnknownKeywords(LaunchesKernels):
    def launch(self, stream: Any, work: Any, /, *args: Any, grid: Any = 1, **how: Any) -> None:
        super().launch(stream, work, *args, grid=grid)


@caught_by("test_wrong_launch_is_refused_before_anything_is_enqueued", work=KernelWork)
class ChecksArgumentsWhenTheyAreUsed(LaunchesKernels):
    def launch(self, stream: Any, work: Any, /, *args: Any, grid: Any = 1) -> None:
        def run() -> None:
            with suppress(Exception):
                kernel(*args)

        if work is kernel:
            CpuBackend.launch(self, stream, run)
        else:
            super().launch(stream, work, *args)
