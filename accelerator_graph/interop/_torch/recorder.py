"""Captures that torch records: with its allocator, its random numbers and its pinned memory."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from ..._interpreter.process import after_fork
from ...errors import CaptureError
from ..base import Recorder
from .errors import as_driver_error, translated
from .pools import spend, usable
from .recording import Executable, Recording, decides_itself, new_graph, offsets

if TYPE_CHECKING:
    from ...backends.base import Backend, LaunchFunction
    from ..torch import Torch

_recording: dict[int, Recording] = {}
"""By device: what torch is recording. A second one would end the process."""
_asked_for_ever: list[Any] = []
"""Graphs whose capture failed. torch's allocator for pinned memory goes on asking them, gone or not."""
_lock = threading.RLock()  # a signal handler may capture, too


class TorchRecorder(Recorder):
    """Stands in for the backend of a graph that torch records."""

    serialises_replays: ClassVar[bool] = False
    """``CUDAGraph.replay`` advances the generators before it launches, unguarded."""

    def __init__(self, backend: Backend, framework: Torch) -> None:
        super().__init__(backend)
        self._framework = framework
        self.destroy_disturbs_captures = backend.name == "hip"
        """torch's graphs synchronise the device when they go, on ROCm; and wherever a `MemPool` goes with
        the last of them, it ends the process if anything is being captured."""

    # ---- capture -------------------------------------------------------------------------------

    def capture_begin(self, stream: Any, mode: str) -> Recording:
        """Let torch begin a capture of its current stream, which is this one."""
        torch, device = self._framework.torch, self.device
        recording = Recording(stream, device)
        self._given, self.pool = self.pool, usable(self.pool) if self.pool else None
        if hasattr(self.pool, "owner"):
            self.destroy_disturbs_captures = True
        try:
            self._reserve(recording)
            recording.torch_graph = new_graph(torch)
            if not decides_itself(recording.torch_graph):
                recording.generators = [torch.cuda.default_generators[device], *self.generators]
                for generator in self.generators:
                    recording.torch_graph.register_generator_state(generator)
            with translated(self.base, "capture_begin"):
                recording.torch_graph.capture_begin(pool=self.pool, capture_error_mode=mode)
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
            with warnings.catch_warnings(), translated(self.base, "capture_end"):
                warnings.filterwarnings("ignore", r"The \w+ Graph is empty")
                recording.torch_graph.capture_end()
            handle = recording.torch_graph.raw_cuda_graph()
            recording.handle = self.base.borrow_graph(handle, recording.stream)
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
            with contextlib.suppress(Exception), self._current(recording):
                graph.capture_end()
                ended = True
            with contextlib.suppress(Exception), self.base.relaxed(recording.stream):
                graph.reset()
            if recording.routed and not ended:
                self._end_routing(graph, recording.device)
        try:
            with contextlib.suppress(Exception):
                self._reset_generators(recording)
        finally:
            self._over(recording)  # not before: torch records until here

    @contextlib.contextmanager
    def _current(self, recording: Recording) -> Iterator[None]:
        """Make the captured stream torch's current one, which it is no more in another thread."""
        undo = self._framework.use_stream(self.base.handle_int(recording.stream), recording.device)
        try:
            yield
        finally:
            undo()

    def _end_routing(self, graph: Any, device: int) -> None:
        """Have torch's allocator leave the pool. Up to 2.13 it stays there for ever if a capture fails."""
        native = self._framework.torch._C
        with contextlib.suppress(Exception):
            native._cuda_endAllocateToPool(device, self.pool)  # raises if torch has done so
            _asked_for_ever.append(graph)
            if self._given is not None:
                spend(self._framework.torch, self._given)
            native._cuda_releasePool(device, self.pool)

    def _over(self, recording: Recording) -> None:
        """Let others record. Again, after an interrupt: what is still left to do."""
        with _lock:
            if _recording.get(recording.device) is recording:
                del _recording[recording.device]
        recording.over = True

    def _reset_generators(self, recording: Recording) -> None:
        """Record nothing, once: generators whose capture failed stay in it until one has ended well."""
        torch = self._framework.torch
        device = recording.device
        if not recording.generators or self.base.capture_status(recording.stream).value != "none":
            return
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
            empty = new_graph(torch)
            for generator in recording.generators[1:]:
                empty.register_generator_state(generator)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    empty.capture_begin(capture_error_mode="relaxed")
                finally:
                    empty.capture_end()
            empty.reset()

    # ---- graph and executable ------------------------------------------------------------------

    def instantiate(self, recording: Recording) -> Executable:
        """Let torch instantiate; its executable is borrowed."""
        with self.base.relaxed(recording.stream), translated(self.base, "instantiate"):
            recording.torch_graph.instantiate()
            handle = recording.torch_graph.raw_cuda_graph_exec()
        executable = Executable(recording, self.base.borrow_executable(handle, recording.stream))
        if decides_itself(recording.torch_graph):
            executable.needs_torch = True
        return executable

    def single_executable(self, recording: Recording) -> bool:
        """Say yes: torch has one executable for a graph, and destroys it when it makes another."""
        return True

    def destroy_graph(self, recording: Recording) -> None:
        """Have torch give up graph, executable and memory."""
        with self.base.relaxed(recording.stream), translated(self.base, "reset"):
            recording.torch_graph.reset()
            self.pool = None

    def destroy_executable(self, executable: Executable) -> None:
        """Do nothing: it goes with the graph."""

    def replay(self, executable: Executable, stream: Any) -> None:
        """Replay through torch, or around it if that makes no difference."""
        self.bind(executable, stream)()

    def bind(self, executable: Executable, stream: Any) -> Callable[[], None]:
        """Return a replay that goes through torch until it is known to draw no random number."""
        if executable.needs_torch is False:
            return self.base.bind(executable.handle, stream)
        handle = self.base.handle_int(stream)
        launch = self.base.bind(executable.handle, stream)

        def replay() -> None:
            if executable.needs_torch is False:
                launch()
            else:
                self._through_torch(executable, handle)

        return replay

    def launch_function(self, executable: Executable, stream: Any) -> LaunchFunction | None:
        """Return the driver's own, once it is known that no random number is drawn."""
        if executable.needs_torch is not False:
            return None
        found: LaunchFunction | None = self.base.launch_function(executable.handle, stream)
        return found

    def _through_torch(self, executable: Executable, handle: int) -> None:
        recording, framework = executable.recording, self._framework
        there = framework.current_stream(recording.device)[0] == handle
        undo = None if there else framework.use_stream(handle, recording.device)
        try:
            before = None if executable.needs_torch else offsets(recording.generators)
            recording.torch_graph.replay()
            after = None if before is None else offsets(recording.generators)
            if after is not None:
                executable.needs_torch = after != before
        except RuntimeError as error:
            raise as_driver_error(error, self.base, "replay") from error
        finally:
            if undo is not None:
                undo()

    # ---- what knows the handles ----------------------------------------------------------------

    def upload(self, executable: Executable, stream: Any) -> None:
        """Move the executable to the device."""
        self.base.upload(executable.handle, stream)

    def is_empty(self, recording: Recording) -> bool:
        """Say whether nothing was recorded."""
        return self.base.is_empty(recording.handle)

    def node_count(self, recording: Recording) -> int | None:
        """Return the number of nodes."""
        return self.base.node_count(recording.handle)

    def nodes(self, recording: Recording) -> Any:
        """List the nodes and the dependencies."""
        return self.base.nodes(recording.handle)

    def dump(self, recording: Recording, path: str, verbose: bool) -> None:
        """Write the graph in the DOT language."""
        self.base.dump(recording.handle, path, verbose)

    def handle_int(self, obj: Any) -> int:
        """Return the driver's handle."""
        return self.base.handle_int(obj.handle if isinstance(obj, Recording | Executable) else obj)


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()
    _recording.clear()


after_fork(_after_fork)
