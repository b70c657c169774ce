"""Backends that say what is not true of them."""

from __future__ import annotations

import itertools
import os
from copy import copy
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends._cpu.graph import Stream as CpuStream
from accelerator_graph.backends.base import (
    Availability,
    CaptureInfo,
    CaptureStatus,
    HasHandles,
)
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.errors import DriverError, UnsupportedError
from kit.explicit_runtime import Explicit, Queue
from kit.planted.collection import caught_by, survives
from kit.planted.without_a_fault import EveryCapability


@caught_by("test_capturing_stream_can_not_be_closed", "test_capture_status_follows_the_capture")
class NeverCapturing(CpuBackend):
    def capture_status(self, stream: Any) -> CaptureStatus:
        return CaptureStatus.NONE


@caught_by("test_capture_is_a_graph_only_if_it_is_active")
class NeverBroken(CpuBackend):
    def capture_status(self, stream: Any) -> CaptureStatus:
        status = super().capture_status(stream)
        return CaptureStatus.ACTIVE if status is CaptureStatus.INVALIDATED else status


@caught_by("test_answers_have_the_types_of_the_contract")
class StatusIsAWord(CpuBackend):
    def capture_status(self, stream: Any) -> Any:
        return str(super().capture_status(stream))


@caught_by("test_methods_take_the_arguments_of_the_contract")
class StreamsLikeNoOther(CpuBackend):
    create_stream: Any = lambda self, device, priority=0: CpuBackend.create_stream(self, device)


@caught_by("test_answers_have_the_types_of_the_contract")
class CountIsAWord(CpuBackend):
    device_count: Any = "1"


@caught_by("test_probe_says_that_the_backend_is_usable")
class ProbeRaises(CpuBackend):
    @classmethod
    def probe(cls) -> Availability:
        raise OSError("no library")


@caught_by("test_child_of_a_process_that_has_probed_can_use_the_backend")
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


@caught_by("test_handle_stands_for_the_stream", "test_state_raw_graph_when_captured")
class HandlesStandForNothing(CpuBackend, HasHandles):
    def handle_int(self, obj: Any) -> int:
        if isinstance(obj, CpuStream):
            return id(obj)
        raise DriverError("it has no handle.")


@caught_by("test_handle_is_the_same_stream_each_time")
class HandlesMakeOtherStreams(EveryCapability):
    """Streams that do the same work, but have handles of their own and do not know of captures."""

    def as_stream(self, obj: object) -> Any:
        found = super().as_stream(obj)
        return copy(found) if isinstance(obj, int) else found


@caught_by("test_handle_is_the_same_stream_each_time")
class HandlesHideCaptures(EveryCapability):
    """A stream from a handle has that handle, but its captures are not found."""

    class Alias:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

    def handle_int(self, obj: Any) -> int:
        return super().handle_int(obj.stream if isinstance(obj, self.Alias) else obj)

    def as_stream(self, obj: object) -> Any:
        found = super().as_stream(obj)
        return self.Alias(found) if isinstance(obj, int) else found

    def capture_status(self, stream: Any) -> CaptureStatus:
        return CaptureStatus.NONE if isinstance(stream, self.Alias) else super().capture_status(stream)


@caught_by("test_handle_is_the_same_stream_each_time")
class HandlesAreOfAnotherDevice(EveryCapability):
    """A stream from a handle has that handle and its captures, but is of another device."""

    def as_stream(self, obj: object) -> Any:
        found = super().as_stream(obj)
        return Alias(found) if isinstance(obj, int) else found

    def handle_int(self, obj: Any) -> int:
        return super().handle_int(obj.stream if isinstance(obj, Alias) else obj)

    def device_of(self, stream: Any) -> int:
        return 1 if isinstance(stream, Alias) else super().device_of(stream)


@caught_by("test_work_on_a_handle_is_work_of_the_stream")
class HandlesHaveQueuesOfTheirOwn(EveryCapability):
    """A stream from a handle looks like the stream of that handle, but its work is on another one."""

    def as_stream(self, obj: object) -> Any:
        found = super().as_stream(obj)
        return Alias(found) if isinstance(obj, int) else found

    def handle_int(self, obj: Any) -> int:
        return super().handle_int(obj.stream if isinstance(obj, Alias) else obj)

    def replay(self, executable: Any, stream: Any) -> None:
        super().replay(executable, self.create_stream(0) if isinstance(stream, Alias) else stream)

    def native_calls(self, stream: Any) -> Any:
        return None


