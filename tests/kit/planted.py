"""Backends with a bug each, for the kit to find."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import accelerator_graph as ag
from accelerator_graph.backends._cpu.graph import Executable, Graph
from accelerator_graph.backends.base import Availability, Capability, CaptureInfo, CaptureStatus
from accelerator_graph.backends.cpu import CpuBackend
from kit.explicit_runtime import Latch


class Whole(CpuBackend):
    """No bug."""


class ReplaysTwice(CpuBackend):
    def replay(self, executable: Any, stream: Any) -> None:
        super().replay(executable, stream)
        super().replay(executable, stream)

    def bind(self, executable: Any, stream: Any) -> Callable[[], None]:
        return lambda: self.replay(executable, stream)


class ForgetsThatACaptureIsBroken(CpuBackend):
    def capture_end(self, token: Any) -> Any:
        token.status = CaptureStatus.ACTIVE
        return super().capture_end(token)


class RunsWhileCapturing(CpuBackend):
    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        if self.capture_status(stream) is CaptureStatus.ACTIVE:
            work(*args, **how)
        super().launch(stream, work, *args, **how)


class NeverAbandons(CpuBackend):
    def capture_abandon(self, token: Any) -> None:
        pass


class AbandonsTheNextCapture(CpuBackend):
    def capture_abandon(self, token: Any) -> None:
        super().capture_abandon(token)
        for capture in list(self._captures._open):
            super().capture_abandon(capture)


class BeginsBeforeItNotes(CpuBackend):
    def capture_begin(self, stream: Any, mode: str) -> Any:
        token = super().capture_begin(stream, mode)
        self.note(token)
        return token

    def note(self, token: Any) -> None:
        pass


class NotesTheEndBeforeItEnds(CpuBackend):
    def capture_end(self, token: Any) -> Any:
        self.ended = token
        return super().capture_end(token)

    def capture_abandon(self, token: Any) -> None:
        if token is not getattr(self, "ended", None):
            super().capture_abandon(token)


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


class SaysThatItSerialises(CpuBackend):
    """Two threads may read which run is the last one before either notes its own."""

    serialises_replays = True


class ForgetsRunsOfOtherThreads(CpuBackend):
    """Orders the runs of each thread."""

    serialises_replays = True

    def open(self) -> None:
        super().open()
        self.mine = threading.local()

    def replay(self, executable: Executable, stream: Any) -> None:
        last = self.mine.__dict__.setdefault(executable, None)
        if last is None:
            last = Latch()
            last.set()
        executable._last = last
        super().replay(executable, stream)
        self.mine.__dict__[executable] = executable._last

    def bind(self, executable: Any, stream: Any) -> Callable[[], None]:
        return lambda: self.replay(executable, stream)


class FillIgnoresCaptures(CpuBackend):
    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        view = memoryview(dst)
        view[: len(view) if nbytes is None else nbytes] = bytes([value]) * (
            len(view) if nbytes is None else nbytes
        )


class FillChecksTooLate(CpuBackend):
    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        fill = partial(super().fill, self.create_stream(0), dst, value, nbytes)

        def when_it_runs() -> None:
            with suppress(TypeError, ValueError):
                fill()

        self.launch(stream, when_it_runs)


class DoesNotWait(CpuBackend):
    def synchronize(self, stream: Any) -> None:
        self._captures.check_waiting(stream, "synchronize")


class Hangs(CpuBackend):
    def synchronize(self, stream: Any) -> None:
        threading.Event().wait()


class RunsOverlap(CpuBackend):
    def replay(self, executable: Executable, stream: Any) -> None:
        executable._last = None
        super().replay(executable, stream)

    def bind(self, executable: Any, stream: Any) -> Callable[[], None]:
        return lambda: self.replay(executable, stream)


class ReplaysOnAStreamOfItsOwn(CpuBackend):
    def replay(self, executable: Any, stream: Any) -> None:
        super().replay(executable, self.create_stream(0))


class BindsToAStreamOfItsOwn(CpuBackend):
    def bind(self, executable: Any, stream: Any) -> Callable[[], None]:
        return super().bind(executable, self.create_stream(0))


class DestroysRunsUnderWay(CpuBackend):
    def destroy_executable(self, executable: Any) -> None:
        executable._plan.calls.clear()
        super().destroy_executable(executable)


class DestroyRaises(CpuBackend):
    def destroy_graph(self, graph: Any) -> None:
        super().destroy_graph(graph)
        raise KeyError(graph)


class EventsEndTheirWaiting(CpuBackend):
    def destroy_event(self, event: Any) -> None:
        if event.latch is not None:
            event.latch.set()


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


class AcceptsUnjoinedWork(CpuBackend):
    def capture_end(self, token: Any) -> Any:
        nodes = token.nodes
        try:
            return super().capture_end(token)
        except ag.DriverError:
            return Graph(nodes)


class DoesNotLinkStreams(CpuBackend):
    def wait_event(self, stream: Any, event: Any) -> None:
        if event.capture is None:
            super().wait_event(stream, event)


class LinksAStreamOnce(CpuBackend):
    def wait_event(self, stream: Any, event: Any) -> None:
        if stream.capture is None or stream.capture is not event.capture or event.capture.origin is stream:
            super().wait_event(stream, event)


class ReplaysAtOnceInACapture(CpuBackend):
    def capabilities(self, device: int) -> frozenset[str]:
        return super().capabilities(device) - {Capability.CHILD_GRAPHS}

    def replay(self, executable: Any, stream: Any) -> None:
        aside = stream if stream.capture is None else self.create_stream(0)
        super().replay(executable, aside)
        if aside is not stream:
            self.synchronize(aside)

    def bind(self, executable: Any, stream: Any) -> Callable[[], None]:
        return lambda: self.replay(executable, stream)


class IgnoresEventsFromOutside(CpuBackend):
    def wait_event(self, stream: Any, event: Any) -> None:
        if stream.capture is None or event.capture is not None:
            super().wait_event(stream, event)


class WaitsForTheOutsideAtOnce(CpuBackend):
    """Waits while capturing, so that the replays wait for nothing."""

    def wait_event(self, stream: Any, event: Any) -> None:
        if stream.capture is None or event.capture is not None:
            super().wait_event(stream, event)
        else:
            event.latch.wait()


class AcceptsEventsOfEndedCaptures(CpuBackend):
    def wait_event(self, stream: Any, event: Any) -> None:
        if event.capture is None or event.capture.status is not CaptureStatus.NONE:
            super().wait_event(stream, event)


class IgnoresEventsOfOtherCaptures(CpuBackend):
    def wait_event(self, stream: Any, event: Any) -> None:
        if stream.capture in (None, event.capture) or event.capture is None:
            super().wait_event(stream, event)


class ForgetsWhatAWaitHasBroken(CpuBackend):
    """The call raises, the capture is invalidated, and it becomes a graph all the same."""

    def wait_event(self, stream: Any, event: Any) -> None:
        try:
            super().wait_event(stream, event)
        except ag.DriverError:
            self.broken_by_a_wait = stream.capture
            raise

    def capture_end(self, token: Any) -> Any:
        if token is getattr(self, "broken_by_a_wait", None):
            token.status = CaptureStatus.ACTIVE
        return super().capture_end(token)


class ErrorsHaveNoReason(CpuBackend):
    def synchronize(self, stream: Any) -> None:
        try:
            super().synchronize(stream)
        except ag.DriverError as error:
            raise ag.DriverError(str(error)) from None


class WaitDoesNothing(CpuBackend):
    def wait_event(self, stream: Any, event: Any) -> None:
        if event.capture is not None:
            super().wait_event(stream, event)


class RelaxesNothing(CpuBackend):
    def relaxed(self, stream: Any) -> Any:
        return nullcontext()


class CountsWrongly(CpuBackend):
    def node_count(self, graph: Any) -> int:
        return super().node_count(graph) + 1


class HasNoEdges(CpuBackend):
    def nodes(self, graph: Any) -> Any:
        return super().nodes(graph)[0], []


class SwapsNodes(CpuBackend):
    def instantiate(self, graph: Any) -> Any:
        executable = super().instantiate(graph)
        executable._plan.calls.reverse()
        return executable


class DestroyBreaksCaptures(CpuBackend):
    def destroy_executable(self, executable: Any) -> None:
        for capture in self._captures._open:
            capture.status = CaptureStatus.INVALIDATED
        super().destroy_executable(executable)


class DestroyBreaksCapturesAndSaysSo(DestroyBreaksCaptures):
    destroy_disturbs_captures = True


class InstantiateBreaksCaptures(CpuBackend):
    def instantiate(self, graph: Any) -> Any:
        for capture in self._captures._open:
            capture.status = CaptureStatus.INVALIDATED
        return super().instantiate(graph)


class NeverCapturing(CpuBackend):
    def capture_status(self, stream: Any) -> CaptureStatus:
        return CaptureStatus.NONE


class NeverBroken(CpuBackend):
    def capture_status(self, stream: Any) -> CaptureStatus:
        status = super().capture_status(stream)
        return CaptureStatus.ACTIVE if status is CaptureStatus.INVALIDATED else status


class DumpsNothing(CpuBackend):
    def dump(self, graph: Any, path: str, verbose: bool) -> None:
        pass


class OneExecutablePerGraph(CpuBackend):
    def open(self) -> None:
        super().open()
        self.made: dict[Any, Any] = {}

    def instantiate(self, graph: Any) -> Any:
        if graph not in self.made:
            self.made[graph] = super().instantiate(graph)
        return self.made[graph]


class PrioritiesOutOfRange(CpuBackend):
    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Any:
        if abs(priority) > 5:
            raise ag.DriverError("priority")
        return super().create_stream(device, like=like, priority=priority)


class ProbeRaises(CpuBackend):
    @classmethod
    def probe(cls) -> Availability:
        raise OSError("no library")


class ProbeInitialises(CpuBackend):
    """Its driver belongs to the process that has probed, as GPUs' drivers do."""

    initialised_by = 0

    @classmethod
    def probe(cls) -> Availability:
        cls.initialised_by = cls.initialised_by or os.getpid()
        return super().probe()

    def open(self) -> None:
        if self.initialised_by != os.getpid():
            raise ag.DriverError("the driver was initialised before this process was forked")
        super().open()


