"""What authors of backends with command lists get wrong: one fault a topic."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from accelerator_graph.backends.base import Availability, GraphContents, Misfit
from accelerator_graph.backends.recording import Graph, Recorded
from accelerator_graph.errors import driver_error
from kit.command_lists import (
    PATIENCE,
    CommandList,
    CommandLists,
    Event,
    Executable,
    Fence,
    Lists,
    ListsWork,
    OutOfObjects,
    Queue,
    Run,
    Stream,
    Thing,
)
from kit.planted.collection import caught_by


def with_commands(graph: Graph, former: Graph, pick: Callable[[Recorded, Recorded], Recorded]) -> Graph:
    """Return a graph with commands that were picked from two graphs of one shape; else the first."""
    if len(graph.nodes) != len(former.nodes):
        return graph
    nodes = [pick(new, old) for new, old in zip(graph.nodes, former.nodes, strict=True)]
    return Graph(nodes, graph.origin)


# ---- updates -----------------------------------------------------------------------------------


@caught_by("test_updated_fills_and_copies_are_those_of_the_other", work=ListsWork)
class UpdateKeepsFills(CommandLists):
    def update(self, executable: Executable, former: Graph, graph: Graph) -> Misfit | None:
        def pick(new: Recorded, old: Recorded) -> Recorded:
            return old if new.work.kind == old.work.kind == "memset" else new

        return super().update(executable, former, with_commands(graph, former, pick))


@caught_by("test_updated_graph_has_the_dependencies_of_the_other", work=ListsWork)
class UpdateKeepsDependencies(CommandLists):
    def update(self, executable: Executable, former: Graph, graph: Graph) -> Misfit | None:
        def pick(new: Recorded, old: Recorded) -> Recorded:
            return new._replace(after=old.after)

        return super().update(executable, former, with_commands(graph, former, pick))


@caught_by("test_updated_graph_has_the_forks_of_the_other", work=ListsWork)
class UpdateDropsLanes(CommandLists):
    """Those for which the executable has no queue."""

    def update(self, executable: Executable, former: Graph, graph: Graph) -> Misfit | None:
        lists, executable.lists = executable.lists, Lists(graph)
        lists.leave()
        return None


@caught_by("test_updates_leave_nothing_alive", work=ListsWork)
class UpdateLeaksLists(CommandLists):
    def update(self, executable: Executable, former: Graph, graph: Graph) -> Misfit | None:
        executable.lists.enter()
        return super().update(executable, former, graph)


# ---- locks -------------------------------------------------------------------------------------


@caught_by("test_calls_inside_calls_are_both_done", work=ListsWork)
class ReplaysUnderAPlainLock(CommandLists):
    mutex = threading.Lock()

    def replay(self, executable: Executable, stream: Stream) -> None:
        with self.mutex:
            super().replay(executable, stream)


class TwoSteps(Executable):
    """A run reads which run is the last one, and says later that it is the last one itself."""

    last: threading.Event | None = None

    def replay(self, stream: Stream) -> None:
        run, before, done = Run(self, stream), self.last, threading.Event()
        run.lists.enter()
        self.runs.append(run)
        stream.queue.put(partial(self.begin, run, before, done))
        self.last = done

    def begin(self, run: Run, before: threading.Event | None, done: threading.Event) -> None:
        if before is not None:
            before.wait(PATIENCE)
        try:
            run.start()
        finally:
            done.set()

    def wait_for_turn(self, run: Run) -> None:
        pass


@caught_by("test_replay_inside_a_replay_is_a_run_before_or_behind_it", work=ListsWork)
class ClaimsRunsInTwoSteps(CommandLists):
    def instantiate(self, graph: Graph) -> Executable:
        executable: Executable = self.called("instantiate", TwoSteps, graph)
        return executable


class Copy:
    """A copy of the lists, which serves one run at a time."""

    run: Run | None = None

    def start(self) -> None:
        assert self.run is not None
        self.run.start()


class RunOfACopy(Run):
    copy: Copy

    def submit(self) -> None:
        self.stream.queue.put(self.copy.start)


class Copies(Executable):
    """A copy of the lists goes back before the run is in its place."""

    def replay(self, stream: Stream) -> None:
        copies: deque[Copy] = self.__dict__.setdefault("copies", deque())
        copy = next((each for each in copies if each.run not in self.runs), None) or Copy()
        if copy not in copies:
            copies.append(copy)
        run = copy.run = RunOfACopy(self, stream)
        run.copy = copy
        run.lists.enter()
        self.runs.append(run)
        self.order.enqueue(run)


@caught_by("test_replay_inside_a_replay_is_a_run_before_or_behind_it", work=ListsWork)
class ListsGoBackTooEarly(CommandLists):
    def instantiate(self, graph: Graph) -> Executable:
        executable: Executable = self.called("instantiate", Copies, graph)
        return executable


@caught_by("test_synchronize_holds_up_no_other_thread", work=ListsWork)
class SynchronizesUnderTheLockOfReplays(CommandLists):
    mutex = threading.RLock()

    def synchronize(self, stream: Stream) -> None:
        with self.mutex:
            super().synchronize(stream)

    def replay(self, executable: Executable, stream: Stream) -> None:
        with self.mutex:
            super().replay(executable, stream)


# ---- what is left ------------------------------------------------------------------------------


@caught_by("test_timed_events_leave_nothing_alive", work=ListsWork)
class TimedEventsAreKept(CommandLists):
    kept: ClassVar[list[Any]] = []

    def record_event(self, stream: Stream, *, timed: bool = False) -> Event:
        event = super().record_event(stream, timed=timed)
        if timed:
            self.kept.append(event)
        return event

    def destroy_event(self, event: Event) -> None:
        if event not in self.kept:
            super().destroy_event(event)


@caught_by("test_timed_executables_leave_nothing_alive", work=ListsWork)
class TimedExecutablesKeepTheirFences(CommandLists):
    kept: ClassVar[list[Any]] = []

    def instantiate_timed(
        self, graph: Graph, before: Sequence[int], after: Sequence[int]
    ) -> tuple[Executable, Sequence[Event]]:
        executable, events = super().instantiate_timed(graph, before, after)
        self.kept.extend(events)
        return executable, events

    def destroy_event(self, event: Event) -> None:
        if event not in self.kept:
            super().destroy_event(event)


@caught_by("test_what_a_destroyed_executable_used_is_released_after_its_run", work=ListsWork)
class SweepsOnlyWhenDestroying(CommandLists):
    retired: ClassVar[list[Executable]] = []

    def destroy_executable(self, executable: Executable) -> None:
        waiting = [*self.retired, executable]
        self.retired[:] = [each for each in waiting if each.runs]
        for each in waiting:
            if each not in self.retired:
                super().destroy_executable(each)


class Slot(Thing):
    """What a stream needs beside its queue."""


@caught_by("test_refused_calls_leave_nothing_alive", work=ListsWork)
class RefusedStreamLeavesItsQueue(CommandLists):
    slots: ClassVar[dict[Stream, Slot]] = {}

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Stream:
        stream = super().create_stream(device)
        self.slots[stream] = self.called("create_stream", Slot)
        return stream

    def destroy_stream(self, stream: Stream) -> None:
        if stream in self.slots:
            self.slots.pop(stream).close()
        super().destroy_stream(stream)


@caught_by("test_refused_calls_leave_nothing_alive", work=ListsWork)
class NoMemoryIsAnyFailure(CommandLists):
    def called(self, call: str, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except OutOfObjects as error:
            raise driver_error(
                backend=self.name, call=call, code=-5, code_name="OUT_OF_OBJECTS", detail=str(error)
            ) from error


class LeavesWhatItMade(Executable):
    def destroy(self) -> None:
        if self.queues or len(self.lists.lists) < 2:
            super().destroy()


@caught_by("test_refused_calls_leave_nothing_alive", work=ListsWork)
class RefusedExecutableLeavesItsLists(CommandLists):
    def instantiate(self, graph: Graph) -> Executable:
        executable: Executable = self.called("instantiate", LeavesWhatItMade, graph)
        return executable


# ---- failures ----------------------------------------------------------------------------------


class OnlyTheFirstLaneFails(Run):
    def run_lane(self, commands: CommandList, done: dict[int, threading.Event]) -> None:
        super().run_lane(commands, done)
        if commands is not self.lists.lists[0]:
            self.failure = None


@caught_by("test_error_of_forked_work_in_a_replay_is_raised_where_the_stream_is_waited_for", work=ListsWork)
class FailureOfAForkIsLost(CommandLists):
    def instantiate(self, graph: Graph) -> Executable:
        executable = super().instantiate(graph)
        executable.kind_of_run = OnlyTheFirstLaneFails
        return executable


class FailedCommandsAreNeverDone(Run):
    def run_lane(self, commands: CommandList, done: dict[int, threading.Event]) -> None:
        class Unset(threading.Event):
            def set(event) -> None:
                if self.failure is None:
                    super().set()

        for number, _ in commands.commands:
            done[number] = Unset()
        super().run_lane(commands, done)


@caught_by("test_error_of_forked_work_in_a_replay_is_raised_where_the_stream_is_waited_for", work=ListsWork)
class WaitsForFailedWork(CommandLists):
    def instantiate(self, graph: Graph) -> Executable:
        executable = super().instantiate(graph)
        executable.kind_of_run = FailedCommandsAreNeverDone
        return executable


@caught_by("test_waiting_for_an_event_loses_no_error", work=ListsWork)
class EventsEatFailures(CommandLists):
    queues: ClassVar[dict[Event, Queue]] = {}

    def record_event(self, stream: Stream, *, timed: bool = False) -> Event:
        event = super().record_event(stream)
        self.queues[event] = stream.queue
        return event

    def synchronize_event(self, event: Event) -> None:
        super().synchronize_event(event)
        self.queues[event].take_failure()


@caught_by("test_query_says_whether_work_is_done", work=ListsWork)
class IdleWhenNothingWaits(CommandLists):
    def query(self, stream: Stream) -> bool:
        return not stream.queue.waiting or super().query(stream)


class ClosesQueuesUnderRuns(Executable):
    def release(self) -> None:
        if self.destroyed:
            for queue in self.queues:
                queue.close()


@caught_by("test_runs_complete_after_their_executable_was_destroyed", work=ListsWork)
class DestroyEndsLanes(CommandLists):
    def instantiate(self, graph: Graph) -> Executable:
        executable: Executable = self.called("instantiate", ClosesQueuesUnderRuns, graph)
        return executable


@caught_by("test_interrupted_destroy_can_be_called_again", work=ListsWork)
class DestroyingTwiceReleasesTwice(CommandLists):
    def destroy_executable(self, executable: Executable) -> None:
        executable.destroyed = False
        super().destroy_executable(executable)


# ---- devices and streams -----------------------------------------------------------------------


@caught_by("test_memory_of_another_device_is_used_or_refused_in_the_call", work=ListsWork)
class TakesMemoryOfAnyDevice(CommandLists):
    def view(self, stream: Stream, buffer: Any, nbytes: int | None, *, writable: bool = True) -> memoryview:
        return super().view(stream, memoryview(buffer), nbytes, writable=writable)


@caught_by("test_stream_that_the_runtime_made_is_a_stream_like_others", work=ListsWork)
class RuntimesQueueIsAnotherStreamEachTime(CommandLists):
    def as_stream(self, obj: object) -> Stream | None:
        return Stream(obj) if isinstance(obj, Queue) else None


@caught_by("test_stream_modules_have_the_runtimes_own_streams", work=ListsWork)
class NamesNoModuleOfQueues(CommandLists):
    stream_modules = frozenset()


@caught_by("test_stream_that_the_runtime_made_is_a_stream_like_others", work=ListsWork)
class RuntimesQueuesAreOnDeviceZero(CommandLists):
    devices: ClassVar[dict[Stream, int]] = {}

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Stream:
        stream = super().create_stream(device)
        self.devices[stream] = device
        return stream

    def device_of(self, stream: Stream) -> int:
        return self.devices.get(stream, 0)


# ---- nodes and timed executables ---------------------------------------------------------------


@caught_by("test_kinds_tell_fills_and_copies_from_other_work", work=ListsWork)
class EveryNodeIsAKernel(CommandLists):
    def nodes(self, graph: Graph, executable: Any = None) -> GraphContents:
        nodes, edges = super().nodes(graph)
        return [node._replace(kind="kernel") for node in nodes], edges


@caught_by("test_nodes_have_the_names_of_their_kernels", work=ListsWork)
class KernelsHaveNoNames(CommandLists):
    def nodes(self, graph: Graph, executable: Any = None) -> GraphContents:
        nodes, edges = super().nodes(graph)
        return [node._replace(name="") for node in nodes], edges


@caught_by("test_graph_stays_as_it_is_when_a_timed_copy_is_made", work=ListsWork)
class TimesTheGraphItself(CommandLists):
    def with_marks(
        self,
        graph: Graph,
        before: Sequence[int],
        after: Sequence[int],
        starts: Sequence[Fence],
        ends: Sequence[Fence],
    ) -> Graph:
        timed = super().with_marks(graph, before, after, starts, ends)
        graph.nodes = timed.nodes
        return timed


@caught_by("test_destroying_waits_for_nothing", work=ListsWork)
class DestroyWaits(CommandLists):
    def destroy_executable(self, executable: Executable) -> None:
        with executable.changed:
            executable.changed.wait_for(lambda: not executable.runs, PATIENCE)
        super().destroy_executable(executable)


# ---- the process -------------------------------------------------------------------------------


@caught_by("test_child_of_a_process_that_has_probed_can_use_the_backend", work=ListsWork)
class ProbeStartsAThread(CommandLists):
    @classmethod
    def probe(cls) -> Availability:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return super().probe()
