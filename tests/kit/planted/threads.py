"""Backends that mix up threads."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from accelerator_graph.backends._cpu.graph import Executable as CpuExecutable
from accelerator_graph.backends._cpu.graph import QueuedRun
from accelerator_graph.backends.base import (
    CaptureStatus,
)
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.backends.recording import Runs
from accelerator_graph.errors import DriverError
from kit.explicit_runtime import Event, Executable, Explicit, Latch, Queue, Recording
from kit.planted.collection import caught_by
from kit.planted.without_a_fault import NothingNative


def together() -> None:
    """Wait for a second thread to come here, but not for long."""
    try:
        meeting.wait(0.05)
    except threading.BrokenBarrierError:
        meeting.reset()


meeting = threading.Barrier(2)


@caught_by("test_serialised_replays_are_all_done")
class SaysThatItSerialises(NothingNative):
    """Two threads read which run is the last one before either notes its own."""

    serialises_replays = True

    def replay(self, executable: CpuExecutable, stream: Any) -> None:
        if stream.capture is not None:
            super().replay(executable, stream)
            return
        run = QueuedRun(executable._plan, stream.worker)
        run.follow(executable._runs.latest)
        together()
        run.submit()
        executable._runs._runs = deque([run])


class ForgetfulRuns(Runs):
    """A run counts only once it is known to be submitted."""

    def enqueue(self, run: Any) -> None:
        run.follow(self.latest)
        run.submit()
        self._runs = deque([run])


@caught_by("test_run_behind_an_interrupted_replay_waits_for_it")
class ForgetsInterruptedRuns(Explicit):
    def instantiate(self, graph: Any) -> Executable:
        executable = super().instantiate(graph)
        executable.runs = ForgetfulRuns()
        return executable


@caught_by("test_serialised_replays_are_all_done")
class ForgetsRunsOfOtherThreads(NothingNative):
    """Orders the runs of each thread."""

    serialises_replays = True

    def open(self) -> None:
        super().open()
        self.mine = threading.local()

    def replay(self, executable: CpuExecutable, stream: Any) -> None:
        executable._runs = self.mine.__dict__.setdefault(executable, Runs())
        super().replay(executable, stream)


@caught_by("test_capture_status_is_the_same_on_every_thread")
class OneThreadKnowsTheStatus(CpuBackend):
    def capture_status(self, stream: Any) -> Any:
        found = super().capture_status(stream)
        known = found is CaptureStatus.NONE or stream.capture.thread is threading.current_thread()
        return found if known else CaptureStatus.NONE


@caught_by("test_every_call_works_on_a_thread_that_never_saw_the_device")
class EventsNeedAKnownThread(Explicit):
    """As a driver without a current context: the thread has to have made a stream first."""

    def open(self) -> None:
        self.known = threading.local()

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Queue:
        self.known.context = True
        return super().create_stream(device, like=like, priority=priority)

    def record_event(self, stream: Queue, *, timed: bool = False) -> Event:
        if not hasattr(self.known, "context"):
            raise DriverError("this thread has no context.")
        return super().record_event(stream)


@caught_by("test_work_of_another_thread_on_the_captured_stream_is_recorded")
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


@caught_by("test_preparing_a_capture_disturbs_no_other")
class RelaxesNothing(CpuBackend):
    def relaxed(self, stream: Any) -> Any:
        return nullcontext()


@caught_by("test_relaxed_contexts_end_as_they_began")
class RelaxedOnce(CpuBackend):
    @contextmanager
    def relaxed(self, stream: Any) -> Any:
        assert not getattr(self, "_inside", False)
        self._inside = True
        yield
        self._inside = False


@caught_by("test_stream_can_be_used_from_another_thread")
class WaitsForItsOwnThread(CpuBackend):
    """`synchronize` waits for the work that the calling thread has enqueued."""

    def open(self) -> None:
        super().open()
        self.mine = threading.local()

    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        super().launch(stream, work, *args, **how)
        self.mine.__dict__[stream] = True

    def synchronize(self, stream: Any) -> None:
        if stream in self.mine.__dict__ or stream.capture is not None:
            super().synchronize(stream)


@caught_by("test_captures_in_two_threads_at_once")
class OneCaptureInTheProcess(CpuBackend):
    def capture_begin(self, stream: Any, mode: str) -> Any:
        if any(each.thread is not threading.current_thread() for each in self.captures._open):
            raise DriverError("another thread captures.", reason="foreign_capture")
        return super().capture_begin(stream, mode)


@caught_by("test_captures_beside_a_thread_that_makes_and_drops_executables")
class InstantiatesInOnePlace(CpuBackend):
    """Two threads that instantiate at once get each other's graph."""

    def instantiate(self, graph: Any) -> Any:
        self.graph = graph
        time.sleep(0)
        return super().instantiate(self.graph)


@caught_by("test_every_call_works_on_a_thread_that_never_saw_the_device")
class ReplaysNeedAKnownThread(Explicit):
    """As a driver without a current context: the thread has to have made a stream first."""

    def open(self) -> None:
        self.known = threading.local()

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Queue:
        self.known.context = True
        return super().create_stream(device)

    def replay(self, executable: Executable, stream: Queue) -> None:
        if not hasattr(self.known, "context"):
            raise DriverError("this thread has no context.")
        super().replay(executable, stream)


@caught_by("test_capture_status_is_the_same_on_every_thread")
class RecordsInAThread(Explicit):
    """Only the thread that records knows of it."""

    def capture_begin(self, stream: Queue, mode: str) -> Recording:
        token = super().capture_begin(stream, mode)
        token.thread = threading.get_ident()
        return token

    def capture_status(self, stream: Queue) -> CaptureStatus:
        own = stream.recording is None or stream.recording.thread == threading.get_ident()
        return super().capture_status(stream) if own else CaptureStatus.NONE


@caught_by("test_serialised_replays_are_all_done")
class LosesRunsUnderThreads(Explicit):
    """Serialises nothing, and says that it does: the latest run is read twice before it is written."""

    serialises_replays = True

    def replay(self, executable: Executable, stream: Queue) -> None:
        self.refuse_recording(stream)
        last, done = executable.last, Latch()
        together()
        stream.put(partial(self.run, executable.entries, last, done))
        executable.last = done


@caught_by("test_synchronize_lets_other_threads_run")
class HoldsTheInterpreter(CpuBackend):
    """Waits, for most of the time, without releasing the GIL."""

    def synchronize(self, stream: Any) -> None:
        begin = time.perf_counter()
        super().synchronize(stream)
        ctypes.PyDLL(None).usleep(int(4e6 * (time.perf_counter() - begin)))


@caught_by("test_relaxed_contexts_end_as_they_began")
class RelaxedContextsSwallowExceptions(CpuBackend):
    def relaxed(self, stream: Any) -> Any:
        @contextmanager
        def relaxed() -> Iterator[None]:
            with suppress(Exception), inner:
                yield

        inner = super().relaxed(stream)
        return relaxed()
