"""Backends that wait where they must not, or let others wait."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from accelerator_graph.backends.cpu import CpuBackend
from kit.explicit_runtime import Event, Executable, Explicit, Latch, Queue
from kit.planted.collection import caught_by


@caught_by("test_events_and_queries_wait_for_nothing")
class QueryWaits(CpuBackend):
    def query(self, stream: Any) -> bool:
        self.synchronize(stream)
        return True


@caught_by("test_events_and_queries_wait_for_nothing")
class WaitsOnTheHost(CpuBackend):
    """Has no way to let a stream wait for an event of another one."""

    def wait_event(self, stream: Any, event: Any) -> None:
        if event.mark is not None and stream.capture is None:
            event.mark.wait()
        super().wait_event(stream, event)


@caught_by("test_reading_waits_for_the_stream")
class ReadsAtOnce(CpuBackend):
    def read(self, stream: Any, src: Any, nbytes: int) -> bytes:
        return bytes(memoryview(src).cast("B")[:nbytes])


@caught_by("test_synchronize_holds_up_no_other_thread")
class OneLock(CpuBackend):
    """One lock around all calls that touch streams."""

    def open(self) -> None:
        super().open()
        self.lock = threading.RLock()

    def synchronize(self, stream: Any) -> None:
        with self.lock:
            super().synchronize(stream)

    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        with self.lock:
            super().launch(stream, work, *args, **how)


@caught_by("test_events_and_queries_wait_for_nothing")
class MarksWait(Explicit):
    """Waits for the work before it says that it is done."""

    def record_event(self, stream: Queue, *, timed: bool = False) -> Event:
        event = super().record_event(stream)
        if event.latch is not None:
            event.latch.wait()
        return event


@caught_by("test_synchronize_holds_up_no_other_thread")
class QueriesWaitTheirTurn(Explicit):
    """A lock for each stream."""

    def open(self) -> None:
        self.locks: dict[Queue, threading.RLock] = {}

    def synchronize(self, stream: Queue) -> None:
        with self.locks.setdefault(stream, threading.RLock()):
            super().synchronize(stream)

    def query(self, stream: Queue) -> bool:
        with self.locks.setdefault(stream, threading.RLock()):
            return super().query(stream)


@caught_by("test_interrupted_replay_is_done_or_not")
class RunsWaitForALostOne(Explicit):
    """Notes a run before it is on the stream, where it may never come."""

    def replay(self, executable: Executable, stream: Queue) -> None:
        self.refuse_recording(stream)
        before, executable.last = executable.last, Latch()
        stream.put(partial(self.run, executable.entries, before, executable.last))
