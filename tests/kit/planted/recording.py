"""Captures that run, lose, or mix up what is enqueued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accelerator_graph.backends.base import (
    CaptureStatus,
)
from accelerator_graph.backends.cpu import CpuBackend
from kit.explicit_runtime import Entry, Executable, Explicit, Queue, Recording
from kit.planted.collection import caught_by


@caught_by("test_capturing_does_not_run_the_work")
class RunsWhileCapturing(CpuBackend):
    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        if self.capture_status(stream) is CaptureStatus.ACTIVE:
            work(*args, **how)
        super().launch(stream, work, *args, **how)


@caught_by("test_fill_and_copy_are_recorded")
class FillIgnoresCaptures(CpuBackend):
    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        view = memoryview(dst)
        view[: len(view) if nbytes is None else nbytes] = bytes([value]) * (
            len(view) if nbytes is None else nbytes
        )


@caught_by("test_work_of_another_thread_is_not_captured_on_another_stream")
class CapturesEveryStream(CpuBackend):
    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        for capture in self.captures._open:
            stream = next(iter(capture.streams))
        super().launch(stream, work, *args, **how)


@caught_by("test_work_under_way_when_a_capture_begins_is_not_recorded")
class RecordsWhatIsUnderWay(Explicit):
    """What its thread comes to while the stream records is written down."""

    def enqueue(self, stream: Queue, kind: str, run: Callable[[], object]) -> None:
        if stream.recording is not None:
            super().enqueue(stream, kind, run)
        else:
            stream.put(
                lambda: (
                    run() if stream.recording is None else super(type(self), self).enqueue(stream, kind, run)
                )
            )


@caught_by("test_several_graphs_of_one_stream_are_independent")
class SharesTheRecording(Explicit):
    """All graphs of a stream are one list."""

    def open(self) -> None:
        self.lists: dict[Queue, list[Entry]] = {}

    def capture_begin(self, stream: Queue, mode: str) -> Recording:
        token = super().capture_begin(stream, mode)
        token.entries = self.lists.setdefault(stream, [])
        token.entries.clear()
        return token

    def instantiate(self, graph: Any) -> Executable:
        return Executable(graph)


@caught_by("test_work_under_way_when_a_capture_begins_is_not_recorded")
class BeginDropsWorkUnderWay(CpuBackend):
    def capture_begin(self, stream: Any, mode: str) -> Any:
        stream.worker._pending.clear()
        return super().capture_begin(stream, mode)


@caught_by("test_fill_and_copy_are_recorded")
class CopyReadsItsSourceWhenRecorded(CpuBackend):
    """Replays copy what was there during the capture."""

    def copy(self, stream: Any, dst: Any, src: Any, nbytes: int | None) -> None:
        super().copy(stream, dst, bytes(src) if self.capture_status(stream) != "none" else src, nbytes)


@caught_by("test_fill_sets_bytes")
class FillsAll(CpuBackend):
    """Takes no notice of the number of bytes."""

    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        super().fill(stream, dst, value, None if nbytes is None or nbytes <= len(dst) else nbytes)


@caught_by("test_large_capture_is_whole")
class BuffersRunOver(CpuBackend):
    """A recording has room for 512 nodes."""

    def capture_end(self, token: Any) -> Any:
        graph = super().capture_end(token)
        graph.nodes = graph.nodes[:512]
        return graph


@caught_by("test_fill_and_copy_are_recorded")
class FillsAreNotRecorded(Explicit):
    """Fills are no kernels, and run at once."""

    def enqueue(self, stream: Queue, kind: str, run: Callable[[], object]) -> None:
        if kind == "memset":
            stream.put(run)
        else:
            super().enqueue(stream, kind, run)


@caught_by("test_capturing_does_not_run_the_work")
class RecordsAndRuns(Explicit):
    def enqueue(self, stream: Queue, kind: str, run: Callable[[], object]) -> None:
        super().enqueue(stream, kind, run)
        if stream.recording is not None:
            stream.put(run)


@caught_by("test_captures_nest_on_different_streams")
class OneRecordingAtATime(Explicit):
    """The work of all streams goes to the recording that was begun last."""

    latest: Recording | None = None

    def capture_begin(self, stream: Queue, mode: str) -> Recording:
        self.latest = super().capture_begin(stream, mode)
        return self.latest

    def enqueue(self, stream: Queue, kind: str, run: Callable[[], object]) -> None:
        if stream.recording is not None and self.latest is not None and not self.latest.over:
            stream = self.latest.first
        super().enqueue(stream, kind, run)


PAGE = 4096


def cut(dst: Any, nbytes: int | None) -> int:
    """Return how many bytes are meant, but no more than a page."""
    return min(PAGE, len(memoryview(dst)) if nbytes is None else nbytes)


@caught_by("test_fill_and_copy_of_large_memory")
class FillsAPage(CpuBackend):
    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        super().fill(stream, dst, value, cut(dst, nbytes))


@caught_by("test_fill_and_copy_of_large_memory")
class CopiesAPageInCaptures(CpuBackend):
    def copy(self, stream: Any, dst: Any, src: Any, nbytes: int | None) -> None:
        captured = self.capture_status(stream) is CaptureStatus.ACTIVE
        super().copy(stream, dst, src, cut(src, nbytes) if captured else nbytes)


@caught_by("test_fill_and_copy_of_large_memory")
class CountsBytesWith16Bits(Explicit):
    def view(self, buffer: Any, nbytes: int | None, *, writable: bool = True) -> memoryview:
        found = super().view(buffer, nbytes, writable=writable)
        return found[: len(found) & 0xFFFF]


@caught_by("test_fill_and_copy_of_a_part_of_memory")
class FillsFromTheBeginning(CpuBackend):
    """A fill ignores where in other memory its own begins."""

    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        if isinstance(dst, memoryview):
            dst, nbytes = dst.obj, len(dst) if nbytes is None else nbytes
        super().fill(stream, dst, value, nbytes)


@caught_by("test_fill_and_copy_of_a_part_of_memory")
class CopiesFromTheBeginning(Explicit):
    """A copy ignores where in other memory its source begins."""

    def copy(self, stream: Queue, dst: Any, src: Any, nbytes: int | None) -> None:
        if isinstance(src, memoryview):
            src, nbytes = src.obj, len(src) if nbytes is None else nbytes
        super().copy(stream, dst, src, nbytes)
