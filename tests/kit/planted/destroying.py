"""Objects that end too early, too late, or with an error."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from accelerator_graph.backends._cpu.graph import Executable as CpuExecutable
from accelerator_graph.backends._cpu.graph import Graph
from accelerator_graph.backends.base import (
    CaptureStatus,
)
from accelerator_graph.backends.cpu import CpuBackend
from kit.explicit_runtime import Entry, Executable, Explicit, Latch, Queue, Recording
from kit.planted.collection import caught_by
from kit.planted.without_a_fault import EveryCapability, NothingNative


@caught_by("test_interrupted_destroy_can_be_called_again")
class DestroysOnce(CpuBackend):
    """Forgets an executable before it has destroyed it."""

    def open(self) -> None:
        super().open()
        self.alive: set[Any] = set()

    def instantiate(self, graph: Any) -> Any:
        executable = super().instantiate(graph)
        self.alive.add(executable)
        return executable

    def destroy_executable(self, executable: Any) -> None:
        self.alive.remove(executable)
        super().destroy_executable(executable)


@caught_by(
    "test_runs_complete_after_their_executable_was_destroyed", "test_runs_complete_after_their_graph_has_gone"
)
class DestroysRunsUnderWay(NothingNative):
    """A run begins when somebody waits or destroys an executable, or else half a second later."""

    def open(self) -> None:
        super().open()
        self.held: list[threading.Event] = []

    def replay(self, executable: Any, stream: Any) -> None:
        if stream.capture is None:
            self.held.append(threading.Event())
            stream.worker.submit(partial(self.held[-1].wait, 0.5))
        super().replay(executable, stream)

    def begin_runs(self) -> None:
        while self.held:
            self.held.pop().set()

    def synchronize(self, stream: Any) -> None:
        self.begin_runs()
        super().synchronize(stream)

    def destroy_executable(self, executable: Any) -> None:
        executable._plan.calls.clear()
        self.begin_runs()
        super().destroy_executable(executable)


@caught_by("test_capturing_does_not_run_the_work")
class DestroyRaises(CpuBackend):
    def destroy_graph(self, graph: Any) -> None:
        super().destroy_graph(graph)
        raise KeyError(graph)


@caught_by("test_destroyed_event_is_still_waited_for")
class EventsEndTheirWaiting(CpuBackend):
    def destroy_event(self, event: Any) -> None:
        if event.mark is not None:
            event.mark.set()


@caught_by("test_executable_outlives_its_graph", "test_each_replay_runs_the_work_once")
class ExecutableNeedsItsGraph(CpuBackend):
    def open(self) -> None:
        super().open()
        self.made: dict[Any, Any] = {}

    def instantiate(self, graph: Any) -> Any:
        self.made[graph] = super().instantiate(graph)
        return self.made[graph]

    def destroy_graph(self, graph: Any) -> None:
        if graph in self.made:
            self.made.pop(graph)._plan.calls.clear()


@caught_by(
    "test_graphs_collected_during_a_capture_leave_it_valid",
    "test_resetting_another_graph_during_a_capture_leaves_it_valid",
)
class DestroyBreaksCaptures(CpuBackend):
    def destroy_executable(self, executable: Any) -> None:
        for capture in self.captures._open:
            capture.status = CaptureStatus.INVALIDATED
        super().destroy_executable(executable)


class DestroyBreaksCapturesAndSaysSo(DestroyBreaksCaptures):
    """No fault."""

    destroy_disturbs_captures = True


@caught_by("test_captures_nest_on_different_streams")
class InstantiateBreaksCaptures(CpuBackend):
    def instantiate(self, graph: Any) -> Any:
        for capture in self.captures._open:
            capture.status = CaptureStatus.INVALIDATED
        return super().instantiate(graph)


@caught_by("test_recorded_replay_outlives_its_graph")
class ChildGraphsNeedTheirExecutable(CpuBackend):
    def destroy_executable(self, executable: Any) -> None:
        calls = executable._plan.calls
        if executable._runs.latest is not None:
            executable._runs.latest.done.wait()
        super().destroy_executable(executable)
        calls.clear()


@caught_by("test_closing_lets_work_complete")
class DropsStreamsWithWork(CpuBackend):
    def destroy_stream(self, stream: Any) -> None:
        stream.worker._pending.clear()
        super().destroy_stream(stream)


@caught_by("test_destroying_disturbs_no_capture")
class DestroyingAnEventBreaksCaptures(CpuBackend):
    def destroy_event(self, event: Any) -> None:
        for capture in self.captures._open:
            capture.status = CaptureStatus.INVALIDATED


@caught_by("test_graph_outlives_the_streams_that_took_part")
class NeedsTheStreams(Explicit):
    """What was recorded on a stream goes with it."""

    def open(self) -> None:
        self.gone: set[Queue] = set()

    def destroy_stream(self, stream: Queue) -> None:
        self.gone.add(stream)
        super().destroy_stream(stream)

    def run(self, entries: list[Entry], before: Latch | None, done: Latch) -> None:
        super().run([entry for entry in entries if entry.stream not in self.gone], before, done)


@caught_by("test_interrupted_destroy_can_be_called_again")
class DestroysAStreamOnce(Explicit):
    """A stream that is destroyed again is somebody else's by then."""

    def open(self) -> None:
        self.alive: set[Queue] = set()

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Queue:
        stream = super().create_stream(device)
        self.alive.add(stream)
        return stream

    def destroy_stream(self, stream: Queue) -> None:
        self.alive.remove(stream)
        super().destroy_stream(stream)


