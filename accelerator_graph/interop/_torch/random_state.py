"""Setting torch's random numbers back to where they were, those of cuDNN's dropout among them.

cuDNN's recurrent layers draw their dropout from a state of their own on the device, which torch makes from a
seed at their first use, and again after every `set_state` of the default generator. To make it copies a
number to the host, which no capture survives, and frees the memory that captured graphs go on using. So where
there is such a state, its contents are set back, and the generator without torch's noticing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base import Undo

_DROPOUT_STATE = 15
"""Which argument of ``_cudnn_rnn`` it is."""


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
