"""Bugs for the suite to find: each replaces functions of the library by name, before the suite runs."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from accelerator_graph._core import launching, ownership, pools, replay
from accelerator_graph.backends.driver import Capture, DriverBackend, Relaxed
from accelerator_graph.errors import BackendUnavailableError, DriverError

BACKEND = os.environ.get("FAULTS_BACKEND", "cuda")
ANOTHER_CODE = 999


@dataclass(frozen=True)
class Bug:
    """A bug; the module and its tests, as for ``pytest -k``, that find it; and what they say then."""

    plant: Callable[[], object]
    part: str
    tests: str
    says: str
    backend: str = ""
    """The backend that can have the bug, if not both."""


def backend() -> Any:
    return getattr(import_module(f"accelerator_graph.backends.{BACKEND}"), f"{BACKEND.capitalize()}Backend")


def room(name: str) -> Any:
    return import_module(f"accelerator_graph.backends._{BACKEND}.{name}")


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put what `make` makes of a function in its place. There has to be one of that name."""
    setattr(owner, name, make(inspect.getattr_static(owner, name)))


def do_nothing(original: Any) -> Any:
    return lambda *args: None


def swallow(answer: object) -> Callable[[Any], Any]:
    """Answer that instead of an error of the driver."""

    def make(original: Any) -> Any:
        def swallowing(*args: Any) -> Any:
            with suppress(DriverError):
                return original(*args)
            return answer

        return swallowing

    return make


class Entered:
    """Enters a block and does not leave it: never, or not after an error."""

    kept: list[Any] = []  # noqa: RUF012

    def __init__(self, block: Any, never: bool) -> None:
        self.block, self.never = block, never
        self.kept.append(block)

    def __enter__(self) -> Any:
        return self.block.__enter__()

    def __exit__(self, *error: Any) -> None:
        if not self.never and error == (None, None, None):
            self.block.__exit__(*error)

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        with self:
            return work(*args)


def never_leave(original: Any) -> Any:
    return lambda *args: Entered(original(*args), never=True)


def leave_without_an_error(original: Any) -> Any:
    return lambda *args: Entered(original(*args), never=False)


# ---- bugs that take more than that -----------------------------------------------------------------


def bind_without_errors() -> None:
    calls = getattr(import_module(f"accelerator_graph.backends.{BACKEND}"), f"_{BACKEND.capitalize()}Calls")
    replace(calls, "bind", lambda bind: lambda *where: swallow(None)(bind(*where)))


def stay_relaxed() -> None:
    replace(Relaxed, "end", lambda end: lambda self: (self._mode.clear(), end(self)))


def begin_without_abandoning() -> None:
    begin = DriverBackend.capture_begin.__code__

    def make(original: Any) -> Any:
        def abandon(self: Any, token: Any) -> None:
            if sys._getframe(1).f_code is not begin:
                original(self, token)

        return abandon

    replace(DriverBackend, "capture_abandon", make)


def error_of(change: Callable[..., Any]) -> Callable[[], None]:
    """Let errors be made from other facts."""
    return lambda: replace(
        import_module("accelerator_graph.backends._shared.driver"),
        "driver_error",
        lambda failed: lambda **facts: change(failed, **facts),
    )


def without_reason(failed: Any, **facts: Any) -> DriverError:
    error: DriverError = failed(**facts)
    error.reason = "other"
    return error


def open_raises_as_it_is() -> None:
    def make(original: Any) -> Any:
        def open(self: Any) -> None:
            try:
                original(self)
            except BackendUnavailableError as error:
                raise error.__cause__ or error from None

        return open

    replace(backend(), "open", make)


def destroy_again() -> None:
    def make(original: Any) -> Any:
        def destroy(self: Any, function: str, handle: Any, **how: Any) -> None:
            handle.destroyed = None
            original(self, function, handle, **how)

        return destroy

    replace(room("driver").Driver, "destroy", make)


def call_it_ready() -> None:
    def make(original: Any) -> Any:
        def instantiate(self: Any) -> None:
            try:
                original(self)
            except DriverError:
                if self.executable is None:  # else its callables go on launching that one
                    self.launching.owner = launching.Current(self.captured, None, [])
                raise

        return instantiate

    replace(replay.Runner, "instantiate", make)


def launch_what_nobody_holds() -> None:
    def launch(self: Any) -> None:
        executable = self._lock.owner.launchable()
        recorder, value, executable = executable.recorder, executable.value, None
        recorder.replay(value, self._stream.native)

    replace(launching.Binding, "launch", lambda original: launch)


def forget_the_last_run() -> None:
    def make(original: Any) -> Any:
        def wait(driver: Any, executable: Any, stream: int) -> None:
            try:
                original(driver, executable, stream)
            except DriverError:
                executable.move(stream)
                raise

        return wait

    replace(room("launch"), "_wait_for_the_last_run", make)


