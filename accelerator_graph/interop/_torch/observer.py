"""Which tensors from before a capture torch's operators use during it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..base import PoolId, Undo
from .dispatch import observe_operators


def observe(torch: Any, pool: PoolId, used: Callable[[object], Undo]) -> Undo:
    """Call `used` once for each tensor from before the capture that operators on this thread read or write.

    Kernels that no operator launches are not seen.
    """
    inputs = _Inputs(torch, used)
    end = observe_operators(torch, lambda _, args, kwargs, result: inputs.note((args, kwargs), result))

    def undo() -> None:
        if end():
            with contextlib.suppress(RuntimeError):  # some of torch's allocators have no snapshot
                inputs.forget_those_in(pool)

    return undo


class _Inputs:
    """Tells the storages from before the capture from those that operators make during it."""

    def __init__(self, torch: Any, used: Callable[[object], Undo]) -> None:
        self._torch = torch
        self._used = used
        self._known: dict[int, weakref.ref[Any]] = {}
        self._found: list[tuple[int, Undo]] = []

    def note(self, given: Any, result: Any) -> None:
        """Note the tensors of an operator's call."""
        if not self._torch.cuda.is_current_stream_capturing():
            return
        inputs, outputs = list(self._tensors(given)), list(self._tensors(result))
        if not any(map(_on_device, inputs + outputs)):
            return
        for tensor in inputs:
            storage = self._new(tensor)
            # the storage of a foreign array may end before the array does. Such storages can't be resized,
            # but neither can those of pin_memory(), which are watched
            if storage is not None and ((storage.resizable() and _on_device(tensor)) or tensor.is_pinned()):
                self._found.append((storage.data_ptr(), self._used(tensor)))
        for tensor in outputs:
            self._new(tensor)

    def _new(self, tensor: Any) -> Any:
        """Return the storage of a tensor; None if it has none, or one that is known already."""
        try:
            storage = tensor.untyped_storage()
            if not storage.data_ptr():
                return None
        except (NotImplementedError, RuntimeError):  # sparse, for example
            return None
        known = self._known.get(id(storage))
        if known is not None and known() is storage:
            return None
        self._known[id(storage)] = weakref.ref(storage)
        return storage

    def _tensors(self, value: Any) -> Iterator[Any]:
        """Yield the tensors in an operator's arguments, and the tensors inside wrapper subclasses."""
        if isinstance(value, self._torch._subclasses.FakeTensor):
            pass
        elif isinstance(value, self._torch.Tensor):
            if not hasattr(value, "__tensor_flatten__"):
                yield value
            else:
                for name in value.__tensor_flatten__()[0]:
                    yield from self._tensors(getattr(value, name))
        elif isinstance(value, list | tuple | dict):
            for each in value.values() if isinstance(value, dict) else value:
                yield from self._tensors(each)

    def forget_those_in(self, pool: PoolId) -> None:
        """Undo the notes of tensors in the pool: compiled code allocates there without an operator."""
        if not self._found:
            return
        segments = [
            range(each["address"], each["address"] + each["total_size"])
            for each in self._torch.cuda.memory_snapshot()
            if tuple(each["segment_pool_id"]) == tuple(pool)
        ]
        for address, forget in self._found:
            if any(address in segment for segment in segments):
                forget()


def _on_device(tensor: Any) -> bool:
    return bool(tensor.device.type != "cpu")
