"""What `verify` needs of torch: random numbers set back, new tensors filled, and free memory cleared.

cuDNN's recurrent layers draw their dropout from a state of their own on the device, which torch makes from a
seed at their first use, and again after every `set_state` of the default generator. To make it copies a
number to the host, which no capture survives, and frees the memory that captured graphs go on using. So where
there is such a state, its contents are set back, and the generator without torch's noticing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..base import Undo
from .observing import observe_operators

_DROPOUT_STATE = 15
"""Which argument of ``_cudnn_rnn`` it is."""

_EMPTY = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
)
_VALUES = (0.28515625, 0.71875)
_SMALL = 1 << 20
"""The allocator keeps requests of up to this size apart from the others (kSmallSize)."""
_STREAMS = 32
"""torch has so many streams of each priority, and gives them out in turn."""


def random_state(torch: Any, device: int, generators: Sequence[Any]) -> Undo:
    """Return what sets the generators of the host and of a device, and the given ones, back."""
    default = torch.cuda.default_generators[device]
    on_device, on_host = default.get_state(), torch.get_rng_state()
    others = [(each, each.get_state()) for each in generators]
    dropout = _dropout_state(torch, device, default)
    contents = None if dropout is None else dropout.clone()

    def restore() -> None:
        if dropout is None:
            default.set_state(on_device)
        else:
            default.graphsafe_get_state().set_state(on_device)  # another generator with the same state
            dropout.copy_(contents)
        torch.set_rng_state(on_host)
        for generator, before in others:
            generator.set_state(before)

    return restore


class _Seen(Exception):
    """Stops an operator: the argument is the dropout state, or None if torch is about to make one."""


def _dropout_state(torch: Any, device: int, default: Any) -> Any:
    """Return cuDNN's dropout state of a device; None if the next use makes one.

    torch shows it to nobody but the operator that uses it, so an LSTM is called, and stopped there.
    """
    if torch.version.hip or not hasattr(default, "graphsafe_get_state"):
        return None
    operator = torch.ops.aten._cudnn_rnn.default

    class Look(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is operator:
                raise _Seen(args[_DROPOUT_STATE])
            if func._schema.name == "aten::random_":
                raise _Seen(None)
            return func(*args, **(kwargs or {}))

    where = {"device": f"cuda:{device}"}
    x, h = torch.zeros(1, 1, 1, **where), torch.zeros(1, 1, 1, **where)
    weights = [torch.zeros(4, 1, **where), torch.zeros(4, 1, **where)]
    try:
        with torch.no_grad(), Look():
            torch.lstm(x, (h, h), weights, False, 1, 0.5, True, False, False)
    except _Seen as seen:
        if seen.args[0] is None:
            default.set_state(default.get_state())  # so that the next use makes one, as before
        return seen.args[0]
    return None  # cuDNN is not used here


def fill_new(torch: Any, which: int, settle: Callable[[], object]) -> Undo:
    """Fill the tensors that this thread's code makes by ``empty`` and its like; return the undo.

    Code that was compiled makes tensors without an operator, and is not seen.
    """

    def fill(operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        if operator._schema.name in _EMPTY and type(result) is torch.Tensor:
            number = result.is_floating_point() or result.is_complex()
            result.fill_(_VALUES[which] if number else 1 - which)
            if not result.is_cpu:
                settle()

    return observe_operators(torch, fill)


def clear_free(torch: Any, device: int) -> None:
    """Set the memory that the caching allocator keeps for later to zero, but not that of private pools.

    The allocator keeps memory for each stream. A stream may have been destroyed, and its handle must not be
    used then. So this clears the memory of the default stream, the current one, and torch's own streams.
    """
    held, used = [], []
    streams = _living_streams(torch, device)
    for segment in torch.cuda.memory_snapshot():
        stream = streams.get(segment["stream"])
        if stream is None or segment["device"] != device or tuple(segment["segment_pool_id"]) != (0, 0):
            continue
        largest = _SMALL if segment["segment_type"] == "small" else sys.maxsize
        with torch.cuda.stream(stream):
            if torch.cuda.is_current_stream_capturing():  # by another thread, whose capture this would break
                continue
            used.append(stream)
            for block in segment["blocks"]:
                left = block["size"] if block["state"] == "inactive" else 0
                while left:
                    size = min(left, largest)
                    held.append(torch.zeros(size, dtype=torch.uint8, device=f"cuda:{device}"))
                    left -= size
    for stream in used:
        stream.synchronize()


def _living_streams(torch: Any, device: int) -> dict[int, Any]:
    """Return the streams of a device that are never destroyed, and the current one, by their handles."""
    cuda = torch.cuda
    found = [cuda.default_stream(device), cuda.current_stream(device)]
    found += [cuda.Stream(device, priority=p) for p in (0, -1) for _ in range(_STREAMS)]
    return {stream.cuda_stream: stream for stream in found}
