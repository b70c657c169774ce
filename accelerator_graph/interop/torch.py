"""torch: its current stream, and captures that torch records itself.

Only torch's own graph class can register random generators, pinned memory and the state of the caching
allocator with a capture. So torch records the capture, and the library borrows torch's handles.

Two kinds of pools can't be used again by their ids, which are replaced. Up to torch 2.13, the allocator for
pinned memory never leaves a pool into which a capture failed, and refuses the next capture into it. The other
allocator refuses the id of a pool whose last graph is gone, while an array still lives in the pool.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any, ClassVar

from .._interpreter import interruptions
from ..backends.base import AnyBackend, Backend, CaptureMode, Lends
from ..errors import CaptureError, DriverError
from . import base
from .base import FrameworkRecorder, Inspectable, PoolId, Undo

_DLPACK_CUDA = 2

_recording: dict[int, TorchRecorder] = {}
"""By device: what torch is recording. A second one would end the process."""
_asked_for_ever: list[Any] = []
"""Graphs whose capture failed. torch's allocator for pinned memory goes on asking them, gone or not."""
instead: dict[PoolId, PoolId | None] = {}
"""By the id of a pool that torch can't use again the one that replaces it, `NEW` until there is one; None if
none can replace it, since the pool is an object of torch's."""
NEW: PoolId = (0, 0)
_graphs: dict[PoolId, set[int]] = {}
"""The recorders whose graphs torch has in a pool."""


