"""CuPy: its current stream, and its allocations during a capture."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, ClassVar

from . import base
from .base import Inspectable, PoolId, Undo

_KERNELS = frozenset(("ufunc", "ElementwiseKernel", "ReductionKernel", "RawKernel"))
_METHODS = frozenset(
    ("all", "any", "argmax", "argmin", "astype", "copy", "dot", "fill", "max", "mean", "min", "sort", "sum")
)
_OUT_OF_MEMORY = 2  # the runtime's code, the same on CUDA and ROCm
_CAPTURE_CODES = range(900, 909)  # likewise
_REFUSAL = re.compile(
    r"the current stream is capturing, so (synchronous API calls|H2D transfers|D2H transfers) are disallowed$"
    r"|calling cu\w+ API during stream capture is currently unsupported$"
)
"""The messages with which CuPy refuses a call because of a capture."""


class CuPy(Inspectable):
    """CuPy on CUDA and ROCm."""

    api_version: ClassVar[int] = 1

    def __init__(self) -> None:
        self._pools: dict[PoolId, _Memory] = {}
        self._ended: set[_Memory] = set()

    @property
    def cupy(self) -> Any:
        """The module, which the program has imported."""
        return sys.modules["cupy"]

    def backend(self) -> str | None:
        """Return ``"cuda"`` or ``"hip"`` once any library in this process has initialised the device.

        CuPy does not say whether it has used a device itself.
        """
        try:
            cuda = self.cupy.cuda
            runtime, hip = cuda.runtime, cuda.runtime.is_hip
            if not hip:
                cuda.driver.ctxGetCurrent()  # fails, without any effect, before initialisation
            count = runtime.getDeviceCount() if hasattr(cuda, "using_allocator") else 0
        except (AttributeError, RuntimeError):  # CuPy is half imported or can't run here
            return None
        return ("hip" if hip else "cuda") if count else None

    def as_stream(self, obj: object) -> int | None:
        """Return the handle of a ``cupy.cuda.Stream`` or ``ExternalStream``."""
        cuda = self.cupy.cuda
        external = getattr(cuda, "ExternalStream", cuda.Stream)  # deprecated since 14
        return int(obj.ptr) if isinstance(obj, (cuda.Stream, external)) else None

    def current_stream(self, device: int | None = None) -> tuple[int, int]:
        """Return CuPy's current stream."""
        cuda = self.cupy.cuda
        device = cuda.runtime.getDevice() if device is None else device
        return int(cuda.get_current_stream(device).ptr), device

    def use_stream(self, handle: int, device: int) -> Undo:
        """Make a stream CuPy's current one on its device, and that device the current one."""
        cuda = self.cupy.cuda
        device_before = cuda.runtime.getDevice()
        stream_before = cuda.get_current_stream(device)
        with ExitStack() as undo:
            undo.callback(cuda.runtime.setDevice, device_before)
            undo.callback(stream_before.use)
            undo.callback(cuda.runtime.setDevice, device)
            cuda.runtime.setDevice(device)
            _wrapped(cuda, handle, device).use()
            return undo.pop_all().close

    def prepare(self, device: int) -> None:
        """Release the default pool's free memory on the device, and the memory of ended pools."""
        self._sweep()
        with self.cupy.cuda.Device(device):
            self.cupy.get_default_memory_pool().free_all_blocks()

    def route(
        self, pool: PoolId, handle: int, device: int, relaxed: Callable[[], AbstractContextManager[object]]
    ) -> Undo:
        """Let this thread allocate from the ``cupy.cuda.MemoryPool`` that belongs to the pool's id.

        Memory that is freed during a capture may be used again in the same capture, on the same stream, and
        in later captures into the pool, but nowhere else.
        """
        cuda = self.cupy.cuda
        memory = self._pools.get(pool)
        if memory is None:
            memory = self._pools[pool] = _Memory(cuda, relaxed())
        memory.relaxed = relaxed
        with ExitStack() as undo:
            undo.enter_context(cuda.using_allocator(memory.pool.malloc))
            return undo.pop_all().close

    def release(self, pool: PoolId) -> None:
        """Free the pool's memory; the memory that arrays still use is freed later."""
        memory = self._pools.pop(pool, None)
        if memory is not None:
            self._ended.add(memory)
            with memory.end:
                self._sweep()

    def fill_new(self, which: int, settle: Callable[[], object]) -> Undo:
        """Fill all memory that this thread allocates, on its current stream: with ones, or zeros."""
        cuda = self.cupy.cuda
        allocate = cuda.get_allocator()

        def filled(size: int) -> Any:
            memory = allocate(size)
            if size:
                memory.memset_async(1 - which, size)
                settle()
            return memory

        with ExitStack() as undo:
            undo.enter_context(cuda.using_allocator(filled))
            return undo.pop_all().close

    def enqueues(self, function: object, first: object) -> bool:
        """Return True for CuPy's kernels and ufuncs, and for the methods of arrays that compute."""
        kind = type(function)
        if kind.__name__ in _KERNELS:
            return kind.__module__.startswith("cupy._core")
        return getattr(function, "__name__", None) in _METHODS and isinstance(first, self.cupy.ndarray)

    def refuses(self, error: Exception) -> bool:
        """Return True for CuPy's own refusals and for those of CUDA's runtime and driver."""
        cuda = self.cupy.cuda
        if isinstance(error, (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError)):
            return error.status in _CAPTURE_CODES
        return type(error) in (RuntimeError, NotImplementedError) and bool(_REFUSAL.match(str(error)))

    def pool_contents(self, pool: PoolId, device: int) -> base.PoolContents:
        """Return the blocks that the pool has got from the driver, and what arrays occupy of them."""
        memory = self._pools.get(pool)
        return base.PoolContents() if memory is None else memory.contents(device)

    def _sweep(self) -> None:
        for memory in list(self._ended):
            if memory.free():
                self._ended.discard(memory)


