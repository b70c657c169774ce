"""Captures that torch records: with its allocator, its random numbers and its pinned memory.

Two kinds of pools can't be used again by their ids, which are replaced. Up to torch 2.13, the allocator for
pinned memory never leaves a pool into which a capture failed, and refuses the next capture into it. The other
allocator refuses the id of a pool whose last graph is gone while an array still lives in the pool.
"""

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

if TYPE_CHECKING:
    from typing import Protocol

    from ...backends.base import AnyBackend
    from ..base import PoolContents

    class Torch(Protocol):
        """What the recorder needs of torch's interop module."""

        def current_stream(self, device: int | None = None) -> tuple[int, int]: ...
        def use_stream(self, handle: int, device: int) -> Undo: ...


_recording: dict[int, TorchRecorder] = {}
"""By device: what torch is recording. A second one would end the process."""
_asked_for_ever: list[Any] = []
"""Graphs whose capture failed. torch's allocator for pinned memory goes on asking them, gone or not."""
instead: dict[PoolId, PoolId | None] = {}
"""By the id of a pool that torch can't use again the one that replaces it, `NEW` until there is one; None if
none can replace it, since the pool is an object of torch's."""
NEW: PoolId = (0, 0)


class Executable:
    """A borrowed executable."""

    __slots__ = ("native", "needs_torch")

    def __init__(self, native: Any, needs_torch: bool | None) -> None:
        self.native: Any = native
        self.needs_torch: bool | None = needs_torch
        """True if torch must replay it because it draws random numbers; None if that is not known yet."""


class TorchRecorder(FrameworkRecorder):
    """Stands in for the backend of a graph that torch records. It is the capture, and then the graph, too.

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
        self.device = device
        self.thread: threading.Thread = process.thread.identity.thread
        self.stream: Any = None
        self.torch_graph: Any = None
        self.native: Any = None
        """The backend's graph."""
        self.generators: list[Any] = []
        """The generators that a replay may use, if torch must be told about them; otherwise empty."""
        self.executable: Executable | None = None
        """The latest one, unless it is destroyed."""
        self.graph_is_needed = True
        self.destroy_disturbs_captures: bool = backend.name == "hip" or hasattr(pool, "owner")
        """torch's graphs synchronise the device when they go, on ROCm; and wherever a `MemPool` goes with
        the last of them, it ends the process if anything is being captured."""
        self._registered = generators
        self._framework = framework
        self._given = pool
        self._routed = False
        """True once torch's allocator uses the pool."""
        self._over = False

    # ---- capture -------------------------------------------------------------------------------

    def capture_begin(self, stream: Any, mode: CaptureMode) -> TorchRecorder:
        """Let torch begin a capture of its current stream, which is this one."""
        torch, device = sys.modules["torch"], self.device
        self.stream = stream
        if self._given in instead:
            self.pool = usable(torch, self._given)
        try:
            first = _recording.setdefault(device, self)
            for each in list(_recording.values()):
                if each is not self and each.thread is self.thread:
                    first = each
            if first is not self:
                raise CaptureError(
                    f"torch is recording a capture on device {first.device} already, in thread "
                    f"{first.thread.name!r}, and would end the process at a second one on that device or "
                    "in that thread; end that capture first.",
                    reason="foreign_capture",
                )
            kind = torch.cuda.CUDAGraph
            # torch's own class, even while `accelerator_graph.compat` has replaced its name
            self.torch_graph = graph = (getattr(kind, "torchs_own", None) or kind)(keep_graph=True)
            if not decides_itself(graph.__class__):
                self.generators = [torch.cuda.default_generators[device], *self._registered]
                for generator in self._registered:
                    graph.register_generator_state(generator)
            try:
                graph.capture_begin(pool=self.pool, capture_error_mode=mode)
            except RuntimeError as error:
                raise _driver_error(error, self.backend, "capture_begin") from error
            self._routed = True
        except BaseException as error:
            # the driver is asked last: if it refuses, torch's allocator is in the pool already
            self._routed = self._routed or getattr(error, "code", None) is not None
            self.capture_abandon(self)
            raise
        return self

    def capture_end(self, capture: TorchRecorder) -> TorchRecorder:
        """Let torch end the capture; its graph is borrowed."""
        try:
            try:
                if self.counted:
                    self.torch_graph.capture_end()
                else:
                    _end_without_warning(self.torch_graph)
            except RuntimeError as error:
                raise _driver_error(error, self.backend, "capture_end") from error
            self.native = self.backend.borrow_graph(self.torch_graph.raw_cuda_graph(), self.stream)
        except BaseException:
            self.capture_abandon(self)
            raise
        _recording.pop(self.device, None)
        self._over = True
        return self

    def capture_abandon(self, capture: TorchRecorder) -> None:
        """End the capture in torch, throw its graph away, and put its random numbers right again."""
        if self._over:
            return
        graph = self.torch_graph
        if graph is not None:
            ended = False
            with contextlib.suppress(Exception), contextlib.ExitStack() as undo:
                # in another thread, the captured stream is no longer torch's current one
                handle = self.backend.handle_int(self.stream)
                undo.callback(self._framework.use_stream(handle, self.device))
                _end_without_warning(graph)
                ended = True
            with contextlib.suppress(Exception), self.backend.relaxed(self.stream):
                graph.reset()
            if self._routed and not ended:
                self._end_routing()
        try:
            with contextlib.suppress(Exception):
                self._reset_generators()
        finally:  # not before: torch records until here
            if _recording.get(self.device) is self:
                _recording.pop(self.device, None)
            self._over = True

    def _end_routing(self) -> None:
        """Have torch's allocator leave the pool. Up to 2.13 it stays there for ever if a capture fails."""
        native = sys.modules["torch"]._C
        with contextlib.suppress(Exception):
            native._cuda_endAllocateToPool(self.device, self.pool)  # raises if torch has done so
            _asked_for_ever.append(self.torch_graph)
            first, second = self._given  # without the tuple, which may keep the object alive
            instead[first, second] = None if hasattr(self._given, "owner") else NEW
            native._cuda_releasePool(self.device, self.pool)

    def _reset_generators(self) -> None:
        """Record nothing, once: generators whose capture failed stay in it until one has ended well."""
        torch, device = sys.modules["torch"], self.device
        if not self.generators or self.backend.capture_status(self.stream).value != "none":
            return
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
            empty = self.torch_graph.__class__(keep_graph=True)
            for generator in self.generators[1:]:
                empty.register_generator_state(generator)
            try:
                empty.capture_begin(capture_error_mode="relaxed")
            finally:
                _end_without_warning(empty)
            empty.reset()

    # ---- graph and executable ------------------------------------------------------------------

    def instantiate(self, graph: TorchRecorder) -> Executable:
        """Let torch instantiate; its executable is borrowed."""
        try:
            with self.backend.relaxed(self.native):
                self.torch_graph.instantiate()
            handle = self.torch_graph.raw_cuda_graph_exec()
        except RuntimeError as error:
            raise _driver_error(error, self.backend, "instantiate") from error
        native = self.backend.borrow_executable(handle, self.native)
        self.executable = executable = Executable(native, None if self.generators else True)
        return executable

    def destroy_executable(self, made: TorchRecorder | Executable) -> None:
        """Have torch give up graph, executable and memory, as soon as neither of the two is needed."""
        if made is self:
            self.graph_is_needed = False
        elif made is self.executable:
            self.executable = None
        if self.graph_is_needed or self.executable is not None:
            return
        try:
            with self.backend.relaxed(self.native):
                self.torch_graph.reset()
        except RuntimeError as error:
            raise _driver_error(error, self.backend, "reset") from error
        self.pool = self._given = NEW  # they may have kept a MemPool alive

    destroy_graph = destroy_executable  # type: ignore[assignment]

    def replay(self, executable: Executable, stream: Any) -> None:
        """Replay through torch, until it is known that no random number is drawn."""
        framework, handle = self._framework, self.backend.handle_int(stream)
        there = framework.current_stream(self.device)[0] == handle
        undo = None if there else framework.use_stream(handle, self.device)
        try:
            before = None if executable.needs_torch else offsets(self.generators)
            self.torch_graph.replay()
            after = None if before is None else offsets(self.generators)
            if after is not None:
                executable.needs_torch = after != before
        except RuntimeError as error:
            raise _driver_error(error, self.backend, "replay") from error
        finally:
            if undo is not None:
                undo()

    def lends(self, made: TorchRecorder | Executable) -> bool:
        """Return True if it is known that no random number is drawn."""
        executable = made if isinstance(made, Executable) else self.executable
        return executable is not None and executable.needs_torch is False


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


