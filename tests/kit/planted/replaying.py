"""Replays that do something else than the captured work, or at another time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from accelerator_graph.backends._cpu.graph import Executable as CpuExecutable
from accelerator_graph.backends._cpu.graph import Graph
from accelerator_graph.backends.base import (
    Capability,
    CaptureStatus,
    Change,
    LaunchFunction,
    NodeSetter,
)
from accelerator_graph.backends.cpu import CpuBackend, CpuCalls
from accelerator_graph.backends.recording import Runs
from accelerator_graph.errors import DriverError
from kit.explicit_runtime import Entry, Executable, Explicit, Latch, Queue
from kit.planted.collection import caught_by
from kit.planted.without_a_fault import EveryCapability, NothingNative, NumberedCalls


@caught_by("test_each_replay_runs_the_work_once")
class ReplaysTwice(NothingNative):
    def replay(self, executable: Any, stream: Any) -> None:
        super().replay(executable, stream)
        super().replay(executable, stream)


@caught_by(
    "test_runs_on_two_streams_take_turns",
    "test_runs_of_a_graph_are_in_call_order",
    "test_bound_callables_take_turns",
)
class RunsOverlap(NothingNative):
    def replay(self, executable: CpuExecutable, stream: Any) -> None:
        executable._runs = Runs()
        super().replay(executable, stream)


@caught_by("test_replay_on_another_stream")
class ReplaysOnAStreamOfItsOwn(CpuBackend):
    def replay(self, executable: Any, stream: Any) -> None:
        super().replay(executable, self.create_stream(0))


@caught_by("test_replay_is_behind_the_streams_work", "test_bound_callable_replays")
class BindsToAStreamOfItsOwn(CpuBackend):
    def native_calls(self, stream: Any) -> CpuCalls:
        return super().native_calls(self.create_stream(0))


@caught_by("test_replay_returns_without_waiting")
class ReplayWaits(NothingNative):
    def replay(self, executable: Any, stream: Any) -> None:
        super().replay(executable, stream)
        if stream.capture is None:
            stream.worker.synchronize()


@caught_by("test_replay_returns_without_waiting")
class ExplicitReplayWaits(Explicit):
    def replay(self, executable: Executable, stream: Queue) -> None:
        super().replay(executable, stream)
        if stream.recording is None:
            self.synchronize(stream)


@caught_by("test_replay_onto_a_stream_that_somebody_else_captures")
class ReplaysAtOnceInACapture(NothingNative):
    def capabilities(self, device: int) -> frozenset[str]:
        return super().capabilities(device) - {Capability.CHILD_GRAPHS}

    def replay(self, executable: Any, stream: Any) -> None:
        aside = stream if stream.capture is None else self.create_stream(0)
        super().replay(executable, aside)
        if aside is not stream:
            self.synchronize(aside)


@caught_by("test_replay_ignores_captures_only_where_it_says_so")
class ReplaysBesideCaptures(CpuBackend):
    def capabilities(self, device: int) -> Any:
        return super().capabilities(device) - {Capability.CHILD_GRAPHS}

    def replay(self, executable: Any, stream: Any) -> None:
        executable.enqueue(stream.worker)


@caught_by("test_replay_onto_a_capturing_stream")
class ChildGraphsRunAtOnce(NothingNative):
    def replay(self, executable: Any, stream: Any) -> None:
        executable.enqueue(stream.worker)


@caught_by("test_replays_equal_the_eager_work")
class SwapsNodes(CpuBackend):
    def instantiate(self, graph: Any) -> Any:
        executable = super().instantiate(graph)
        executable._plan.calls.reverse()
        return executable


@caught_by("test_a_kept_graph_can_be_instantiated_again", "test_bound_callable_goes_on_with_a_new_executable")
class OneExecutablePerGraph(CpuBackend):
    def open(self) -> None:
        super().open()
        self.made: dict[Any, Any] = {}

    def instantiate(self, graph: Any) -> Any:
        if graph not in self.made:
            self.made[graph] = super().instantiate(graph)
        return self.made[graph]


@caught_by("test_executables_of_one_graph_live_side_by_side")
class OneExecutableSecretly(CpuBackend):
    def instantiate(self, graph: Any) -> Any:
        executable = super().instantiate(graph)
        if getattr(self, "_newest", None) is not None:
            super().destroy_executable(self._newest)
        self._newest = executable
        return executable


@caught_by("test_replay_is_behind_the_streams_work")
class RunsWhenAskedFor(Explicit):
    def replay(self, executable: Executable, stream: Queue) -> None:
        for entry in executable.entries:
            entry.run()


@caught_by("test_asking_for_a_run_while_one_runs_is_no_error")
class LatestRunWins(Explicit):
    """Asking again before somebody has waited changes nothing."""

    def open(self) -> None:
        self.asked: set[Executable] = set()

    def replay(self, executable: Executable, stream: Queue) -> None:
        if executable not in self.asked:
            super().replay(executable, stream)
            self.asked.add(executable)

    def synchronize(self, stream: Queue) -> None:
        super().synchronize(stream)
        self.asked.clear()


@caught_by("test_keep_graph_leaves_instantiating_for_later")
class InstantiateRuns(CpuBackend):
    """Warms up."""

    def instantiate(self, graph: Any) -> Any:
        executable = super().instantiate(graph)
        super().replay(executable, self.create_stream(0))
        return executable


@caught_by("test_a_kept_graph_can_be_instantiated_again")
class InstantiateTakesTheGraph(CpuBackend):
    def instantiate(self, graph: Any) -> Any:
        executable = super().instantiate(graph)
        graph.nodes = ()
        return executable


@caught_by("test_asking_for_a_run_while_one_runs_is_no_error")
class RefusesASecondRun(NothingNative):
    def replay(self, executable: CpuExecutable, stream: Any) -> None:
        latest = executable._runs.latest
        if latest is not None and not latest.done.is_set:
            raise DriverError("the executable is in use.")
        super().replay(executable, stream)


@caught_by("test_bound_callable_replays")
class BindsForOneCall(CpuBackend):
    def native_calls(self, stream: Any) -> CpuCalls:
        return BindForOneCall(self, stream)


@caught_by("test_bind_onto_a_capturing_stream_leaves_the_capture_valid")
class BindRecords(CpuBackend):
    def native_calls(self, stream: Any) -> CpuCalls:
        return BindRecord(self, stream)


@caught_by("test_upload_runs_nothing")
class UploadRuns(EveryCapability):
    def native_calls(self, stream: Any) -> NumberedCalls:
        return UploadRun(self, stream)


@caught_by("test_launch_function_does_what_replay_does")
class LaunchesNothingInC(EveryCapability):
    def native_calls(self, stream: Any) -> NumberedCalls:
        return LaunchNothing(self, stream)


@caught_by("test_replay_onto_a_capturing_stream")
class RecordsNoReplay(NothingNative):
    """Says that it records child graphs, and forgets them."""

    def replay(self, executable: Any, stream: Any) -> None:
        if self.capture_status(stream) is CaptureStatus.NONE:
            super().replay(executable, stream)


@caught_by("test_recorded_replay_keeps_its_place")
class RecordedReplaysComeFirst(NothingNative):
    """A child graph comes ahead of all that was recorded before."""

    def replay(self, executable: Any, stream: Any) -> None:
        capture = stream.capture
        if capture is None:
            super().replay(executable, stream)
            return
        super().replay(executable, stream)
        capture._entries.insert(0, capture._entries.pop())


class RecordsGraphs(NothingNative):
    """No bug: records a run of a graph, not of an executable."""

    records_graphs = True

    def replay(self, executable: Any, stream: Any) -> None:
        if self.capture_status(stream) is not CaptureStatus.NONE:
            raise DriverError("it is capturing.", backend=self.name, call="replay", reason="illegal_call")
        super().replay(executable, stream)

    def record_graph(self, stream: Any, graph: Any) -> None:
        super().replay(CpuExecutable(graph), stream)


@caught_by("test_recorded_replay_of_a_fork_keeps_its_place", "test_add_records_a_run")
class RecordedGraphsComeFirst(RecordsGraphs):
    def record_graph(self, stream: Any, graph: Any) -> None:
        super().record_graph(stream, graph)
        entries = stream.capture._entries
        entries.insert(0, entries.pop())


@caught_by("test_replay_onto_a_capturing_stream", "test_recorded_replays_nest")
class RecordsNoGraph(RecordsGraphs):
    def record_graph(self, stream: Any, graph: Any) -> None:
        pass


@caught_by("test_recorded_replay_outlives_its_graph")
class RecordedGraphsAreNotCopied(RecordsGraphs):
    def record_graph(self, stream: Any, graph: Any) -> None:
        super().record_graph(stream, graph)
        self.recorded = stream.capture._entries[-1], graph

    def destroy_graph(self, graph: Any) -> None:
        entry, recorded = getattr(self, "recorded", (None, None))
        super().destroy_graph(graph)
        if recorded is graph and entry is not None:
            del self.recorded
            call = entry[0][2] if isinstance(entry, tuple) else entry.work[2]
            call[0].__self__.calls.clear()


@caught_by("test_each_replay_runs_the_work_once")
class RunsOnce(Explicit):
    """An executable is used up by its first run."""

    def run(self, entries: list[Entry], before: Latch | None, done: Latch) -> None:
        super().run(entries, before, done)
        entries.clear()


@caught_by("test_several_graphs_of_one_stream_are_independent")
class ReplaysTheLatestGraph(Explicit):
    """A stream remembers the executable that was made last."""

    latest: Executable

    def instantiate(self, graph: Any) -> Executable:
        self.latest = super().instantiate(graph)
        return self.latest

    def replay(self, executable: Executable, stream: Queue) -> None:
        super().replay(self.latest, stream)


@caught_by("test_replays_equal_the_eager_work")
class KeepsTheFirstParameters(Explicit):
    """A function's arguments are those of its first node, as if they were part of the function."""

    def launch(self, stream: Queue, work: Any, /, *args: Any, **how: Any) -> None:
        recording = stream.recording
        if recording is not None:
            seen = recording.__dict__.setdefault("arguments", {})
            args = seen.setdefault((work, id(args[0])), args)
        super().launch(stream, work, *args, **how)