class _Memory:
    """The memory of one pool id.

    Its blocks are freed here and nowhere else. CuPy would free them with the pool object, even if arrays
    still use them, and when memory is short, even if graphs use them. `end` is the context that the final
    freeing runs in.
    """

    def __init__(self, cuda: Any, end: AbstractContextManager[object]) -> None:
        self._cuda = cuda
        self.end = end
        self.relaxed: Callable[[], AbstractContextManager[object]]
        self.devices: set[int] = set()
        self._segments: list[tuple[int, base.PoolSegment]] = []  # with their devices
        self.pool = cuda.MemoryPool(self._grow)

    def _grow(self, size: int) -> Any:
        """Allocate with the thread's capture mode relaxed, since a capture does not survive it otherwise."""
        cuda = self._cuda
        with self.relaxed():
            try:
                block = cuda.Memory(size)
            except cuda.runtime.CUDARuntimeError as error:
                if error.status != _OUT_OF_MEMORY:
                    raise
                # on the runtime's own error the pool would free blocks that Python does not use, and retry
                raise cuda.memory.OutOfMemoryError(size, self.pool.total_bytes()) from error
        self.devices.add(int(block.device_id))
        self._segments.append((int(block.device_id), base.PoolSegment(int(block.ptr), int(block.size))))
        return cuda.MemoryPointer(block, 0)

    def contents(self, device: int) -> base.PoolContents:
        """Return what is in the pool. Nothing has been given back to the driver while the pool is in use."""
        segments = sorted(segment for where, segment in self._segments if where == device)
        with self._cuda.Device(device):
            return base.PoolContents(tuple(segments), int(self.pool.used_bytes()))

    def free(self) -> bool:
        """Free the memory that no array uses; return True if that was all of it."""
        used = 0
        for device in self.devices:
            with self._cuda.Device(device):
                self.pool.free_all_blocks()
                used += self.pool.used_bytes()
        return not used


class _Handle:
    """A stream in the form of the ``__cuda_stream__`` protocol."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


def _wrapped(cuda: Any, handle: int, device: int) -> Any:
    """Return CuPy's object for a stream that CuPy did not make."""
    if hasattr(cuda.Stream, "from_external"):
        return cuda.Stream.from_external(_Handle(handle))
    return cuda.ExternalStream(handle, device)
