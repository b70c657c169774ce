"""A runtime unlike CUDA, and its backend: what is enqueued on a recording stream is written down.

Streams are queues with a thread each. No call breaks a recording: what is illegal is refused, no more.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from accelerator_graph.backends.base import (
    Availability,
    CaptureInfo,
    CaptureStatus,
    Enqueues,
    GraphEdge,
    GraphNode,
    ReadsGraphs,
    TimesEvents,
)
from accelerator_graph.backends.recording import Run, Runs
from accelerator_graph.errors import CaptureError, DriverError

PATIENCE = 20
"""Seconds after which a thread of the runtime gives up what hangs: the threads of bugs end, too."""


class Latch:
    def __init__(self) -> None:
        self.event = threading.Event()
        self.time = 0.0

    def set(self) -> None:
        self.time = time.perf_counter()
        self.event.set()

    def wait(self) -> None:
        self.event.wait(PATIENCE)


class Queue:
    """The runtime's stream: what is put on it is called in order, by a thread of its own."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], object]] = deque()
        self.changed = threading.Condition()
        self.recording: Recording | None = None
        self.busy = self.closed = False
        threading.Thread(target=self.serve, daemon=True).start()

    def put(self, work: Callable[[], object]) -> None:
        with self.changed:
            try:
                self.waiting.append(work)
            finally:  # even if a signal comes in between
                self.changed.notify_all()

    def serve(self) -> None:
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
                self.failed(error)
            del work

    def failed(self, error: Exception) -> None:
        """What is wrong with work, its caller should have been told."""

    def finish(self) -> None:
        with self.changed:
            self.changed.notify_all()  # for a `put` in which a signal handler waits
            assert self.changed.wait_for(lambda: not self.waiting and not self.busy, PATIENCE)

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()


class Entry:
    def __init__(self, kind: str, run: Callable[[], object], after: frozenset[int], stream: Queue) -> None:
        self.kind = kind
        self.run = run
        self.after = after
        self.stream = stream


class Recording:
    """What is being written down; `ends` has the last entries of every stream that takes part."""

    def __init__(self, stream: Queue) -> None:
        self.entries: list[Entry] = []
        self.ends: dict[Queue, frozenset[int]] = {stream: frozenset()}
        self.first = stream
        self.over = False

    def close(self) -> None:
        self.over = True
        for stream in self.ends:
            if stream.recording is self:
                stream.recording = None


class Event:
    def __init__(
        self, latch: Latch | None, recording: Recording | None, nodes: frozenset[int], stream: Queue
    ) -> None:
        self.latch = latch
        self.recording = recording
        self.nodes = nodes
        self.stream = stream


class Executable:
    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.runs = Runs()
        self.last: Latch | None = None


class OneRun(Run):
    """Put on its queue once or twice: a signal handler may come in the middle, and only the first counts."""

    def __init__(self, backend: Explicit, entries: list[Entry], stream: Queue) -> None:
        super().__init__()
        self.backend = backend
        self.entries = entries
        self.stream = stream
        self.done = Latch()
        self.before: Latch | None = None
        self.begun = False

    def follow(self, previous: OneRun | None) -> None:
        self.before = previous and previous.done

    def submit(self) -> None:
        self.stream.put(self.begin)

    def begin(self) -> None:
        if not self.begun:
            self.begun = True
            self.backend.run(self.entries, self.before, self.done)