class Torch(Inspectable):
    """torch on CUDA and on ROCm. The ROCm build has HIP behind the same names."""

    api_version: ClassVar[int] = 1

    _last: tuple[Any, tuple[int, int] | None] = None, None
    """The object of torch for the stream that was used last, and the handle and the device of that. Making
    one takes longer than using it."""

    def __init__(self) -> None:
        self._kept: set[tuple[int, int]] = set()
        self._own: dict[tuple[int, int], Any] = {}
        """By handle and device: objects for streams that torch has made, which it never destroys. Made
        current, such an object equals the caller's."""

    @property
    def torch(self) -> Any:
        """The module, which the program has imported."""
        return sys.modules["torch"]

    def backend(self) -> str | None:
        """Return ``"cuda"`` or ``"hip"`` once torch has initialised the device."""
        torch = sys.modules["torch"]
        initialised = getattr(getattr(torch, "cuda", None), "is_initialized", None)
        if initialised is None or not initialised():  # torch may be half imported
            return None
        self.current_handle: Callable[[int], int] | None = getattr(
            torch._C, "_cuda_getCurrentRawStream", None
        )
        if torch.version.hip:
            return "hip"
        if self.current_handle is not None:
            self.exchange: tuple[type, int] | None = (
                torch.Tensor,
                _DLPACK_CUDA,
            )  # on ROCm, nobody has seen it right
        return "cuda"

    def as_stream(self, obj: object) -> int | None:
        """Return the handle of a ``torch.cuda.Stream`` or a ``torch.Stream`` of such a device."""
        torch = sys.modules["torch"]
        cuda = torch.cuda
        if isinstance(obj, torch.Stream) and not isinstance(obj, cuda.Stream):
            if obj.device.type != "cuda":
                return None
            generic = {"stream_id": obj.stream_id, "device_index": obj.device_index}
            obj = cuda.Stream(**generic, device_type=obj.device_type)
        if not isinstance(obj, cuda.Stream):
            return None
        handle = int(obj.cuda_stream)
        if obj.stream_id != handle:  # the number of any other stream is its handle (c10/cuda/CUDAStream.cpp)
            self._own[handle, obj.device_index] = obj
        else:
            self._last = obj, (handle, obj.device_index)
        return handle

    def current_stream(self, device: int | None = None) -> tuple[int, int]:
        """Return torch's current stream."""
        torch = sys.modules["torch"]
        native = torch._C.__dict__
        where, which = native.get("_cuda_getDevice"), native.get("_cuda_getCurrentRawStream")
        if where is None or which is None:
            return _current(torch, device)
        device = where() if device is None else device
        return which(device), device

    def keeps_stream(self, handle: int, device: int) -> bool:
        """Return True for the streams that torch makes, which it never destroys.

        Once such a stream has been current, it is known by its handle, whatever object stands for it then.
        """
        stream = handle, device
        if stream not in self._kept and _is_torchs_own(sys.modules["torch"], handle, device):
            self._kept.add(stream)
        return stream in self._kept

    def use_stream(self, handle: int, device: int) -> Undo:
        """Make a stream torch's current one on its device, and that device the current one."""
        torch, stream = sys.modules["torch"], self._own.get((handle, device))
        if stream is None:
            stream, known = self._last
            if known != (handle, device):
                # ExternalStream(0) is a new stream (torch/csrc/cuda/Stream.cpp), not the default one
                cuda = torch.cuda
                stream = cuda.ExternalStream(handle, device=device) if handle else cuda.default_stream(device)
                self._last = stream, (handle, device)
        native = torch._C
        put = getattr(native, "_cuda_setStream", None)
        if put is None:
            put, where = torch.cuda.set_stream, {"stream": stream}
            before = partial(put, stream=torch.cuda.current_stream(device))
        else:
            number, index, kind = native._cuda_getCurrentStream(device)
            before = partial(put, stream_id=number, device_index=index, device_type=kind)
            index, kind = stream.device_index, stream.device_type
            where = {"stream_id": stream.stream_id, "device_index": index, "device_type": kind}
        ask = getattr(native, "_cuda_getDevice", None)
        device_before = int(torch.cuda.current_device() if ask is None else ask())

        def undo() -> None:
            before()  # sets its device as well
            torch.cuda.set_device(device_before)

        try:
            put(**where)
            return before if device_before == device else undo
        except BaseException:
            undo()
            raise

    def modes(self) -> base.ModeState:
        """Return the modes of gradients, inference and autocast."""
        from ._torch.modes import Modes

        return Modes(sys.modules["torch"], ("cuda", "cpu"))

    def prepare(self, device: int) -> None:
        """Empty the caching allocators, as ``torch.cuda.graph`` does."""
        torch = sys.modules["torch"]
        getattr(torch._C, "_cuda_emptyCache", torch.cuda.empty_cache)()
        empty_pinned = getattr(torch._C, "_host_emptyCache", None)
        if empty_pinned is not None:
            empty_pinned()

    def clear_results(self) -> None:
        """Drop what torch keeps under ``autocast`` and under ``parametrize.cached``."""
        modules = sys.modules
        modules["torch"].clear_autocast_cache()
        getattr(modules.get("torch.nn.utils.parametrize"), "_cache", {}).clear()

    def release(self, pool: PoolId) -> None:
        """Forget what replaced the id of a pool, if nobody can use that id again; give up a body's memory."""
        while pool[0] and pool in instead:
            pool = instead.pop(pool) or NEW
        device, uses = TorchRecorder.of_bodies.pop(pool, (0, ()))
        for _ in uses:
            sys.modules["torch"]._C._cuda_releasePool(device, pool)

    def pool_contents(self, pool: PoolId, device: int) -> base.PoolContents:
        """Return the segments of the pool that the caching allocator has."""
        return contents(self.torch, pool, device)

    def blocks(self) -> list[base.MemoryBlock]:
        """Return the blocks of the caching allocator; none if torch allocates in another way."""
        if self.torch.cuda.get_allocator_backend() != "native":
            return []  # these raise
        return blocks(_snapshot(self.torch.cuda.memory_snapshot))

    def history(self, address: int) -> base.BlockHistory | None:
        """Return where memory was allocated and freed, if torch records that (`_record_memory_history`)."""
        from ._torch.history import history

        return history(self.torch, address)

    def recorder(
        self, backend: Backend, pool: PoolId, device: int, generators: Sequence[object]
    ) -> TorchRecorder | None:
        """Return a recorder: torch's own graph class."""
        if Lends not in type(backend).__mro__:  # `isinstance` is slow for classes of `abc`
            return None
        return TorchRecorder(backend, pool, device, generators, self)  # type: ignore[arg-type]

    def takes_generator(self, obj: object) -> bool:
        """Return True if `obj` is a ``torch.Generator`` of a device."""
        return isinstance(obj, self.torch.Generator) and obj.device.type == "cuda"

    def random_state(self, device: int, generators: Sequence[object]) -> Undo:
        """Return what sets torch's generators of the host and of a device, and the given ones, back."""
        from ._torch.verifying import random_state

        return random_state(self.torch, device, generators)

    def fill_new(self, which: int, settle: Callable[[], object]) -> Undo:
        """Fill tensors that operators make without contents."""
        from ._torch.verifying import fill_new

        return fill_new(self.torch, which, settle)

    def clear_free(self, device: int) -> None:
        """Set the caching allocator's free memory on a device to zero."""
        from ._torch.verifying import clear_free

        clear_free(self.torch, device)

    def observe(self, pool: PoolId, used: Callable[[object], Undo]) -> Undo:
        """Call `used` for each tensor from before the capture that torch's operators use."""
        from ._torch.observing import observe

        return observe(self.torch, pool, used)

    def operations(self, seen: Callable[[str, int, int], bool]) -> Undo:
        """Call `seen` after each operator of torch that enqueues work."""
        from ._torch.observing import operations

        return operations(self.torch, seen)

    def refuses(self, error: Exception) -> bool:
        """Return True for torch's own refusals and for the runtime's that torch passes on."""
        from ._torch.errors import is_refusal

        return is_refusal(error, self.torch)

    def replace(self, operators: Sequence[str], call: base.InPlaceOf) -> tuple[Undo, Undo]:
        """Have `call` made in the place of operators, by names such as ``aten::nonzero``."""
        from ._torch.replacing import Replaced

        replaced = Replaced(self.torch, operators, call)
        return replaced.begin, replaced.end

    def waiting(self, beside: Callable[[str], AbstractContextManager[None]]) -> Undo:
        """Run torch's operators that wait for the device in the contexts that `beside` returns."""
        from ._torch.observing import waiting

        return waiting(self.torch, beside)

    def observe_collectives(self, note: Callable[[base.Collective], object]) -> Undo | None:
        """Call `note` for each collective that torch.distributed is asked for on a capturing stream."""
        distributed = sys.modules["torch"].__dict__.get("distributed")
        world = getattr(getattr(distributed, "distributed_c10d", None), "_world", None)
        if getattr(world, "_default_pg", self) is None:  # as `is_initialized` says, in three functions
            return None
        initialised = getattr(distributed, "is_initialized", None)  # torch may be built without
        if initialised is None or not initialised():
            return None
        from ._torch.collectives import observe_collectives

        capturing = self.torch.cuda.is_current_stream_capturing
        return observe_collectives(
            self.torch, note, lambda tensor: tensor.device.type != "cpu" and capturing()
        )


