"""A runtime of command lists and its backend, without a bug: lanes, objects to close, deferred destruction.

A queue is a thread of a device. A recording has a lane for each stream that takes part; an executable has a
command list for each lane, and a queue of its own for each but the first. Every object of the runtime has to
be closed, and the runtime can be told to refuse the next ones.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import accelerator_graph as ag
from accelerator_graph.backends.base import (
    Availability,
    CaptureInfo,
    CaptureStatus,
    Enqueues,
    GraphEdge,
    GraphNode,
    Misfit,
    TimesGraphs,
    UpdatesGraphs,
)
from accelerator_graph.errors import CaptureError, OutOfMemoryError, driver_error
from accelerator_graph.testing.works.host import Cell, HostWork, slow_step, step

PATIENCE = 20
"""Seconds after which a thread of the runtime gives up what hangs: the threads of bugs end, too."""


# ---- the runtime -------------------------------------------------------------------------------


class OutOfObjects(Exception):
    """The runtime refuses to make an object."""


class Accounts:
    """The objects of the runtime that are open, and how many more may be made."""

    def __init__(self) -> None:
        self.open: set[Thing] = set()
        self.left: int | None = None

    @contextmanager
    def refusing(self, after: int) -> Iterator[None]:
        self.left = after
        try:
            yield
        finally:
            self.left = None


accounts = Accounts()
here = threading.local()
"""The device of a queue's thread, as `here.device`."""


class Thing:
    """An object of the runtime."""

    def __init__(self) -> None:
        if accounts.left is not None:
            if accounts.left == 0:
                raise OutOfObjects(type(self).__name__)
            accounts.left -= 1
        accounts.open.add(self)

    def close(self) -> None:
        accounts.open.discard(self)


class Fence(Thing):
    """A mark in a queue, or one that a list sets when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.time = 0.0

    def reach(self) -> None:
        self.time = time.perf_counter()
        self.reached.set()

    def wait(self) -> None:
        self.reached.wait(PATIENCE)


class Queue(Thing):
    """Runs what is put on it in order. Keeps the first failure until it is taken."""

    def __init__(self, device: int = 0) -> None:
        super().__init__()
        self.device = device
        self.failure: Exception | None = None
        self.waiting: deque[Callable[[], object]] = deque()
        self.changed = threading.Condition()
        self.busy = self.closed = False
        threading.Thread(target=self.serve, daemon=True).start()

    def put(self, work: Callable[[], object]) -> None:
        with self.changed:
            try:
                self.waiting.append(work)
            finally:  # even if a signal comes in between
                self.changed.notify_all()

    def serve(self) -> None:
        here.device = self.device
        while True:
            with self.changed:
                self.busy = False
                self.changed.notify_all()
                self.changed.wait_for(lambda: self.waiting or self.closed)
                if not self.waiting:
                    return
                self.busy = True
                work = self.waiting.popleft()
            try:
                work()
            except Exception as error:
                self.failure = self.failure or error
            del work

    def idle(self) -> bool:
        with self.changed:
            return not self.waiting and not self.busy

    def finish(self) -> None:
        with self.changed:
            self.changed.notify_all()  # for a `put` in which a signal handler waits
            assert self.changed.wait_for(lambda: not self.waiting and not self.busy, PATIENCE)

    def take_failure(self) -> Exception | None:
        failure, self.failure = self.failure, None
        return failure

    def close(self) -> None:
        super().close()
        with self.changed:
            self.closed = True
            self.changed.notify_all()


class CommandList(Thing):
    """The commands of one lane."""

    def __init__(self, device: int, commands: Sequence[Command]) -> None:
        super().__init__()
        self.device = device
        self.commands = tuple(commands)


class Memory(bytearray):
    """Memory of a device."""

    device = 0


def write(target: memoryview, source: memoryview | bytes, *memory: Any) -> None:
    """What fills and copies do: a queue reaches the memory of its device, and the host's."""
    if any(getattr(each, "device", here.device) != here.device for each in memory):
        raise RuntimeError("a page fault")
    target[:] = source