class ClaimsHandles(CpuBackend):
    def capabilities(self, device: int) -> Any:
        return {*super().capabilities(device), Capability.HANDLES}


class ClaimsNonsense(CpuBackend):
    def capabilities(self, device: int) -> Any:
        return {*super().capabilities(device), "event"}


class CapturesEveryStream(CpuBackend):
    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        for capture in self._captures._open:
            stream = next(iter(capture.ends))
        super().launch(stream, work, *args, **how)


class ChildGraphsRunAtOnce(CpuBackend):
    def replay(self, executable: Any, stream: Any) -> None:
        executable.enqueue(stream.worker)

    def bind(self, executable: Any, stream: Any) -> Callable[[], None]:
        return lambda: self.replay(executable, stream)


class ChildGraphsNeedTheirExecutable(CpuBackend):
    def destroy_executable(self, executable: Any) -> None:
        calls = executable._plan.calls
        if executable._last is not None:
            executable._last.wait()
        super().destroy_executable(executable)
        calls.clear()


class DropsStreamsWithWork(CpuBackend):
    def destroy_stream(self, stream: Any) -> None:
        stream.worker._pending.clear()
        super().destroy_stream(stream)


class IsNeverEmpty(CpuBackend):
    def is_empty(self, graph: Any) -> bool:
        return False