@caught_by(
    "test_replay_onto_a_stream_that_somebody_else_captures",
    "test_replay_ignores_captures_only_where_it_says_so",
)
class IgnoresReplaysIntoRecordings(Explicit):
    def replay(self, executable: Executable, stream: Queue) -> None:
        if stream.recording is None:
            super().replay(executable, stream)


class _Several(NodeSetter):
    """Changes several nodes, none included, in the place of one."""

    def __init__(self, setters: Sequence[NodeSetter | None]) -> None:
        super().__init__("memcpy", (), lambda: None)
        self._setters = [each for each in setters if each]

    def __call__(self, changes: Iterable[Change]) -> None:
        for each in self._setters:
            each(changes)


@caught_by("test_copies_can_read_from_elsewhere_in_later_runs")
class ChangesEveryCopy(CpuBackend):
    def node_setter(self, graph: Any, executable: Any, node: int) -> NodeSetter:
        return _Several([super(ChangesEveryCopy, self).node_setter(graph, executable, n) for n in (0, 1)])


@caught_by("test_copies_can_read_from_elsewhere_in_later_runs")
class NeverChangesTheSource(CpuBackend):
    def node_setter(self, graph: Any, executable: Any, node: int) -> NodeSetter:
        return _Several([])


@caught_by("test_recorded_replays_nest")
class RecordedReplaysDoNotNest(CpuBackend):
    def replay(self, executable: Any, stream: Any) -> None:
        if stream.capture is not None:
            executable = super().instantiate(
                Graph([node for node in executable.nodes if node.kind != "graph"])
            )
        super().replay(executable, stream)


@caught_by("test_recorded_replay_does_the_work_of_its_time")
class RecordedReplaysAreUpdated(CpuBackend):
    def replay(self, executable: Any, stream: Any) -> None:
        if stream.capture is None:
            super().replay(executable, stream)
        else:
            self.launch(stream, lambda: executable._plan.run())


# ---- their native calls ------------------------------------------------------------------------------


class BindForOneCall(CpuCalls):
    def bind(self, executable: Any) -> Callable[[], None]:
        launch, left = super().bind(executable), [None]
        return lambda: launch() if left and left.pop() is None else None


class BindRecord(CpuCalls):
    def bind(self, executable: Any) -> Callable[[], None]:
        if self._stream.capture is not None:
            self._backend.replay(executable, self._stream)
        return super().bind(executable)


class UploadRun(NumberedCalls):
    def upload(self, executable: Any) -> None:
        self.backend.replay(executable, self.stream)


class LaunchNothing(NumberedCalls):
    def launch_function(self, executable: Any) -> LaunchFunction | None:
        found = super().launch_function(executable)
        address = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value
        return None if found is None else LaunchFunction(address or 0, found.failed)