class Explicit(TimesEvents, Enqueues, ReadsGraphs):
    """No bug."""

    api_version = 1
    recording = "explicit"

    @classmethod
    def probe(cls) -> Availability:
        return Availability(True)

    # ---- streams and events --------------------------------------------------------------------

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Queue:
        return Queue()

    def destroy_stream(self, stream: Queue) -> None:
        stream.close()

    def device_of(self, stream: Queue) -> int:
        return 0

    def synchronize(self, stream: Any) -> None:
        if isinstance(stream, Event):
            self.synchronize_event(stream)
            return
        self.refuse_recording(stream)
        stream.finish()

    def query(self, stream: Any) -> bool:
        if isinstance(stream, Event):
            return self.query_event(stream)
        self.refuse_recording(stream)
        return not (stream.waiting or stream.busy)

    def refuse_recording(self, stream: Queue) -> None:
        if stream.recording is not None:
            raise CaptureError("a recording stream can't be waited for.", reason="illegal_call")

    def record_event(self, stream: Queue, *, timed: bool = False) -> Event:
        if stream.recording is not None:
            return Event(None, stream.recording, stream.recording.ends[stream], stream)
        latch = Latch()
        stream.put(latch.set)
        return Event(latch, None, frozenset(), stream)

    def wait_event(self, stream: Queue, event: Event) -> None:
        own, other = stream.recording, event.recording
        if other is None and own is None:
            assert event.latch is not None
            stream.put(event.latch.wait)
        elif other is None or other.over or own not in (None, other):
            raise DriverError("the event is not of this recording.", reason="foreign_capture")
        else:
            stream.recording = other
            self.link(other, stream, event.nodes)

    def query_event(self, event: Event) -> bool:
        return self.latch(event).event.is_set()

    def synchronize_event(self, event: Event) -> None:
        self.latch(event).wait()

    def elapsed_time(self, start: Event, end: Event) -> float | None:
        if not (self.query_event(start) and self.query_event(end)):
            return None
        return (self.latch(end).time - self.latch(start).time) * 1000

    def latch(self, event: Event) -> Latch:
        assert event.latch is not None
        return event.latch

    def link(self, recording: Recording, stream: Queue, nodes: frozenset[int]) -> None:
        recording.ends[stream] = recording.ends.get(stream, frozenset()) | nodes

    # ---- work ----------------------------------------------------------------------------------

    def fill(self, stream: Queue, dst: Any, value: int, nbytes: int | None) -> None:
        target = self.view(dst, nbytes)
        self.enqueue(stream, "memset", partial(target.__setitem__, slice(None), bytes([value]) * len(target)))

    def copy(self, stream: Queue, dst: Any, src: Any, nbytes: int | None) -> None:
        source = self.view(src, nbytes, writable=False)
        target = self.view(dst, len(source))
        self.enqueue(stream, "memcpy", partial(target.__setitem__, slice(None), source))

    def launch(self, stream: Queue, work: Any, /, *args: Any, **how: Any) -> None:
        self.enqueue(stream, "host", partial(work, *args, **how))

    def view(self, buffer: Any, nbytes: int | None, *, writable: bool = True) -> memoryview:
        view = memoryview(buffer).cast("B")
        if view.readonly and writable:
            raise ValueError("the memory can't be written.")
        if nbytes is not None and nbytes > len(view):
            raise ValueError(f"{nbytes} bytes of {len(view)}.")
        return view[:nbytes]

    def enqueue(self, stream: Queue, kind: str, run: Callable[[], object]) -> None:
        recording = stream.recording
        if recording is None:
            stream.put(run)
        else:
            recording.entries.append(Entry(kind, run, recording.ends[stream], stream))
            recording.ends[stream] = frozenset({len(recording.entries) - 1})

    # ---- recordings ----------------------------------------------------------------------------

    def capture_status(self, stream: Queue) -> CaptureStatus:
        return CaptureStatus.NONE if stream.recording is None else CaptureStatus.ACTIVE

    def capture_info(self, stream: Queue) -> CaptureInfo | None:
        recording = stream.recording
        return None if recording is None else CaptureInfo(id(recording), len(recording.entries))

    def capture_begin(self, stream: Queue, mode: str) -> Recording:
        stream.recording = Recording(stream)
        return stream.recording

    def capture_end(self, token: Recording) -> Any:
        joined, waiting = set[int](), list(token.ends[token.first])
        while waiting:
            node = waiting.pop()
            if node not in joined:
                joined.add(node)
                waiting.extend(token.entries[node].after)
        token.close()
        if len(joined) < len(token.entries):
            raise self.unjoined()
        return token.entries

    def unjoined(self) -> DriverError:
        return DriverError("a fork was not joined.", reason="unjoined")

    def capture_abandon(self, token: Recording) -> None:
        token.close()

    # ---- graphs --------------------------------------------------------------------------------

    def instantiate(self, graph: Any) -> Executable:
        return Executable(list(graph))

    def replay(self, executable: Executable, stream: Queue) -> None:
        if stream.recording is not None:
            raise CaptureError("a replay can't be recorded.", reason="illegal_call")
        run = OneRun(self, executable.entries, stream)
        executable.runs.enqueue(run)
        executable.last = run.done

    def run(self, entries: list[Entry], before: Latch | None, done: Latch) -> None:
        if before is not None:
            before.wait()
        try:
            for entry in entries:
                entry.run()
        finally:
            done.set()

    def destroy_graph(self, graph: Any) -> None:
        graph.clear()

    def destroy_executable(self, executable: Executable) -> None:
        executable.entries = []

    def nodes(self, graph: Any, executable: Any = None) -> tuple[list[GraphNode], list[GraphEdge]]:
        nodes = [GraphNode(number, entry.kind) for number, entry in enumerate(graph)]
        edges = [GraphEdge(before, number) for number, entry in enumerate(graph) for before in entry.after]
        return nodes, edges