# ---- by torch's functions in C where it has them: those make no objects ------------------------


def _current(torch: Any, device: int | None) -> tuple[int, int]:
    """Return handle and device of the current stream, on the given or the current device."""
    native = torch._C
    if device is None:
        ask = getattr(native, "_cuda_getDevice", None)
        device = int(torch.cuda.current_device() if ask is None else ask())
    ask = getattr(native, "_cuda_getCurrentRawStream", None)
    return int(torch.cuda.current_stream(device).cuda_stream if ask is None else ask(device)), device


def _is_torchs_own(torch: Any, handle: int, device: int) -> bool:
    """Return True if a handle is that of the current stream of a device, and torch has made that stream.

    The number of any other stream is its handle (c10/cuda/CUDAStream.cpp).
    """
    ask = getattr(torch._C, "_cuda_getCurrentStream", None)
    if ask is None or handle != _current(torch, device)[0]:
        return False
    return bool(ask(device)[0] != handle)


# ---- captures ---------------------------------------------------------------------------------------


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

    of_bodies: ClassVar[dict[PoolId, tuple[int, list[None]]]] = {}
    """By the pool of a body its device, and torch's answer each time that it was told to use the pool."""
    of_no_graph: ClassVar[dict[int, Any]] = {}
    """By device: a generator that takes part in no capture, and so can't be used in one."""

    backend: AnyBackend
    pool: PoolId
    stream: Any = None
    torch_graph: Any = None
    native: Any = None
    """The backend's graph."""
    executable: Executable | None = None
    """The latest one, unless it is destroyed."""
    graph_is_needed: bool = True
    _routed: bool = False
    """True once torch's allocator uses the pool."""
    _together: set[int] | None = None
    """The recorders of the pool, while torch has a graph of this one there."""
    _bodies: Any = None
    """The bodies that the device repeats, once there is one."""
    _over: bool = False

    def __init__(
        self, backend: AnyBackend, pool: PoolId, device: int, generators: Sequence[object], framework: Torch
    ) -> None:
        super().__init__(backend, pool)
        self.device = device
        self.thread: threading.Thread = interruptions.thread.identity.thread
        self.generators: list[Any] = []
        """The generators that a replay may use, if torch must prepare them; otherwise empty."""
        self.destroy_disturbs_captures: bool = backend.name == "hip" or hasattr(pool, "owner")
        """torch's graphs synchronise the device when they go, on ROCm; and wherever a `MemPool` goes with
        the last of them, it ends the process if anything is being captured."""
        self._registered = generators
        self._framework = framework
        self._given = pool

    # ---- capture -------------------------------------------------------------------------------

    def another(self) -> TorchRecorder:
        """Return another one: this is the graph that it has captured."""
        return TorchRecorder(self.backend, self._given, self.device, self._registered, self._framework)

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
                if device not in self.of_no_graph:
                    self.of_no_graph[device] = torch.Generator(f"cuda:{device}")
                for generator in self._registered:
                    graph.register_generator_state(generator)
            self._together = _graphs.setdefault(self.pool, set())
            self._together.add(id(self))
            try:
                graph.capture_begin(pool=self.pool, capture_error_mode=mode)
            except RuntimeError as error:
                raise _driver_error(error, self.backend, "capture_begin") from error
            self._routed = True
            return self
        except BaseException as error:
            # the driver is asked last: if it refuses, torch's allocator is in the pool already
            self._routed = self._routed or getattr(error, "code", None) is not None
            self.capture_abandon(self)
            raise

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
            self.native = self.backend.borrow(self.torch_graph.raw_cuda_graph(), self.stream)
            _recording.pop(self.device, None)
            return self
        except BaseException:
            self.capture_abandon(self)
            raise

    def capture_abandon(self, capture: TorchRecorder) -> None:
        """End the capture in torch, throw its graph away, and put its random numbers right again."""
        if self._over:
            return
        graph = self.torch_graph
        if graph is not None:
            ended = False
            if self._bodies is not None:
                with contextlib.suppress(Exception):
                    self._bodies.leave()
                self.backend.capture_abandon(self._bodies.token)  # torch would destroy broken bodies
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
            self._leave_pool()
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

    def _leave_pool(self) -> None:
        """Replace the id of the pool if torch has no other graph there, since it refuses such an id."""
        together, self._together = self._together, None
        if together is not None:
            together.discard(id(self))
            if not together:
                _graphs.pop(self.pool, None)
                if not hasattr(self.pool, "owner"):
                    instead.setdefault(self.pool, NEW)

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
            native = self.backend.borrow(self.torch_graph.raw_cuda_graph_exec(), self.native)
            self.executable = Executable(native, None if self.generators else True)
            return self.executable
        except BaseException as error:
            self.executable = None  # nobody will destroy it
            if isinstance(error, RuntimeError) and not isinstance(error, DriverError):
                raise _driver_error(error, self.backend, "instantiate") from error
            raise

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
        self._leave_pool()
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

    def records_bodies(self) -> bool:
        """Return True if torch lets a thread's memory come from a pool, and random numbers be refused."""
        torch = sys.modules["torch"]
        routes = hasattr(torch._C, "_cuda_beginAllocateCurrentThreadToPool")
        return routes and not decides_itself(torch.cuda.CUDAGraph)

    def body(self, pool: PoolId, what: str) -> AbstractContextManager[None]:
        """Have torch allocate from the pool, and refuse random numbers."""
        if self._bodies is None:
            from ._torch.bodies import Bodies

            token, device = self.backend.borrow_capture(self.stream), self.device
            self._bodies = Bodies(token, device, self.generators, self.of_no_graph[device], self.of_bodies)
        return self._bodies.record(pool, what)  # type: ignore[no-any-return]

    def lends(self, made: TorchRecorder | Executable) -> bool:
        """Return True if it is known that no random number is drawn."""
        executable = made if isinstance(made, Executable) else self.executable
        return executable is not None and executable.needs_torch is False


