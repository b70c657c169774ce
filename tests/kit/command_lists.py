"""A runtime of command lists and its backend, without a bug: lanes, objects to close, deferred destruction.

A queue is a thread of a device. A recording has a lane for each stream that takes part; an executable has a
command list for each lane, and a queue of its own for each but the first. Every object of the runtime has to
be closed, and the runtime can be told to refuse the next ones.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import accelerator_graph as ag
from accelerator_graph.backends import recording
from accelerator_graph.backends.base import Availability, Enqueues, Misfit, TimesGraphs, UpdatesGraphs
from accelerator_graph.backends.recording import Capture, Captures, Graph, HasCaptures, Recorded
from accelerator_graph.errors import OutOfMemoryError, driver_error
from accelerator_graph.testing.works.host import Cell, HostWork, slow_step, step
from kit import explicit_runtime
from kit.explicit_runtime import PATIENCE, Latch

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


class Fence(Latch, Thing):
    """A mark in a queue, or one that a list sets when it runs."""

    def __init__(self) -> None:
        Thing.__init__(self)
        Latch.__init__(self)


class Queue(explicit_runtime.Queue, Thing):
    """Runs what is put on it in order. Keeps the first failure until it is taken."""

    def __init__(self, device: int = 0) -> None:
        Thing.__init__(self)
        self.device = device
        self.failure: Exception | None = None
        explicit_runtime.Queue.__init__(self)

    def serve(self) -> None:
        here.device = self.device
        super().serve()

    def failed(self, error: Exception) -> None:
        self.failure = self.failure or error

    def idle(self) -> bool:
        with self.changed:
            return not self.waiting and not self.busy

    def take_failure(self) -> Exception | None:
        failure, self.failure = self.failure, None
        return failure

    def close(self) -> None:
        Thing.close(self)
        super().close()


class CommandList(Thing):
    """The commands of one lane, with their numbers in the graph."""

    def __init__(self, commands: Sequence[tuple[int, Recorded]]) -> None:
        super().__init__()
        self.device: int = commands[0][1].work.device
        self.commands = tuple(commands)


class Memory(bytearray):
    """Memory of a device."""

    device = 0


def write(target: memoryview, source: memoryview | bytes, *memory: Any) -> None:
    """What fills and copies do: a queue reaches the memory of its device, and the host's."""
    if any(getattr(each, "device", here.device) != here.device for each in memory):
        raise RuntimeError("a page fault")
    target[:] = source


# ---- the backend: what is recorded -------------------------------------------------------------


class Command(NamedTuple):
    """A piece of work."""

    kind: str
    name: str
    run: Callable[[], object]
    device: int


class Stream:
    """A queue, and the capture that it takes part in."""

    place = None

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.capture: Capture | None = None


class Event:
    """A fence, or a point in a capture."""

    def __init__(
        self, fence: Fence | None, capture: Capture | None = None, nodes: frozenset[int] = frozenset()
    ) -> None:
        self.fence = fence
        self.capture = capture
        self.nodes = nodes


# ---- the backend: graphs -----------------------------------------------------------------------


def lanes(graph: Graph) -> list[list[tuple[int, Recorded]]]:
    """Return the commands of each stream that took part, with their numbers."""
    lanes: dict[int, list[tuple[int, Recorded]]] = {}
    for number, command in enumerate(graph.nodes):
        lanes.setdefault(command.branch, []).append((number, command))
    return list(lanes.values())


class Lists:
    """The command lists of an executable, closed with the last run that needs them."""

    def __init__(self, graph: Graph) -> None:
        self.users = 1  # the executable
        self.lock = threading.RLock()
        self.lists: list[CommandList] = []
        try:
            for lane in lanes(graph):
                self.lists.append(CommandList(lane))
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


class Run(recording.Run):
    """One run: its lists, and a latch for each command, which the other lanes wait for."""

    def __init__(self, executable: Executable, stream: Stream) -> None:
        super().__init__()
        self.executable = executable
        self.stream = stream
        self.lists = executable.lists
        self.before: threading.Event | None = None
        self.done = threading.Event()
        self.begun = False
        self.failure: Exception | None = None

    def follow(self, previous: Run | None) -> None:
        self.before = None if previous is None else previous.done

    def submit(self) -> None:
        self.stream.queue.put(self.start)

    def start(self) -> None:
        """Run all lanes; called by the stream's thread, once or twice, and the second time has no effect."""
        if self.begun:
            return
        self.begun = True
        executable = self.executable
        executable.wait_for_turn(self)
        done = {number: threading.Event() for each in self.lists.lists for number, _ in each.commands}
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
            self.done.set()
            executable.end(self)
        if self.failure is not None:
            raise self.failure

    def run_and_set(self, lane: Callable[[], None], end: threading.Event) -> None:
        try:
            lane()
        finally:
            end.set()

    def run_lane(self, commands: CommandList, done: dict[int, threading.Event]) -> None:
        if commands not in accounts.open:
            raise RuntimeError("the list is closed")
        for number, command in commands.commands:
            for earlier in command.after:
                done[earlier].wait(PATIENCE)
            try:
                if self.failure is None:
                    command.work.run()
            except Exception as error:
                self.failure = self.failure or error
            finally:
                done[number].set()


