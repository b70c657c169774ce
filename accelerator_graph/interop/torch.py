"""torch: its current stream, and captures that torch records itself.

Only torch's own graph class can register random generators, pinned memory and the state of the caching
allocator with a capture. So torch records the capture, and the library borrows torch's handles.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar

from ..backends.base import Backend, Lends
from . import base
from ._torch import recorder as _recorder
from .base import Inspectable, PoolId, Undo

_DLPACK_CUDA = 2


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
        self.current_handle = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        if torch.version.hip:
            return "hip"
        if self.current_handle is not None:
            self.exchange = torch.Tensor, _DLPACK_CUDA  # on ROCm, nobody has seen it right
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

    def prepare(self, device: int) -> None:
        """Empty the caching allocators, as ``torch.cuda.graph`` does."""
        torch = sys.modules["torch"]
        getattr(torch._C, "_cuda_emptyCache", torch.cuda.empty_cache)()
        empty_pinned = getattr(torch._C, "_host_emptyCache", None)
        if empty_pinned is not None:
            empty_pinned()

    def release(self, pool: PoolId) -> None:
        """Replace the id of a pool whose last graph is gone, since torch may refuse it from now on."""
        if not pool[0] and not hasattr(pool, "owner"):
            _recorder.instead[pool] = _recorder.NEW

    def pool_contents(self, pool: PoolId, device: int) -> base.PoolContents:
        """Return the segments of the pool that the caching allocator has."""
        return _recorder.contents(self.torch, pool, device)

    def recorder(
        self, backend: Backend, pool: PoolId, device: int, generators: Sequence[object]
    ) -> _recorder.TorchRecorder | None:
        """Return a recorder: torch's own graph class."""
        if Lends not in type(backend).__mro__:  # `isinstance` is slow for classes of `abc`
            return None
        return _recorder.TorchRecorder(backend, pool, device, generators, self)  # type: ignore[arg-type]

    def takes_generator(self, obj: object) -> bool:
        """Return True if `obj` is a ``torch.Generator`` of a device."""
        return isinstance(obj, self.torch.Generator) and obj.device.type == "cuda"

    def random_state(self, device: int, generators: Sequence[object]) -> Undo:
        """Return what sets torch's generators of the host and of a device, and the given ones, back."""
        from ._torch.verifying import random_state

        return random_state(self.torch, device, generators)

    def fill_new(self, which: int) -> Undo:
        """Fill tensors that operators make without contents."""
        from ._torch.verifying import fill_new

        return fill_new(self.torch, which)

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
