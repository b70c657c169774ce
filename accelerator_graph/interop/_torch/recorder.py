"""Captures that torch records: with its allocator, its random numbers and its pinned memory."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ..._interpreter import process
from ...backends.base import CaptureMode
from ...errors import CaptureError, DriverError
from ..base import FrameworkRecorder, PoolId, Undo
from .pools import instead, spend, usable

if TYPE_CHECKING:
    from typing import Protocol

    from ...backends.base import AnyBackend

    class Torch(Protocol):
        """What the recorder needs of torch's interop module."""

        def current_stream(self, device: int | None = None) -> tuple[int, int]: ...
        def use_stream(self, handle: int, device: int) -> Undo: ...


_recording: dict[int, Recording] = {}
"""By device: what torch is recording. A second one would end the process."""
_asked_for_ever: list[Any] = []
"""Graphs whose capture failed. torch's allocator for pinned memory goes on asking them, gone or not."""
_lock = threading.RLock()  # a signal handler may capture, too


class Recording:
    """A capture, and later the graph: torch's object and the handle borrowed from it."""

    def __init__(self, stream: Any, device: int) -> None:
        self.stream = stream
        self.device = device
        self.thread: threading.Thread = process.thread.identity.thread
        self.torch_graph: Any = None
        self.generators: list[Any] = []
        """The generators that a replay may use, if torch must be told about them; otherwise empty."""
        self.native: Any = None
        """The backend's graph."""
        self.routed = False
        """True once torch's allocator uses the pool."""
        self.over = False
        self.graph_is_needed = True
        self.executable: Executable | None = None


class Executable:
    """A borrowed executable."""

    __slots__ = ("native", "needs_torch", "recording")

    def __init__(self, recording: Recording, native: Any) -> None:
        self.recording: Recording = recording
        self.native: Any = native
        self.needs_torch: bool | None = None if recording.generators else True
        """True if torch must replay it because it draws random numbers; None if that is not known yet."""


