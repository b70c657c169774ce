"""What the author of a plug-in may get wrong: backends of a runtime that records explicitly, a bug each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from accelerator_graph.backends.base import CaptureStatus
from accelerator_graph.errors import DriverError
from kit.explicit_runtime import Entry, Event, Executable, Explicit, Latch, Queue, Recording

# ---- runs ------------------------------------------------------------------------------------------


class RunsWhenAskedFor(Explicit):
    def replay(self, executable: Executable, stream: Queue) -> None:
        for entry in executable.entries:
            entry.run()


class LatestRunWins(Explicit):
    """Asking while a run waits for its turn changes nothing."""

    def replay(self, executable: Executable, stream: Queue) -> None:
        if executable.last is None or executable.last.event.is_set():
            super().replay(executable, stream)


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
    """An event that was destroyed is given out again, and those who wait for it wait for the new mark."""

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


class EventsNeedAKnownThread(Explicit):
    """As a driver without a current context: the thread has to have made a stream first."""

    def open(self) -> None:
        self.known = threading.local()

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Queue:
        self.known.context = True
        return super().create_stream(device, like=like, priority=priority)

    def record_event(self, stream: Queue) -> Event:
        if not hasattr(self.known, "context"):
            raise DriverError("this thread has no context.")
        return super().record_event(stream)


class AlwaysAnotherCurrentStream(Explicit):
    def current_stream(self, device: int | None = None) -> Queue:
        return self.create_stream(0)


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


class AbandonLeavesForks(Explicit):
    def capture_abandon(self, token: Recording) -> None:
        token.over = True
        token.first.recording = None


class AbandonTakesTheGraph(Explicit):
    def capture_abandon(self, token: Recording) -> None:
        super().capture_abandon(token)
        token.entries.clear()


class RefusesWithTheVendorsError(Explicit):
    def refuse_recording(self, stream: Queue) -> None:
        if stream.recording is not None:
            raise RuntimeError("RT_ERROR_STREAM_RECORDING")


class QueryRaisesForWorkInProgress(Explicit):
    def query(self, stream: Queue) -> bool:
        if not super().query(stream):
            raise RuntimeError("RT_NOT_READY")
        return True


class MakesAGraphOfABrokenRecording(Explicit):
    """An illegal call breaks a recording here, and nobody looks at that when it ends."""

    def open(self) -> None:
        self.broken: set[Recording] = set()

    def refuse_recording(self, stream: Queue) -> None:
        if stream.recording is not None:
            self.broken.add(stream.recording)
        super().refuse_recording(stream)

    def capture_status(self, stream: Queue) -> CaptureStatus:
        if stream.recording in self.broken:
            return CaptureStatus.INVALIDATED
        return super().capture_status(stream)


class EndThatRaisesEndsNothing(Explicit):
    def capture_end(self, token: Recording) -> Any:
        try:
            return super().capture_end(token)
        except DriverError:
            for stream in token.ends:
                stream.recording = token
            raise


class OneJoinIsEnough(Explicit):
    """Takes work for joined that is enqueued after its stream was joined."""

    def link(self, recording: Recording, stream: Queue, nodes: frozenset[int]) -> None:
        super().link(recording, stream, nodes)
        recording.joined = stream is recording.first

    def capture_end(self, token: Recording) -> Any:
        if not getattr(token, "joined", False):
            return super().capture_end(token)
        token.close()
        return token.entries


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


class CountsStreams(Explicit):
    def node_count(self, graph: Any) -> int:
        return len(graph) + len({entry.stream for entry in graph}) - 1


class DumpsNoEdges(Explicit):
    def dump(self, graph: Any, path: str, verbose: bool) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write("digraph {}")