BUGS = {
    "an executable is never destroyed": Bug(
        lambda: replace(backend(), "destroy_executable", do_nothing),
        *("collection", "in_a_capture_of_ours and relaxed", r"leaked\n.*ecutables': \d"),
    ),
    "a stream is never destroyed": Bug(
        lambda: replace(backend(), "destroy_stream", do_nothing),
        *("every_call", "stream-query", r"leaked\n.*'streams': \d"),
    ),
    "an event is never destroyed": Bug(
        lambda: replace(backend(), "destroy_event", do_nothing),
        *("every_call", "stream-wait", r"leaked\n.*'events': \d"),
    ),
    "a launch that fails is taken for one that works": Bug(
        bind_without_errors,
        *("every_call", "replay and GraphLaunch and not another", "the code was swallowed"),
    ),
    "a query takes every error for work that is not done": Bug(
        lambda: replace(backend(), "query", swallow(False)),
        *("every_call", "stream-query and StreamQuery", "the code was swallowed"),
    ),
    "an error names another call": Bug(
        error_of(lambda failed, **facts: failed(**facts | {"call": "another"})),
        *("every_call", "stream-fill and Memset", "another call is named"),
    ),
    "an error names another code": Bug(
        error_of(lambda failed, **facts: failed(**facts | {"code": ANOTHER_CODE})),
        *("every_call", "stream-fill and Memset", "another code is named"),
    ),
    "the reason of an error is lost": Bug(
        error_of(without_reason), *("lost", "stream-fill", r"assert \('other', 719\) in")
    ),
    "a driver that can't be initialised is no reason": Bug(
        open_raises_as_it_is, *("opening", "can_not_be_initialised", "DriverError")
    ),
    "a capture that began late is left open": Bug(
        begin_without_abandoning,
        *("every_call", "capture-with and BeginCapture", r"7\d\d late: a capture was left open"),
    ),
    "a capture that an interrupt follows is left open": Bug(
        lambda: replace(DriverBackend, "capture_abandon", do_nothing),
        *("interrupts", "any_moment and capture-with-passes"),
        "at .*: a capture was left open",
    ),
    "the capture of a thread that died is left open": Bug(
        lambda: replace(backend(), "capture_abandon", do_nothing),
        *("threads", "died_is_abandoned and True", "a capture was left open"),
    ),
    "a capture that is over is ended once more": Bug(
        lambda: replace(Capture, "over", lambda slot: property(lambda _: False, lambda *_: None)),
        *("collection", "takes_no_later_one", "the later capture was ended"),
    ),
    "an object is destroyed again if an interrupt follows": Bug(
        destroy_again, *("interrupts", "any_moment_of_a_destruction", "at .*: a stale handle")
    ),
    "the context or device of the caller does not come back": Bug(
        lambda: replace(room("driver").Driver, "exchanged", never_leave),
        *("every_call", "stream-query", "the (contexts|current device)"),
    ),
    "the capture mode of the thread does not come back": Bug(
        stay_relaxed,
        *("every_call", "stream and StreamCreate", "the capture mode"),
    ),
    "a graph whose instantiation failed is called ready": Bug(
        call_it_ready, *("every_call", "instantiate and GraphInstantiate", "the graph's state")
    ),
    "a finalizer destroys directly": Bug(
        lambda: replace(ownership.Finalizer, "__del__", lambda queue: lambda self: self.act()),
        *("collection", "in_a_capture_of_ours and global", "the collection called the driver"),
    ),
    "a failed capture keeps its pool": Bug(
        lambda: replace(pools.Lease, "release", do_nothing),
        *("every_call", "capture-with-raises and IsCapturing", "a pool was not given back"),
    ),
    "a callable from before a reset still launches": Bug(
        lambda: replace(replay.Runner, "end", do_nothing),
        *("replays", "from_before_a_reset", "DID NOT RAISE .*GraphStateError"),
    ),
    "an executable is destroyed under its launch": Bug(
        launch_what_nobody_holds, *("replays", "reset_during_a_launch", "destroyed under the launch")
    ),
    "a stream is queried without its context": Bug(
        lambda: replace(room("driver").Driver, "exchanged", lambda original: lambda *_: nullcontext()),
        *("threads", "thread_without_a_context", "returned CUDA_ERROR_INVALID_CONTEXT", "cuda"),
    ),
    "the thread's last error stays": Bug(
        lambda: replace(room("driver").Driver, "clear", do_nothing),
        *("every_call", "stream-fill and Memset", "the thread's last error stays", "hip"),
    ),
    "a stream whose capture was invalidated stays so": Bug(
        lambda: replace(room("capture"), "_reset_stream", do_nothing),
        *("every_call", "capture-with-breaks and Mem", "a capture was left open", "hip"),
    ),
    "added nodes stay if the instantiation fails": Bug(
        lambda: replace(import_module("accelerator_graph.backends.hip"), "one_root", leave_without_an_error),
        *("every_call", "instantiate-branching and GraphInstantiate", "added nodes are left", "hip"),
    ),
    "a run on another stream is forgotten before it was waited for": Bug(
        forget_the_last_run,
        *("every_call", "replay-after-another-stream and StreamWaitEvent"),
        *("the run on the other stream was forgotten", "hip"),
    ),
}


def plant(name: str) -> None:
    """Plant the bug of that name."""
    bug = BUGS[name]
    assert bug.backend in ("", BACKEND)
    bug.plant()