@cache
def decides_itself(kind: Any) -> bool:
    """Return True if generators join a capture automatically and replays run hooks, as since torch 2.14.

    torch does not report which generators have joined, so every replay must go through torch.
    """
    return not hasattr(kind, "register_generator_state") or hasattr(kind, "register_replay_start_hook")


def offsets(generators: list[Any]) -> list[int] | None:
    """Return the offsets of generators; None if torch does not report them now."""
    try:
        return [generator.get_offset() for generator in generators]
    except RuntimeError:  # not permitted during a capture
        return None


def _driver_error(error: RuntimeError, backend: AnyBackend, call: str) -> DriverError:
    from ._torch.errors import as_driver_error

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


def contents(torch: Any, pool: PoolId, device: int) -> base.PoolContents:
    """Return the segments that torch's caching allocator has in a pool, and what arrays occupy of them."""
    from .records import PoolContents, PoolSegment

    found = [
        segment
        for segment in _snapshot(torch.cuda.memory_snapshot)
        if segment["device"] == device and tuple(segment["segment_pool_id"]) == tuple(pool)
    ]
    segments = sorted(PoolSegment(segment["address"], segment["total_size"]) for segment in found)
    return PoolContents(tuple(segments), sum(segment["allocated_size"] for segment in found))


def blocks(snapshot: list[dict[str, Any]]) -> list[base.MemoryBlock]:
    """Return the blocks in a snapshot of the caching allocator."""
    from .records import MemoryBlock

    found = []
    for segment in snapshot:
        address, pool = segment["address"], tuple(segment.get("segment_pool_id", (0, 0)))
        for block in segment["blocks"]:
            found.append(MemoryBlock(address, block["size"], block["state"] != "inactive", pool))
            address += block["size"]
    return found


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


interruptions.after_fork(_recording.clear)
