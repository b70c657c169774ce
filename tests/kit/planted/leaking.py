"""Objects of the runtime that are never released."""

from __future__ import annotations

from typing import Any, ClassVar

from accelerator_graph.backends.cpu import CpuBackend
from kit.explicit_runtime import Event, Executable, Explicit, Queue, Recording
from kit.planted.collection import caught_by


@caught_by("test_captures_and_replays_leave_nothing_alive")
class KeepsExecutables(CpuBackend):
    kept: ClassVar[list[Any]] = []

    def destroy_executable(self, executable: Any) -> None:
        self.kept.append(executable)
        super().destroy_executable(executable)


@caught_by("test_captures_that_fail_leave_nothing_alive")
class KeepsAbandonedCaptures(CpuBackend):
    kept: ClassVar[list[Any]] = []

    def capture_abandon(self, token: Any) -> None:
        self.kept.append(token)
        super().capture_abandon(token)


@caught_by("test_streams_and_events_leave_nothing_alive")
class KeepsEvents(CpuBackend):
    kept: ClassVar[list[Any]] = []

    def record_event(self, stream: Any, *, timed: bool = False) -> Any:
        self.kept.append(super().record_event(stream))
        return self.kept[-1]


@caught_by("test_replays_leave_nothing_alive", "test_captures_and_replays_leave_nothing_alive")
class MakesAnExecutableForEachRun(Explicit):
    kept: ClassVar[list[Any]] = []

    def replay(self, executable: Executable, stream: Queue) -> None:
        if stream.recording is None:
            self.kept.append(Executable(executable.entries))
        super().replay(executable, stream)


@caught_by("test_captures_that_fail_leave_nothing_alive", "test_captures_and_replays_leave_nothing_alive")
class KeepsRecordings(Explicit):
    kept: ClassVar[list[Any]] = []

    def capture_begin(self, stream: Queue, mode: str) -> Recording:
        self.kept.append(super().capture_begin(stream, mode))
        recording: Recording = self.kept[-1]
        return recording


@caught_by("test_streams_and_events_leave_nothing_alive")
class KeepsEventsOfQueues(Explicit):
    kept: ClassVar[list[Any]] = []

    def destroy_event(self, event: Event) -> None:
        self.kept.append(event)


@caught_by("test_streams_and_events_leave_nothing_alive")
class KeepsStreams(CpuBackend):
    kept: ClassVar[list[Any]] = []

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Any:
        self.kept.append(super().create_stream(device, like=like, priority=priority))
        return self.kept[-1]