class IsAlwaysEmpty(CpuBackend):
    def is_empty(self, graph: Any) -> bool:
        return True


class TwoDevices(CpuBackend):
    """No bug. Work finds its device in `running_on.device`."""

    def open(self) -> None:
        super().open()
        self.devices: WeakKeyDictionary[Any, tuple[int, int]] = WeakKeyDictionary()

    @classmethod
    def probe(cls) -> Availability:
        return Availability(usable=True)

    def device_count(self) -> int:
        return 2

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Any:
        stream = super().create_stream(device, like=like, priority=priority)
        self.devices[stream] = self.made_on(device), device
        return stream

    def made_on(self, device: int) -> int:
        return device

    def device_of(self, stream: Any) -> int:
        return self.devices[stream][1]

    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        there = self.devices[stream][0]

        def on_the_device() -> None:
            running_on.device = there
            work(*args, **how)

        super().launch(stream, on_the_device if callable(work) else work)


class EveryStreamOnDeviceZero(TwoDevices):
    def made_on(self, device: int) -> int:
        return 0


running_on = threading.local()


class NothingButTheCore(CpuBackend):
    """No bug either: what is asked for by capability must be skipped."""

    def capabilities(self, device: int) -> Any:
        return set()


class OneCaptureInfoForAll(CpuBackend):
    def capture_info(self, stream: Any) -> Any:
        return None if stream.capture is None else CaptureInfo(1)


class ContextsChange(CpuBackend):
    def context_id(self, stream: Any) -> int:
        return next(_numbers)


class OneExecutableSecretly(CpuBackend):
    def instantiate(self, graph: Any) -> Any:
        executable = super().instantiate(graph)
        if getattr(self, "_newest", None) is not None:
            super().destroy_executable(self._newest)
        self._newest = executable
        return executable


class DestroyingAnEventBreaksCaptures(CpuBackend):
    def destroy_event(self, event: Any) -> None:
        for capture in self._captures._open:
            capture.status = CaptureStatus.INVALIDATED


class ReplaysBesideCaptures(CpuBackend):
    def capabilities(self, device: int) -> Any:
        return super().capabilities(device) - {Capability.CHILD_GRAPHS}

    def replay(self, executable: Any, stream: Any) -> None:
        executable.enqueue(stream.worker)


class OneThreadKnowsTheStatus(CpuBackend):
    def capture_status(self, stream: Any) -> Any:
        found = super().capture_status(stream)
        known = found is CaptureStatus.NONE or stream.capture.thread is threading.current_thread()
        return found if known else CaptureStatus.NONE


class UploadsInSilence(CpuBackend):
    def upload(self, executable: Any, stream: Any) -> None:
        pass


class NamesNoModules(CpuBackend):
    stream_modules = frozenset()


class RelaxedOnce(CpuBackend):
    @contextmanager
    def relaxed(self, stream: Any) -> Any:
        assert not getattr(self, "_inside", False)
        self._inside = True
        yield
        self._inside = False


class SaysItSurvivesAFork(CpuBackend):
    def open(self) -> None:
        if _opened_in and os.getpid() not in _opened_in:
            raise ag.errors.BackendUnavailableError("opened before the fork.", reasons={})
        _opened_in.append(os.getpid())
        super().open()


_numbers = itertools.count()
_opened_in: list[int] = []