class Alias:
    """Stands for a stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@caught_by("test_capabilities_are_those_that_the_class_inherits")
class ClaimsMoreLater(CpuBackend):
    """It claims what it does not inherit, from the second question on."""

    asked = False

    def capabilities(self, device: int) -> Any:
        more, self.asked = {"handles"} if self.asked else set(), True
        return {*super().capabilities(device), *more}


@caught_by("test_capture_info_tells_captures_apart")
class OneCaptureInfoForAll(CpuBackend):
    def capture_info(self, stream: Any) -> Any:
        info = super().capture_info(stream)
        return info and CaptureInfo(1, info.nodes)


@caught_by("test_context_id_is_shared_by_streams_that_are_alike")
class ContextsChange(CpuBackend):
    def context_id(self, stream: Any) -> int:
        return next(_numbers)


@caught_by("test_methods_without_their_capability_are_unsupported")
class ProfilesInSilence(CpuBackend):
    def time_nodes(self, graph: Any, stream: Any, runs: int) -> Any:
        return [{}] * runs


@caught_by("test_stream_modules_have_the_runtimes_own_streams")
class NamesNoModules(CpuBackend):
    stream_modules = frozenset()


@caught_by("test_child_of_a_process_that_has_opened_the_backend_can_use_it_or_is_told")
class SaysItSurvivesAFork(CpuBackend):
    def open(self) -> None:
        if _opened_in and os.getpid() not in _opened_in:
            raise ag.errors.BackendUnavailableError("opened before the fork.", reasons={})
        _opened_in.append(os.getpid())
        super().open()


_numbers = itertools.count()
_opened_in: list[int] = []


@caught_by("test_probe_says_that_the_backend_is_usable")
class ProbeCountsOtherDevices(CpuBackend):
    @classmethod
    def probe(cls) -> Availability:
        return super().probe()._replace(devices=3)


@caught_by("test_every_class_says_what_it_is")
class ModesAreAList(CpuBackend):
    capture_modes = ["thread_local", "thread_local"]  # type: ignore[assignment]  # noqa: RUF012


@caught_by("test_default_mode_works")
class DeclaresAModeThatItLacks(CpuBackend):
    def capture_begin(self, stream: Any, mode: str) -> Any:
        if mode == "global":
            raise UnsupportedError("no global captures.")
        return super().capture_begin(stream, mode)


@caught_by("test_capture_info_tells_captures_apart")
class InfoOfEachStream(Explicit):
    """Streams that share a capture have numbers of their own."""

    def capture_info(self, stream: Queue) -> Any:
        return None if stream.recording is None else CaptureInfo(id(stream))


@caught_by("test_capture_info_tells_captures_apart")
class InfoOutlivesTheCapture(CpuBackend):
    def capture_info(self, stream: Any) -> Any:
        known = self.__dict__.setdefault("known", {})
        found = super().capture_info(stream)
        return found if found is None and stream not in known else known.setdefault(stream, found)


@caught_by("test_fork_and_join_keeps_the_order")
class ForksDoNotCapture(CpuBackend):
    """The status is that of the stream which began the capture."""

    def capture_status(self, stream: Any) -> CaptureStatus:
        capture = stream.capture
        return (
            CaptureStatus.NONE if capture and capture.origin is not stream else super().capture_status(stream)
        )


@caught_by("test_capture_status_follows_the_capture")
class AskingBreaksTheCapture(CpuBackend):
    """A capture can be asked for its status three times."""

    asked = 0

    def capture_begin(self, stream: Any, mode: str) -> Any:
        self.asked = 0
        return super().capture_begin(stream, mode)

    def capture_status(self, stream: Any) -> CaptureStatus:
        self.asked += stream.capture is not None
        if self.asked > 1 and stream.capture is not None:
            stream.capture.status = CaptureStatus.INVALIDATED
        return super().capture_status(stream)


@caught_by("test_handle_int_tells_objects_apart")
class OneHandleForAll(EveryCapability):
    def handle_int(self, obj: Any) -> int:
        super().handle_int(obj)
        return 4096


@caught_by("test_launch_function_does_what_replay_does")
class FailedLaunchesRaiseNothing(EveryCapability):
    def launch_failed(self, code: int) -> None:
        pass


@caught_by("test_status_function_says_what_capture_status_does")
class BrokenCapturesGoOnInC(EveryCapability):
    def number_of(self, status: CaptureStatus) -> int:
        return int(status is not CaptureStatus.NONE)


@caught_by("test_status_function_says_what_capture_status_does")
class IdleStreamsHaveAStatusInC(EveryCapability):
    def number_of(self, status: CaptureStatus) -> int:
        return 7 if status is CaptureStatus.NONE else super().number_of(status)


@caught_by("test_status_function_says_what_capture_status_does")
class CapturesWithoutAStatusInC(EveryCapability):
    def number_of(self, status: CaptureStatus) -> int:
        return 0


@caught_by("test_streams_are_distinct_and_know_their_device")
class OneStreamForAll(Explicit):
    """Streams are handed out from a pool of one."""

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Any:
        self.one = getattr(self, "one", None) or super().create_stream(device)
        return self.one

    def destroy_stream(self, stream: Any) -> None:
        pass


@caught_by("test_fork_and_join_keeps_the_order")
class OnlyTheFirstRecords(Explicit):
    def capture_status(self, stream: Queue) -> CaptureStatus:
        first = stream.recording is not None and stream.recording.first is stream
        return CaptureStatus.ACTIVE if first else CaptureStatus.NONE


@survives(
    "test_default_mode_works",
    because="what a mode forbids is the vendor's: no call is illegal beside a capture on every runtime",
)
class ModesMeanNothing(CpuBackend):
    """All captures are relaxed."""

    def capture_begin(self, stream: Any, mode: str) -> Any:
        return super().capture_begin(stream, "relaxed")


@caught_by("test_handle_int_tells_objects_apart")
class HandlesOfAMoment(EveryCapability):
    def handle_int(self, obj: Any) -> int:
        if not isinstance(obj, CpuStream):
            self.forget(obj)
        return super().handle_int(obj)


@caught_by("test_capture_info_tells_captures_apart")
class InfoIsAWord(CpuBackend):
    def capture_info(self, stream: Any) -> Any:
        info = super().capture_info(stream)
        return info and CaptureInfo(str(info.id), info.nodes)  # type: ignore[arg-type]


@caught_by("test_methods_without_their_capability_are_unsupported")
class RefusesWithoutACapability(CpuBackend):
    def time_nodes(self, graph: Any, stream: Any, runs: int) -> Any:
        raise UnsupportedError("there is no profiler.")
