"""Captures that torch records: with its allocator, its random numbers and its pinned memory."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import CaptureError, Reason, driver_error
from .base import Recorder

if TYPE_CHECKING:
    from ..backends.base import Backend
    from .torch import Torch

_REASONS: dict[int, Reason] = {
    2: "out_of_memory",
    900: "illegal_call",
    901: "invalidated",
    902: "foreign_capture",
    903: "foreign_capture",
    904: "unjoined",
    905: "foreign_capture",
    906: "default_stream",
    907: "illegal_call",
    908: "wrong_thread",
}

_recording: dict[int, str] = {}
"""By device: which capture torch is recording. A second one would end the process."""
_lock = threading.Lock()


class _Recording:
    """A capture, and later the graph: torch's object and what is borrowed from it."""

    def __init__(self, graph: Any, stream: Any, device: int, generators: list[Any]) -> None:
        self.torch_graph = graph
        self.stream = stream
        self.device = device
        self.generators = generators
        self.handle: Any = None
        """The backend's graph, or its executable."""
        self.over = False


class TorchRecorder(Recorder):
    """Stands in for the backend of a graph that torch records."""

    serialises_replays: ClassVar[bool] = False
    """``CUDAGraph.replay`` advances the generators before it launches, unguarded."""

    def __init__(self, backend: Backend, framework: Torch) -> None:
        super().__init__(backend)
        self._framework = framework

    # ---- capture -------------------------------------------------------------------------------

    def capture_begin(self, stream: Any, mode: str) -> _Recording:
        """Let torch begin a capture of its current stream, which is this one."""
        torch, device = self._framework.torch, self.base.device_of(stream)
        generators = [torch.cuda.default_generators[device], *self.generators]
        with _lock:
            first = _recording.get(device)
            if first is not None:
                raise CaptureError(
                    f"torch is recording a capture on device {device} already, in {first}, and would end the "
                    "process at a second one; end that capture first.",
                    reason="foreign_capture",
                )
            _recording[device] = f"thread {threading.current_thread().name!r}"
        recording = _Recording(torch.cuda.CUDAGraph(keep_graph=True), stream, device, generators)
        try:
            for generator in self.generators:
                recording.torch_graph.register_generator_state(generator)
            with self._translated("capture_begin"):
                recording.torch_graph.capture_begin(pool=self.pool, capture_error_mode=mode)
        except BaseException:
            self.capture_abandon(recording)
            raise
        return recording

    def capture_end(self, recording: _Recording) -> _Recording:
        """Let torch end the capture; its graph is borrowed."""
        try:
            with warnings.catch_warnings(), self._translated("capture_end"):
                warnings.filterwarnings("ignore", "The CUDA Graph is empty")
                recording.torch_graph.capture_end()
            handle = recording.torch_graph.raw_cuda_graph()
            recording.handle = self.base.borrow_graph(handle, recording.stream)
        except BaseException:
            self.capture_abandon(recording)
            raise
        self._over(recording)
        return recording

    def capture_abandon(self, recording: _Recording) -> None:
        """End the capture in torch, throw its graph away, and put its random numbers right again."""
        if recording.over:
            return
        graph = recording.torch_graph
        with contextlib.suppress(Exception):
            graph.capture_end()
        with contextlib.suppress(Exception), self.base.relaxed(recording.stream):
            graph.reset()
        self._over(recording)
        with contextlib.suppress(Exception):
            self._reset_generators(recording)

    def _over(self, recording: _Recording) -> None:
        recording.over = True
        with _lock:
            _recording.pop(recording.device, None)

    def _reset_generators(self, recording: _Recording) -> None:
        """Record nothing, once: generators whose capture failed stay in it until one has ended well."""
        torch = self._framework.torch
        device = recording.device
        if self.base.capture_status(recording.stream).value != "none":
            return
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
            empty = torch.cuda.CUDAGraph(keep_graph=True)
            for generator in recording.generators[1:]:
                empty.register_generator_state(generator)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                empty.capture_begin(capture_error_mode="relaxed")
                empty.capture_end()
            empty.reset()

    # ---- graph and executable ------------------------------------------------------------------

    def instantiate(self, recording: _Recording) -> _Executable:
        """Let torch instantiate; its executable is borrowed."""
        with self.base.relaxed(recording.stream), self._translated("instantiate"):
            recording.torch_graph.instantiate()
            handle = recording.torch_graph.raw_cuda_graph_exec()
        return _Executable(recording, self.base.borrow_executable(handle, recording.stream))

    def single_executable(self, recording: _Recording) -> bool:
        """Say yes: torch has one executable for a graph, and destroys it when it makes another."""
        return True

    def destroy_graph(self, recording: _Recording) -> None:
        """Have torch give up graph, executable and memory."""
        with self.base.relaxed(recording.stream), self._translated("reset"):
            recording.torch_graph.reset()

    def destroy_executable(self, executable: _Executable) -> None:
        """Do nothing: it goes with the graph."""

    def replay(self, executable: _Executable, stream: Any) -> None:
        """Replay through torch, or around it if no random numbers are drawn."""
        self.bind(executable, stream)()

    def bind(self, executable: _Executable, stream: Any) -> Callable[[], None]:
        """Return a replay that goes through torch until it is known to draw no random number."""
        if executable.draws is False:
            return self.base.bind(executable.handle, stream)
        handle = self.base.handle_int(stream)
        launch = self.base.bind(executable.handle, stream)

        def replay() -> None:
            if executable.draws is False:
                launch()
            else:
                self._through_torch(executable, handle)

        return replay

    def _through_torch(self, executable: _Executable, handle: int) -> None:
        recording = executable.recording
        before = None if executable.draws else _offsets(recording.generators)
        there = self._framework.current_stream(recording.device)[0] == handle
        undo = None if there else self._framework.use_stream(handle, recording.device)
        try:
            with self._translated("replay"):
                recording.torch_graph.replay()
        finally:
            if undo is not None:
                undo()
        if before is not None:
            executable.draws = _offsets(recording.generators) != before

    # ---- what knows the handles ----------------------------------------------------------------

    def upload(self, executable: _Executable, stream: Any) -> None:
        """Move the executable to the device."""
        self.base.upload(executable.handle, stream)

    def is_empty(self, recording: _Recording) -> bool:
        """Say whether nothing was recorded."""
        return self.base.is_empty(recording.handle)

    def node_count(self, recording: _Recording) -> int | None:
        """Return the number of nodes."""
        return self.base.node_count(recording.handle)

    def nodes(self, recording: _Recording) -> Any:
        """List the nodes and the dependencies."""
        return self.base.nodes(recording.handle)

    def dump(self, recording: _Recording, path: str, verbose: bool) -> None:
        """Write the graph in the DOT language."""
        self.base.dump(recording.handle, path, verbose)

    def handle_int(self, obj: Any) -> int:
        """Return the driver's handle."""
        return self.base.handle_int(obj.handle if isinstance(obj, _Recording | _Executable) else obj)

    @contextlib.contextmanager
    def _translated(self, call: str) -> Iterator[None]:
        """Raise torch's errors as the library's."""
        try:
            yield
        except RuntimeError as error:
            self._framework.clear_error()
            code = getattr(error, "error_code", None)
            first = str(error).partition("\n")[0].rstrip(".")
            raise driver_error(
                backend=self.base.name,
                call=f"torch.cuda.CUDAGraph.{call}",
                code=code,
                code_name=type(error).__name__,
                reason=_REASONS.get(code or 0) or _reason(first),
                detail=first,
            ) from error


class _Executable:
    """A borrowed executable, and whether its runs draw random numbers; None as long as it is not known."""

    __slots__ = ("draws", "handle", "recording")

    def __init__(self, recording: _Recording, handle: Any) -> None:
        self.recording = recording
        self.handle = handle
        self.draws: bool | None = None


def _offsets(generators: list[Any]) -> list[int]:
    return [generator.get_offset() for generator in generators]


def _reason(message: str) -> Reason:
    """Find the reason in torch's words, where it gives no code."""
    for words, reason in (
        ("unjoined", "unjoined"),
        ("previous error during capture", "invalidated"),
        ("not permitted when stream is capturing", "illegal_call"),
        ("out of memory", "out_of_memory"),
        ("non-default stream", "default_stream"),
    ):
        if words in message:
            return reason  # type: ignore[return-value]
    return "other"