class Executable:
    """Command lists, the queues of its lanes, and its runs in call order."""

    kind_of_run = Run

    def __init__(self, graph: Graph) -> None:
        self.changed = threading.Condition()
        self.order = recording.Runs()
        self.runs: deque[Run] = deque()  # those that are not over
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
        run = self.kind_of_run(self, stream)
        try:
            run.lists.enter()
            self.runs.append(run)
            self.order.enqueue(run)
        except BaseException:
            if run.submission == "ahead":
                self.end(run)
            raise

    def wait_for_turn(self, run: Run) -> None:
        if run.before is not None:
            run.before.wait(PATIENCE)

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


class CommandLists(HasCaptures, Enqueues, TimesGraphs, UpdatesGraphs):
    """No bug."""

    api_version = 1
    stream_modules = frozenset({__name__.partition(".")[0]})

    @classmethod
    def probe(cls) -> Availability:
        return Availability(True)

    def open(self) -> None:
        self.device_count = 2
        self.streams: WeakValueDictionary[int, Stream] = WeakValueDictionary()
        self.captures = Captures(self.name)

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

    def synchronize(self, stream: Any) -> None:
        if isinstance(stream, Event):
            self.synchronize_event(stream)
            return
        self.captures.check_waiting(stream, "synchronize")
        stream.queue.finish()
        self.report(stream)

    def query(self, stream: Any) -> bool:
        if isinstance(stream, Event):
            return self.query_event(stream)
        self.captures.check_waiting(stream, "query")
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

    # ---- events --------------------------------------------------------------------------------

    def record_event(self, stream: Stream, *, timed: bool = False) -> Event:
        point = self.captures.mark(stream)
        if point is not None:
            return Event(None, *point)
        fence = self.called("record_event", Fence)
        stream.queue.put(fence.set)
        return Event(fence)

    def wait_event(self, stream: Stream, event: Event) -> None:
        if not self.captures.link(stream, event):
            stream.queue.put(self.fence(event).wait)

    def destroy_event(self, event: Event) -> None:
        if event.fence is not None:
            event.fence.close()

    def query_event(self, event: Event) -> bool:
        return self.fence(event).event.is_set()

    def synchronize_event(self, event: Event) -> None:
        self.fence(event).wait()

    def elapsed_time(self, start: Event, end: Event) -> float | None:
        first, last = self.fence(start), self.fence(end)
        return (last.time - first.time) * 1000 if first.event.is_set() and last.event.is_set() else None

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
        command = Command(kind, name, partial(work, *args), stream.queue.device)
        if not self.captures.record(stream, "launch", command):
            stream.queue.put(command.run)

    # ---- graphs --------------------------------------------------------------------------------

    def instantiate(self, graph: Graph) -> Executable:
        return self.called("instantiate", Executable, graph)

    def replay(self, executable: Executable, stream: Stream) -> None:
        self.captures.check_waiting(stream, "replay")  # which can't be recorded
        executable.replay(stream)

    def update(self, executable: Executable, former: Graph, graph: Graph) -> Misfit | None:
        return self.called("update", executable.update, graph)

    def destroy_executable(self, executable: Executable) -> None:
        executable.destroy()

    def instantiate_timed(
        self, graph: Graph, before: Sequence[int], after: Sequence[int]
    ) -> tuple[Executable, Sequence[Event]]:
        events: list[Event] = []
        try:
            for _ in (*before, *after):
                events.append(Event(self.called("instantiate_timed", Fence)))
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
        nodes = []
        for number, node in enumerate(graph.nodes):
            first = [fence.set for at, fence in zip(before, starts, strict=True) if at == number]
            last = [fence.set for at, fence in zip(after, ends, strict=True) if at == number]
            run = partial(call_all, (*first, node.work.run, *last))
            nodes.append(node._replace(work=node.work._replace(run=run)))
        return Graph(nodes, graph.origin)


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
