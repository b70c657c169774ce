"""A runtime unlike CUDA, and what the author of its plug-in may get wrong: one bug in each class.

Streams are queues with a thread each. What is enqueued on a recording stream is written down and nothing
breaks a recording; an illegal call is refused, and that is all.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from accelerator_graph.backends.base import (
    Availability,
    Backend,
    Capability,
    CaptureStatus,
    GraphEdge,
    GraphNode,
)
from accelerator_graph.errors import CaptureError, DriverError


class Latch:
    def __init__(self) -> None:
        self.event = threading.Event()

    def set(self) -> None:
        self.event.set()

    def wait(self) -> None:
        assert self.event.wait(20)


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
            self.waiting.append(work)
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
            work()
            del work

    def finish(self) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: not self.waiting and not self.busy, 20)

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
        self.last: Latch | None = None


class Explicit(Backend):
    """No bug."""

    api_version = 1
    recording = "explicit"

    @classmethod
    def probe(cls) -> Availability:
        return Availability(True)

    def capabilities(self, device: int) -> Any:
        return {Capability.ENQUEUE, Capability.EVENTS, Capability.NODES, Capability.REINSTANTIATE}

    def device_count(self) -> int:
        return 1

    # ---- streams and events --------------------------------------------------------------------

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Queue:
        return Queue()

    def destroy_stream(self, stream: Queue) -> None:
        stream.close()

    def device_of(self, stream: Queue) -> int:
        return 0

    def synchronize(self, stream: Queue) -> None:
        self.refuse_recording(stream)
        stream.finish()

    def query(self, stream: Queue) -> bool:
        self.refuse_recording(stream)
        return not (stream.waiting or stream.busy)

    def refuse_recording(self, stream: Queue) -> None:
        if stream.recording is not None:
            raise CaptureError("a recording stream can't be waited for.", reason="illegal_call")

    def record_event(self, stream: Queue) -> Event:
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

    def capture_id(self, stream: Queue) -> int | None:
        return None if stream.recording is None else id(stream.recording)

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
        before, executable.last = executable.last, Latch()
        stream.put(partial(self.run, executable.entries, before, executable.last))

    def run(self, entries: list[Entry], before: Latch | None, done: Latch) -> None:
        if before is not None:
            before.wait()
        for entry in entries:
            entry.run()
        done.set()

    def destroy_graph(self, graph: Any) -> None:
        graph.clear()

    def destroy_executable(self, executable: Executable) -> None:
        executable.entries = []

    def node_count(self, graph: Any) -> int:
        return len(graph)

    def nodes(self, graph: Any) -> tuple[list[GraphNode], list[GraphEdge]]:
        nodes = [GraphNode(number, entry.kind) for number, entry in enumerate(graph)]
        edges = [GraphEdge(before, number) for number, entry in enumerate(graph) for before in entry.after]
        return nodes, edges


# ---- runs ------------------------------------------------------------------------------------------


class RunsWhenAskedFor(Explicit):
    def replay(self, executable: Executable, stream: Queue) -> None:
        for entry in executable.entries:
            entry.run()


class RunsInFrontOfTheQueue(Explicit):
    def replay(self, executable: Executable, stream: Queue) -> None:
        with stream.changed:
            super().replay(executable, stream)
            stream.waiting.rotate()


class RunsOverlap(Explicit):
    def replay(self, executable: Executable, stream: Queue) -> None:
        executable.last = None
        super().replay(executable, stream)


class LatestRunWins(Explicit):
    """Asking while a run waits for its turn changes nothing."""

    def replay(self, executable: Executable, stream: Queue) -> None:
        if executable.last is None or executable.last.event.is_set():
            super().replay(executable, stream)


class DestroysWhatRuns(Explicit):
    def destroy_executable(self, executable: Executable) -> None:
        executable.entries.clear()


class BindsTheRecordedStream(Explicit):
    def bind(self, executable: Executable, stream: Queue) -> Callable[[], None]:
        return partial(self.replay, executable, executable.entries[0].stream)


class BindsOnce(Explicit):
    """Keeps what it has bound by the executable alone."""

    def open(self) -> None:
        self.bound: dict[Any, Callable[[], None]] = {}

    def bind(self, executable: Executable, stream: Queue) -> Callable[[], None]:
        return self.bound.setdefault(executable, super().bind(executable, stream))


class NeedsTheStreams(Explicit):
    """What was recorded on a stream goes with it."""

    def open(self) -> None:
        self.gone: set[Queue] = set()

    def destroy_stream(self, stream: Queue) -> None:
        self.gone.add(stream)
        super().destroy_stream(stream)

    def run(self, entries: list[Entry], before: Latch | None, done: Latch) -> None:
        super().run([entry for entry in entries if entry.stream not in self.gone], before, done)


class SynchronizeMissesReplays(Explicit):
    """Replays have a queue of their own beside each stream's."""

    def open(self) -> None:
        self.beside = Queue()

    def replay(self, executable: Executable, stream: Queue) -> None:
        latch = Latch()
        stream.put(latch.set)
        self.beside.put(latch.wait)
        super().replay(executable, self.beside)


# ---- events ----------------------------------------------------------------------------------------


class ReusesEvents(Explicit):
    """An event that was destroyed is given out again, and whoever waits for it waits for the new mark."""

    def open(self) -> None:
        self.unused: list[Event] = []

    def record_event(self, stream: Queue) -> Event:
        new = super().record_event(stream)
        if new.latch is None or not self.unused:
            return new
        event = self.unused.pop()
        event.latch = new.latch
        return event

    def wait_event(self, stream: Queue, event: Event) -> None:
        if stream.recording is None and event.recording is None:
            stream.put(lambda: event.latch.wait())  # type: ignore[union-attr]
        else:
            super().wait_event(stream, event)

    def destroy_event(self, event: Event) -> None:
        if event.latch is not None:
            self.unused.append(event)


