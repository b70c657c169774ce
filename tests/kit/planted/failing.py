"""Backends that hide failures, or break more than what has failed."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakSet

from accelerator_graph.backends._cpu.work import Failure
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.errors import DriverError
from kit.explicit_runtime import Entry, Latch, Queue
from kit.planted.collection import caught_by
from kit.planted.without_a_fault import NothingNative, ReportsFailures
from kit.planted.works import FailingWork, FullWork


@caught_by("test_error_of_work_is_raised_where_the_stream_is_waited_for")
class SwallowsErrorsOfWork(CpuBackend):
    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        super().launch(stream, work, *args, **how)
        if stream.capture is None:
            stream.worker.submit(stream.worker._take_failure)


@caught_by("test_error_of_work_is_raised_where_the_stream_is_waited_for")
class StreamsDieOfAnError(CpuBackend):
    def open(self) -> None:
        super().open()
        self.dead: WeakSet[Any] = WeakSet()

    def synchronize(self, stream: Any) -> None:
        try:
            super().synchronize(stream)
        except DriverError as error:
            if error.code_name == "WORK_FAILED":
                self.dead.add(stream)
            raise

    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        if stream in self.dead:
            raise DriverError("the stream is dead.")
        super().launch(stream, work, *args, **how)


@caught_by("test_error_that_was_raised_is_not_raised_again")
class StreamsPassAnErrorOnForEver(CpuBackend):
    def synchronize(self, stream: Any) -> None:
        try:
            super().synchronize(stream)
        except DriverError as error:
            stream.worker.submit(partial(setattr, stream.worker, "_failure", Failure(error)))
            raise


@caught_by("test_error_of_a_replay_is_raised_where_the_stream_is_waited_for")
class SwallowsErrorsOfReplays(NothingNative):
    def replay(self, executable: Any, stream: Any) -> None:
        super().replay(executable, stream)
        if stream.capture is None:
            stream.worker.submit(stream.worker._take_failure)


@caught_by("test_error_of_a_replay_is_raised_where_the_stream_is_waited_for")
class GraphsDieOfAnError(NothingNative):
    """After an error, runs of the executables that ran before do nothing."""

    def open(self) -> None:
        super().open()
        self.ran: set[Any] = set()

    def replay(self, executable: Any, stream: Any) -> None:
        super().replay(executable, stream)
        self.ran.add(executable)

    def synchronize(self, stream: Any) -> None:
        try:
            super().synchronize(stream)
        except DriverError:
            for executable in self.ran:
                executable.destroy()
            raise


@caught_by("test_calls_that_the_runtime_refuses_have_no_effect")
class RefusedWorkRunsLater(CpuBackend):
    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        try:
            super().launch(stream, work, *args, **how)
        except DriverError:
            stream.worker._pending.append(partial(work, *args, **how))
            raise


@caught_by("test_calls_that_the_runtime_refuses_have_no_effect")
class ARefusedReplayIsTheLast(NothingNative):
    def replay(self, executable: Any, stream: Any) -> None:
        try:
            super().replay(executable, stream)
        except DriverError:
            executable.destroy()
            raise


@caught_by("test_calls_that_the_runtime_refuses_have_no_effect")
class RefusesWorkWithTheVendorsError(CpuBackend):
    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        try:
            super().launch(stream, work, *args, **how)
        except DriverError as error:
            raise OSError("RT_ERROR_NO_THREAD") from error


@caught_by("test_calls_that_the_runtime_refuses_have_no_effect", work=FullWork)
class RecordsNoWorkWhenFull(CpuBackend):
    """Refuses to run work, but records it without an error, and loses it."""

    full = False

    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        if not self.full:
            super().launch(stream, work, *args, **how)
        elif stream.capture is None:
            raise DriverError("the runtime has nothing left.")
        else:
            super().launch(stream, int)


@caught_by("test_error_of_work_is_raised_where_the_stream_is_waited_for", work=FailingWork)
class RaisesWhatTheWorkRaised(ReportsFailures):
    def report(self, stream: Queue) -> None:
        try:
            super().report(stream)
        except DriverError as error:
            raise error.__cause__ or error from None


@caught_by("test_error_of_work_is_raised_where_the_stream_is_waited_for", work=FailingWork)
class QueriesHideFailures(ReportsFailures):
    def query(self, stream: Queue) -> bool:
        with suppress(DriverError):
            return super().query(stream)
        return True


@caught_by("test_error_of_a_replay_is_raised_where_the_stream_is_waited_for", work=FailingWork)
class ReplaysHideFailures(ReportsFailures):
    def run(self, entries: list[Entry], before: Latch | None, done: Latch) -> None:
        with suppress(Exception):
            super().run(entries, before, done)


@caught_by("test_error_of_a_replay_is_raised_where_the_stream_is_waited_for", work=FailingWork)
class RunsWaitForAFailedOne(ReportsFailures):
    """A run that has failed is never done."""

    def run(self, entries: list[Entry], before: Latch | None, done: Latch) -> None:
        super().run(entries, before, Latch())
        done.set()