# ---- the backend: recordings -------------------------------------------------------------------


class Command:
    """What was recorded: on which lane, and after which commands, by their numbers."""

    def __init__(
        self, number: int, kind: str, name: str, run: Callable[[], object], after: frozenset[int], lane: Any
    ) -> None:
        self.number = number
        self.kind = kind
        self.name = name
        self.run = run
        self.after = after
        self.lane = lane


class Recording:
    """A capture in progress. `ends` has the last commands of every stream that takes part."""

    def __init__(self, first: Stream) -> None:
        self.commands: list[Command] = []
        self.first = first
        self.ends: dict[Stream, frozenset[int]] = {first: frozenset()}
        self.over = False

    def add(self, stream: Stream, kind: str, name: str, run: Callable[[], object]) -> None:
        number = len(self.commands)
        self.commands.append(Command(number, kind, name, run, self.ends[stream], stream))
        self.ends[stream] = frozenset({number})

    def is_joined(self) -> bool:
        joined, waiting = set[int](), list(self.ends[self.first])
        while waiting:
            number = waiting.pop()
            if number not in joined:
                joined.add(number)
                waiting.extend(self.commands[number].after)
        return len(joined) == len(self.commands)

    def close(self) -> None:
        self.over = True
        for stream in tuple(self.ends):
            if stream.recording is self:
                stream.recording = None


class Stream:
    """A queue, and the recording that it takes part in."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.recording: Recording | None = None


class Event:
    """A fence, or a place in a recording."""

    def __init__(self, fence: Fence | None, recording: Recording | None, after: frozenset[int]) -> None:
        self.fence = fence
        self.recording = recording
        self.after = after


# ---- the backend: graphs -----------------------------------------------------------------------


class Graph:
    """The commands of a recording that has ended."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = tuple(commands)

    def lanes(self) -> list[list[Command]]:
        lanes: dict[Any, list[Command]] = {}
        for command in self.commands:
            lanes.setdefault(command.lane, []).append(command)
        return list(lanes.values())


class Lists:
    """The command lists of an executable, closed with the last run that needs them."""

    def __init__(self, graph: Graph) -> None:
        self.users = 1  # the executable
        self.lock = threading.RLock()
        self.lists: list[CommandList] = []
        try:
            for lane in graph.lanes():
                self.lists.append(CommandList(lane[0].lane.queue.device, lane))
        except BaseException:
            self.leave()
            raise

    def enter(self) -> None:
        with self.lock:
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                for each in self.lists:
                    each.close()


class Run:
    """One run: its lists, and a latch for each command, which the other lanes wait for."""

    def __init__(self, executable: Executable, stream: Stream) -> None:
        self.executable = executable
        self.stream = stream
        self.lists = executable.lists
        self.submitted = self.begun = False
        self.failure: Exception | None = None

    def start(self) -> None:
        """Run all lanes; called by the stream's thread, once or twice, and the second time has no effect."""
        if self.begun:
            return
        self.begun = True
        executable = self.executable
        executable.wait_for_turn(self)
        done = {command.number: threading.Event() for each in self.lists.lists for command in each.commands}
        try:
            first, *others = [partial(self.run_lane, each, done) for each in self.lists.lists] or [None]
            ends = []
            for queue, lane in zip(executable.queues, others, strict=False):
                ends.append(threading.Event())
                queue.put(partial(self.run_and_set, lane, ends[-1]))
            if first is not None:
                first()
            for end in ends:
                end.wait(PATIENCE)
        finally:
            executable.end(self)
        if self.failure is not None:
            raise self.failure

    def run_and_set(self, lane: Callable[[], None], end: threading.Event) -> None:
        try:
            lane()
        finally:
            end.set()

    def run_lane(self, commands: CommandList, done: dict[int, threading.Event]) -> None:
        for command in commands.commands:
            for number in command.after:
                done[number].wait(PATIENCE)
            try:
                if self.failure is None:
                    command.run()
            except Exception as error:
                self.failure = self.failure or error
            finally:
                done[command.number].set()