@caught_by("test_destroying_disturbs_no_capture")
class DestroyingAStreamBreaksCaptures(CpuBackend):
    def destroy_stream(self, stream: Any) -> None:
        for capture in list(self.captures._open):
            capture.status = CaptureStatus.INVALIDATED
        super().destroy_stream(stream)


@caught_by("test_destroying_disturbs_no_capture")
class DestroyingAGraphEndsRecordings(Explicit):
    def open(self) -> None:
        self.begun: list[Recording] = []

    def capture_begin(self, stream: Queue, mode: str) -> Recording:
        self.begun.append(super().capture_begin(stream, mode))
        return self.begun[-1]

    def destroy_graph(self, graph: Any) -> None:
        super().destroy_graph(graph)
        for recording in self.begun:
            recording.close()


@caught_by("test_executable_outlives_its_graph")
class TheGraphIsTheExecutable(Explicit):
    def instantiate(self, graph: Any) -> Executable:
        executable = super().instantiate(graph)
        executable.entries = graph
        return executable


@caught_by("test_runs_complete_after_their_executable_was_destroyed")
class DestroyCancelsRuns(Explicit):
    def destroy_executable(self, executable: Executable) -> None:
        executable.entries.clear()


@caught_by("test_closing_lets_work_complete")
class ClosingCancelsWork(Explicit):
    def destroy_stream(self, stream: Queue) -> None:
        stream.waiting.clear()
        super().destroy_stream(stream)


@caught_by("test_run_outlives_its_stream_if_replays_are_serialised")
class RunsEndWithTheirStream(Explicit):
    """Serialises replays, and needs the stream of a run until its end."""

    serialises_replays = True

    def open(self) -> None:
        self.lock = threading.Lock()

    def replay(self, executable: Executable, stream: Queue) -> None:
        with self.lock:
            super().replay(executable, stream)
            run = stream.waiting.pop() if stream.waiting else None
            if run is not None:
                done = executable.last
                stream.put(lambda: run() if not stream.closed else done.set())


@caught_by("test_borrowed_objects_stay_their_owners")
class BorrowersDestroy(EveryCapability):
    def borrow(self, handle: int, made_of: Any) -> Any:
        theirs = super().borrow(handle, made_of)
        if not isinstance(made_of, Graph):
            return theirs
        borrowed = Borrowed(Graph(()))
        borrowed._plan, borrowed._runs, borrowed.theirs = theirs._plan, theirs._runs, theirs
        return borrowed


class Borrowed(CpuExecutable):
    def __del__(self) -> None:
        self.theirs.destroy()