class TorchRecorder(FrameworkRecorder):
    """Stands in for the backend of a graph that torch records.

    It does not serialise replays: ``CUDAGraph.replay`` advances the generators before it launches, unguarded.
    """

    backend: AnyBackend
    pool: PoolId

    def __init__(
        self, backend: AnyBackend, pool: PoolId, device: int, generators: Sequence[object], framework: Torch
    ) -> None:
        self.name: str = backend.name
        self.backend = backend
        self.pool = pool
        self._device = device
        self._generators = generators
        self._framework = framework
        self._torch = sys.modules["torch"]
        self._given = pool
        self.destroy_disturbs_captures: bool = backend.name == "hip" or hasattr(pool, "owner")
        """torch's graphs synchronise the device when they go, on ROCm; and wherever a `MemPool` goes with
        the last of them, it ends the process if anything is being captured."""

    # ---- capture -------------------------------------------------------------------------------

    def capture_begin(self, stream: Any, mode: CaptureMode) -> Recording:
        """Let torch begin a capture of its current stream, which is this one."""
        torch, device = self._torch, self._device
        recording = Recording(stream, device)
        self.pool = usable(self._given) if self._given in instead else self._given
        try:
            self._reserve(recording)
            recording.torch_graph = new_graph(torch)
            if not decides_itself(recording.torch_graph.__class__):
                recording.generators = [torch.cuda.default_generators[device], *self._generators]
                for generator in self._generators:
                    recording.torch_graph.register_generator_state(generator)
            try:
                recording.torch_graph.capture_begin(pool=self.pool, capture_error_mode=mode)
            except RuntimeError as error:
                raise _driver_error(error, self.backend, "capture_begin") from error
            recording.routed = True
        except BaseException as error:
            # the driver is asked last: if it refuses, torch's allocator is in the pool already
            recording.routed = recording.routed or getattr(error, "code", None) is not None
            self.capture_abandon(recording)
            raise
        return recording

    @staticmethod
    def _reserve(recording: Recording) -> None:
        with _lock:
            for first in _recording.values():
                if first.device == recording.device or first.thread is recording.thread:
                    raise CaptureError(
                        f"torch is recording a capture on device {first.device} already, in thread "
                        f"{first.thread.name!r}, and would end the process at a second one on that device or "
                        "in that thread; end that capture first.",
                        reason="foreign_capture",
                    )
            _recording[recording.device] = recording

    def capture_end(self, recording: Recording) -> Recording:
        """Let torch end the capture; its graph is borrowed."""
        try:
            try:
                if self.counted:
                    recording.torch_graph.capture_end()
                else:
                    _end_without_warning(recording.torch_graph)
            except RuntimeError as error:
                raise _driver_error(error, self.backend, "capture_end") from error
            handle = recording.torch_graph.raw_cuda_graph()
            recording.native = self.backend.borrow_graph(handle, recording.stream)
        except BaseException:
            self.capture_abandon(recording)
            raise
        self._over(recording)
        return recording

    def capture_abandon(self, recording: Recording) -> None:
        """End the capture in torch, throw its graph away, and put its random numbers right again."""
        if recording.over:
            return
        graph = recording.torch_graph
        if graph is not None:
            ended = False
            with contextlib.suppress(Exception), contextlib.ExitStack() as undo:
                # in another thread, the captured stream is no longer torch's current one
                handle = self.backend.handle_int(recording.stream)
                undo.callback(self._framework.use_stream(handle, recording.device))
                _end_without_warning(graph)
                ended = True
            with contextlib.suppress(Exception), self.backend.relaxed(recording.stream):
                graph.reset()
            if recording.routed and not ended:
                self._end_routing(graph, recording.device)
        try:
            with contextlib.suppress(Exception):
                self._reset_generators(recording)
        finally:
            self._over(recording)  # not before: torch records until here

    def _end_routing(self, graph: Any, device: int) -> None:
        """Have torch's allocator leave the pool. Up to 2.13 it stays there for ever if a capture fails."""
        native = self._torch._C
        with contextlib.suppress(Exception):
            native._cuda_endAllocateToPool(device, self.pool)  # raises if torch has done so
            _asked_for_ever.append(graph)
            spend(self._torch, self._given)
            native._cuda_releasePool(device, self.pool)

    def _over(self, recording: Recording) -> None:
        """Let others record. Called again after an interrupt, to do the rest."""
        with _lock:
            if _recording.get(recording.device) is recording:
                del _recording[recording.device]
        recording.over = True

    def _reset_generators(self, recording: Recording) -> None:
        """Record nothing, once: generators whose capture failed stay in it until one has ended well."""
        torch = self._torch
        device = recording.device
        if not recording.generators or self.backend.capture_status(recording.stream).value != "none":
            return
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
            empty = new_graph(torch)
            for generator in recording.generators[1:]:
                empty.register_generator_state(generator)
            try:
                empty.capture_begin(capture_error_mode="relaxed")
            finally:
                _end_without_warning(empty)
            empty.reset()

    # ---- graph and executable ------------------------------------------------------------------

    def instantiate(self, recording: Recording) -> Executable:
        """Let torch instantiate; its executable is borrowed."""
        graph = recording.torch_graph
        try:
            with self.backend.relaxed(recording.native):
                graph.instantiate()
            handle = graph.raw_cuda_graph_exec()
        except RuntimeError as error:
            raise _driver_error(error, self.backend, "instantiate") from error
        executable = Executable(recording, self.backend.borrow_executable(handle, recording.native))
        recording.executable = executable
        return executable

    def destroy_graph(self, recording: Recording) -> None:
        """Have torch give up graph, executable and memory, as soon as the executable is not needed either."""
        recording.graph_is_needed = False
        if recording.executable is None:
            self._destroy(recording)

    def destroy_executable(self, executable: Executable) -> None:
        """Have torch give up everything if the graph is not needed either."""
        recording = executable.recording
        if recording.executable is executable:
            recording.executable = None
        if recording.executable is None and not recording.graph_is_needed:
            self._destroy(recording)

    def _destroy(self, recording: Recording) -> None:
        try:
            with self.backend.relaxed(recording.native):
                recording.torch_graph.reset()
        except RuntimeError as error:
            raise _driver_error(error, self.backend, "reset") from error
        self.pool = self._given = (0, 0)  # they may have kept a MemPool alive

    def replay(self, executable: Executable, stream: Any) -> None:
        """Replay through torch, until it is known that no random number is drawn."""
        recording, framework = executable.recording, self._framework
        handle = self.backend.handle_int(stream)
        there = framework.current_stream(recording.device)[0] == handle
        undo = None if there else framework.use_stream(handle, recording.device)
        try:
            before = None if executable.needs_torch else offsets(recording.generators)
            recording.torch_graph.replay()
            after = None if before is None else offsets(recording.generators)
            if after is not None:
                executable.needs_torch = after != before
        except RuntimeError as error:
            raise _driver_error(error, self.backend, "replay") from error
        finally:
            if undo is not None:
                undo()

    def lends(self, made: Recording | Executable) -> bool:
        """Return True if it is known that no random number is drawn."""
        executable = made.executable if isinstance(made, Recording) else made
        return executable is not None and executable.needs_torch is False


def new_graph(torch: Any) -> Any:
    """Make a graph of torch's own class, even while `accelerator_graph.compat` has replaced its name."""
    named = torch.cuda.CUDAGraph
    for kind in named.__mro__:  # for a class of torch, `getattr` takes long to say that there is none
        if "torchs_own" in kind.__dict__:
            named = kind.__dict__["torchs_own"]
            break
    return named(keep_graph=True)


@cache
def decides_itself(kind: Any) -> bool:
    """Return True if generators join a capture automatically and replays run hooks, as since torch 2.14.

    torch does not tell which generators have joined, so every replay must go through torch.
    """
    return not hasattr(kind, "register_generator_state") or hasattr(kind, "register_replay_start_hook")


def offsets(generators: list[Any]) -> list[int] | None:
    """Return the offsets of generators; None if torch does not tell them now."""
    try:
        return [generator.get_offset() for generator in generators]
    except RuntimeError:  # not permitted during a capture
        return None


def _driver_error(error: RuntimeError, backend: AnyBackend, call: str) -> DriverError:
    from .errors import as_driver_error

    return as_driver_error(error, backend, call)


def _end_without_warning(graph: Any) -> None:
    """End a capture, and hide torch's warning of an empty graph: the library has one of its own."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"The \w+ Graph is empty")
        graph.capture_end()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()
    _recording.clear()


process.after_fork(_after_fork)