class Executable:
    """Command lists, the queues of its lanes, and its runs in call order."""

    kind_of_run = Run

    def __init__(self, graph: Graph) -> None:
        self.changed = threading.Condition()
        self.runs: deque[Run] = deque()
        self.queues: list[Queue] = []
        self.destroyed = False
        self.lists = Lists(graph)
        try:
            self.make_queues()
        except BaseException:
            self.destroy()
            raise

    def make_queues(self) -> None:
        for each in self.lists.lists[1:]:
            self.queues.append(Queue(each.device))

    def replay(self, stream: Stream) -> None:
        """Claim a run in one step, then submit what was claimed and not submitted, also by an outer call."""
        run = self.kind_of_run(self, stream)
        try:
            run.lists.enter()
            self.runs.append(run)
            for each in tuple(self.runs):
                if not each.submitted:
                    each.stream.queue.put(each.start)
                    each.submitted = True
        except BaseException:
            if not run.submitted:
                with self.changed:
                    if run in self.runs:
                        self.runs.remove(run)
                        run.lists.leave()
            raise

    def wait_for_turn(self, run: Run) -> None:
        with self.changed:
            self.changed.wait_for(lambda: run not in self.runs or self.runs[0] is run, PATIENCE)

    def end(self, run: Run) -> None:
        with self.changed:
            if run in self.runs:
                self.runs.remove(run)
                run.lists.leave()
            self.changed.notify_all()
            self.release()

    def update(self, graph: Graph) -> Misfit | None:
        lists = Lists(graph)
        if [each.device for each in lists.lists[1:]] != [queue.device for queue in self.queues]:
            lists.leave()
            return Misfit("it has other lanes")
        former, self.lists = self.lists, lists
        former.leave()
        return None

    def destroy(self) -> None:
        with self.changed:
            if not self.destroyed:
                self.destroyed = True
                self.lists.leave()
            self.release()

    def release(self) -> None:
        if self.destroyed and not self.runs:
            for queue in self.queues:
                queue.close()
            self.queues = []


# ---- the backend: the class --------------------------------------------------------------------