class MovesEvents(Explicit):
    """Each stream has one event, which marks what was recorded last."""

    def open(self) -> None:
        self.events: dict[Queue, Event] = {}

    def record_event(self, stream: Queue) -> Event:
        new = super().record_event(stream)
        event = self.events.setdefault(stream, new)
        event.latch, event.recording, event.nodes = new.latch, new.recording, new.nodes
        return event


class EventsAreUsedUp(Explicit):
    """As a binary semaphore: one wait takes it."""

    def record_event(self, stream: Queue) -> Event:
        event = super().record_event(stream)
        if event.latch is not None:
            latch = event.latch
            latch.wait = lambda: (Latch.wait(latch), latch.event.clear())  # type: ignore[assignment]
        return event


class EventsDieWithTheirStream(Explicit):
    """What was on a stream runs, but nobody hears of its marks any more."""

    def wait_event(self, stream: Queue, event: Event) -> None:
        if not event.stream.closed:
            super().wait_event(stream, event)


class EventsMissReplays(Explicit):
    """A mark is set behind the eager work of its stream."""

    def open(self) -> None:
        self.eager: dict[Queue, Latch] = {}

    def enqueue(self, stream: Queue, kind: str, run: Callable[[], object]) -> None:
        super().enqueue(stream, kind, run)
        if stream.recording is None:
            self.eager[stream] = Latch()
            stream.put(self.eager[stream].set)

    def record_event(self, stream: Queue) -> Event:
        event = super().record_event(stream)
        if event.latch is not None:
            event.latch = self.eager.get(stream) or Latch()
            if stream not in self.eager:
                event.latch.set()
        return event


class ReplaysDoNotWait(Explicit):
    """Waits hold up eager work; replays go round them, once what is on the stream is done."""

    def open(self) -> None:
        self.waits: dict[Queue, list[Latch]] = {}

    def wait_event(self, stream: Queue, event: Event) -> None:
        if stream.recording is None and event.latch is not None:
            self.waits.setdefault(stream, []).append(event.latch)
        else:
            super().wait_event(stream, event)

    def enqueue(self, stream: Queue, kind: str, run: Callable[[], object]) -> None:
        if stream.recording is None:
            for latch in self.waits.pop(stream, []):
                stream.put(latch.wait)
        super().enqueue(stream, kind, run)


class WaitsForItselfForEver(Explicit):
    def wait_event(self, stream: Queue, event: Event) -> None:
        if stream is event.stream and event.latch is not None and stream.recording is None:
            never = Latch()
            stream.put(never.wait)
        super().wait_event(stream, event)


# ---- recordings ------------------------------------------------------------------------------------


class ForkSaysNone(Explicit):
    def capture_status(self, stream: Queue) -> CaptureStatus:
        if stream.recording is not None and stream.recording.first is not stream:
            return CaptureStatus.NONE
        return super().capture_status(stream)


class AbandonLeavesForks(Explicit):
    def capture_abandon(self, token: Recording) -> None:
        token.over = True
        token.first.recording = None


class AbandonTakesTheGraph(Explicit):
    def capture_abandon(self, token: Recording) -> None:
        super().capture_abandon(token)
        token.entries.clear()


class AbandonRaises(Explicit):
    def capture_abandon(self, token: Recording) -> None:
        if token.over:
            raise KeyError("no such recording")
        super().capture_abandon(token)


class EndRefusesWithoutAReason(Explicit):
    def unjoined(self) -> DriverError:
        return DriverError("a fork was not joined.")


class RecordsForOneThread(Explicit):
    def enqueue(self, stream: Queue, kind: str, run: Callable[[], object]) -> None:
        if stream.recording is None or stream.recording.thread is threading.current_thread():
            super().enqueue(stream, kind, run)
        else:
            stream.put(run)

    def capture_begin(self, stream: Queue, mode: str) -> Recording:
        token = super().capture_begin(stream, mode)
        token.thread = threading.current_thread()
        return token


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


class LastWaitWins(Explicit):
    def link(self, recording: Recording, stream: Queue, nodes: frozenset[int]) -> None:
        recording.ends[stream] = nodes | frozenset(
            recording.ends.get(stream, frozenset()) if not nodes else ()
        )


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


# ---- work and graphs -------------------------------------------------------------------------------


class ClipsMemory(Explicit):
    def view(self, buffer: Any, nbytes: int | None, *, writable: bool = True) -> memoryview:
        return memoryview(buffer).cast("B")[:nbytes]


class WritesReadOnlyMemory(Explicit):
    """Finds out when the work runs."""

    def view(self, buffer: Any, nbytes: int | None, *, writable: bool = True) -> memoryview:
        return super().view(buffer, nbytes, writable=False)


class CopiesTheSourceAtOnce(Explicit):
    def copy(self, stream: Queue, dst: Any, src: Any, nbytes: int | None) -> None:
        super().copy(stream, dst, bytes(self.view(src, nbytes, writable=False)), None)


class CountsStreams(Explicit):
    def node_count(self, graph: Any) -> int:
        return len(graph) + len({entry.stream for entry in graph}) - 1


class DumpsTheSameGraph(Explicit):
    text = ""

    def dump(self, graph: Any, path: str, verbose: bool) -> None:
        if not self.text:
            super().dump(graph, path, verbose)
            with open(path, encoding="utf-8") as file:
                self.text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)


class DumpsNoEdges(Explicit):
    def dump(self, graph: Any, path: str, verbose: bool) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write("digraph {}")