# ---- pools -----------------------------------------------------------------------------------------


def usable(torch: Any, pool: PoolId) -> PoolId:
    """Return the id that replaces one that torch can't use again.

    Raises CaptureError if the pool is an object of torch's: no id can replace it.
    """
    found: PoolId | None = pool
    while found in instead:
        if instead[found] == NEW:
            made = torch.cuda.graph_pool_handle()
            while made == found or made in instead:  # a program had made this id up
                made = torch.cuda.graph_pool_handle()
            instead[found] = made
        found = instead[found]
    if found is None:
        raise CaptureError(
            f"torch can't use pool {tuple(pool)} again, because a capture into it has failed; make another "
            "torch.cuda.MemPool.",
            reason="other",
        )
    return found


def contents(torch: Any, pool: PoolId, device: int) -> PoolContents:
    """Return the segments that torch's caching allocator has in a pool, and what arrays occupy of them."""
    from ..base import PoolContents, PoolSegment

    found = [
        segment
        for segment in _snapshot(torch.cuda.memory_snapshot)
        if segment["device"] == device and tuple(segment["segment_pool_id"]) == tuple(pool)
    ]
    segments = sorted(PoolSegment(segment["address"], segment["total_size"]) for segment in found)
    return PoolContents(tuple(segments), sum(segment["allocated_size"] for segment in found))


def _snapshot(ask: Any) -> list[dict[str, Any]]:
    """Return all segments, without the history of allocations if possible.

    torch 2.11 would select those of a pool, but gives up references to the numbers of the pool's id that are
    not its own: after some hundred calls the process ends with a segmentation fault.
    """
    try:
        found = ask(include_traces=False)
    except TypeError:  # an older torch
        found = ask()
    return found  # type: ignore[no-any-return]


process.after_fork(_recording.clear)