class CommandLists(Enqueues, TimesGraphs, UpdatesGraphs):
    """No bug."""

    api_version = 1
    recording = "explicit"
    stream_modules = frozenset({__name__.partition(".")[0]})

    @classmethod
    def probe(cls) -> Availability:
        return Availability(True)

    def open(self) -> None:
        self.streams: WeakValueDictionary[int, Stream] = WeakValueDictionary()

    def device_count(self) -> int:
        return 2

    def called(self, call: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call the runtime; its errors become the library's."""
        try:
            return function(*args)
        except OutOfObjects as error:
            raise OutOfMemoryError(f"{call}: no more {error}.", reason="out_of_memory") from error

    # ---- streams -------------------------------------------------------------------------------

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Stream:
        return self.stream_of(self.called("create_stream", Queue, device))

    def stream_of(self, queue: Queue) -> Stream:
        """Return the one stream of a queue, which has its recording."""
        return self.streams.setdefault(id(queue), Stream(queue))

    def destroy_stream(self, stream: Stream) -> None:
        stream.queue.close()

    def device_of(self, stream: Stream) -> int:
        return stream.queue.device

    def as_stream(self, obj: object) -> Stream | None:
        return self.stream_of(obj) if isinstance(obj, Queue) else None

    def synchronize(self, stream: Stream) -> None:
        self.refuse_recording(stream)
        stream.queue.finish()
        self.report(stream)

    def query(self, stream: Stream) -> bool:
        self.refuse_recording(stream)
        if not stream.queue.idle():
            return False
        self.report(stream)
        return True

    def report(self, stream: Stream) -> None:
        failure = stream.queue.take_failure()
        if failure is not None:
            raise driver_error(
                backend=self.name, call="launch", code=None, code_name="FAILED", detail=repr(failure)
            ) from failure

    def refuse_recording(self, stream: Stream) -> None:
        if stream.recording is not None:
            raise CaptureError("a recording stream can't be waited for.", reason="illegal_call")

    # ---- events --------------------------------------------------------------------------------

    def record_event(self, stream: Stream, *, timed: bool = False) -> Event:
        recording = stream.recording
        if recording is not None:
            return Event(None, recording, recording.ends[stream])
        fence = self.called("record_event", Fence)
        stream.queue.put(fence.reach)
        return Event(fence, None, frozenset())

    def wait_event(self, stream: Stream, event: Event) -> None:
        own, other = stream.recording, event.recording
        if event.fence is not None and own is None:
            stream.queue.put(event.fence.wait)
        elif other is None or other.over or own not in (None, other):
            raise driver_error(
                backend=self.name,
                call="wait_event",
                code=None,
                code_name="FOREIGN_EVENT",
                reason="foreign_capture",
            )
        else:
            other.ends[stream] = other.ends.get(stream, frozenset()) | event.after
            stream.recording = other

    def destroy_event(self, event: Event) -> None:
        if event.fence is not None:
            event.fence.close()

    def query_event(self, event: Event) -> bool:
        return self.fence(event).reached.is_set()

    def synchronize_event(self, event: Event) -> None:
        self.fence(event).wait()

    def elapsed_time(self, start: Event, end: Event) -> float | None:
        first, last = self.fence(start), self.fence(end)
        return (last.time - first.time) * 1000 if first.reached.is_set() and last.reached.is_set() else None

    def fence(self, event: Event) -> Fence:
        assert event.fence is not None
        return event.fence

    # ---- work ----------------------------------------------------------------------------------

    def fill(self, stream: Stream, dst: Any, value: int, nbytes: int | None) -> None:
        target = self.view(stream, dst, nbytes)
        self.enqueue(stream, "memset", "", write, target, bytes([value]) * len(target), dst)

    def copy(self, stream: Stream, dst: Any, src: Any, nbytes: int | None) -> None:
        source = self.view(stream, src, nbytes, writable=False)
        target = self.view(stream, dst, len(source))
        self.enqueue(stream, "memcpy", "", write, target, source, dst, src)

    def launch(self, stream: Stream, work: Any, /, *args: Any) -> None:
        if not callable(work):
            raise TypeError(f"launch: the work must be callable, not {work!r}.")
        self.enqueue(stream, "kernel", getattr(work, "__qualname__", type(work).__name__), work, *args)

    def view(self, stream: Stream, buffer: Any, nbytes: int | None, *, writable: bool = True) -> memoryview:
        if getattr(buffer, "device", stream.queue.device) != stream.queue.device:
            raise ValueError("the memory belongs to another device.")
        view = memoryview(buffer).cast("B")
        if view.readonly and writable:
            raise ValueError("the memory can't be written.")
        if nbytes is not None and nbytes > len(view):
            raise ValueError(f"{nbytes} bytes of {len(view)}.")
        return view[:nbytes]

    def enqueue(self, stream: Stream, kind: str, name: str, work: Callable[..., object], *args: Any) -> None:
        run = partial(work, *args)
        if stream.recording is None:
            stream.queue.put(run)
        else:
            stream.recording.add(stream, kind, name, run)

    # ---- captures ------------------------------------------------------------------------------

    def capture_status(self, stream: Stream) -> CaptureStatus:
        return CaptureStatus.NONE if stream.recording is None else CaptureStatus.ACTIVE

    def capture_info(self, stream: Stream) -> CaptureInfo | None:
        recording = stream.recording
        return None if recording is None else CaptureInfo(id(recording), len(recording.commands))

    def capture_begin(self, stream: Stream, mode: str) -> Recording:
        recording = Recording(stream)
        try:
            stream.recording = recording
            return recording
        except BaseException:
            recording.close()
            raise

    def capture_end(self, token: Recording) -> Graph:
        if token.over:
            raise CaptureError("the capture has ended.")
        token.close()
        if not token.is_joined():
            raise driver_error(
                backend=self.name,
                call="capture_end",
                code=None,
                code_name="UNJOINED",
                reason="unjoined",
            )
        return Graph(token.commands)

    def capture_abandon(self, token: Recording) -> None:
        token.close()

    # ---- graphs --------------------------------------------------------------------------------

    def instantiate(self, graph: Graph) -> Executable:
        return self.called("instantiate", Executable, graph)

    def replay(self, executable: Executable, stream: Stream) -> None:
        if stream.recording is not None:
            raise CaptureError("a replay can't be recorded.", reason="illegal_call")
        executable.replay(stream)

    def update(self, executable: Executable, former: Graph, graph: Graph) -> Misfit | None:
        return self.called("update", executable.update, graph)

    def destroy_graph(self, graph: Graph) -> None:
        graph.commands = ()

    def destroy_executable(self, executable: Executable) -> None:
        executable.destroy()

    def nodes(self, graph: Graph) -> tuple[list[GraphNode], list[GraphEdge]]:
        nodes = [GraphNode(each.number, each.kind, each.name) for each in graph.commands]
        edges = [GraphEdge(before, each.number) for each in graph.commands for before in each.after]
        return nodes, edges

    def instantiate_timed(
        self, graph: Graph, before: Sequence[int], after: Sequence[int]
    ) -> tuple[Executable, Sequence[Event]]:
        events: list[Event] = []
        try:
            for _ in (*before, *after):
                events.append(Event(self.called("instantiate_timed", Fence), None, frozenset()))
            fences = [self.fence(event) for event in events]
            starts, ends = fences[: len(before)], fences[len(before) :]
            return self.instantiate(self.with_marks(graph, before, after, starts, ends)), events
        except BaseException:
            for event in events:
                self.destroy_event(event)
            raise

    def with_marks(
        self,
        graph: Graph,
        before: Sequence[int],
        after: Sequence[int],
        starts: Sequence[Fence],
        ends: Sequence[Fence],
    ) -> Graph:
        commands = []
        for each in graph.commands:
            first = [
                fence.reach for number, fence in zip(before, starts, strict=True) if number == each.number
            ]
            last = [fence.reach for number, fence in zip(after, ends, strict=True) if number == each.number]
            run = partial(call_all, (*first, each.run, *last))
            commands.append(Command(each.number, each.kind, each.name, run, each.after, each.lane))
        return Graph(commands)


def call_all(functions: Sequence[Callable[[], object]]) -> None:
    for function in functions:
        function()


class ListsWork(HostWork):
    """Memory and kernels of a device, which only its queues reach."""

    device = 0
    exhausts_memory = True
    kernel_name = "device_step"

    def on(self, device: int) -> ListsWork:
        there = ListsWork(self.backend)
        there.device = device
        return there

    def new(self) -> Cell:
        cell = DeviceCell()
        cell.device = self.device
        return cell

    def enqueue(self, stream: ag.Stream, cell: Any, a: int, b: int) -> None:
        stream.launch(device_step, cell, a, b)

    def enqueue_slow(self, stream: ag.Stream, cell: Any, a: int, b: int) -> None:
        stream.launch(slow_device_step, cell, a, b)

    def fail(self, stream: ag.Stream) -> bool:
        stream.launch(fails)
        return True

    def exhausted(self, after: int = 0) -> Any:
        return accounts.refusing(after)

    @contextmanager
    def own_stream(self) -> Iterator[Queue]:
        queue = Queue(self.device)
        try:
            yield queue
        finally:
            queue.close()

    def buffer(self, nbytes: int) -> Any:
        memory = Memory(nbytes)
        memory.device = self.device
        return memory

    def live_objects(self) -> dict[str, int]:
        return Counter(type(each).__name__ for each in tuple(accounts.open))


class DeviceCell(Cell):
    device = 0


def device_step(cell: DeviceCell, a: int, b: int) -> None:
    if here.device == cell.device:
        step(cell, a, b)


def slow_device_step(cell: DeviceCell, a: int, b: int) -> None:
    if here.device == cell.device:
        slow_step(cell, a, b)


def fails() -> None:
    raise ZeroDivisionError("this piece of work fails")
