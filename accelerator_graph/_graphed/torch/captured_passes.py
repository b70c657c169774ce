"""The forward and the backward pass of a torch module or function, run one by one to be captured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import UnsupportedError
from .replay_autograd import Captured, Lane, Loans, joined

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def loaded() -> Any:
    """Return the module, which somebody has imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise TypeError("sample_args must hold torch tensors, and torch has not been imported.")
    return torch


def current_handle(device: int) -> Callable[[], int]:
    """Return what reads the handle of torch's current stream on a device like CUDA's."""
    torch = loaded()
    read: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if read is None:
        return lambda: int(torch.cuda.current_stream(device).cuda_stream)
    return lambda: read(device)


class Passes:
    """The passes of one callable: run to be warmed up, run to be captured, then joined to a callable.

    Parameters
    ----------
    name : str
        What the callable is called in messages.
    function : callable
        A module or a function.
    args : sequence
        Its sample arguments. The tensors in them are what the graphs read: the static ones.
    allow_unused : bool
        Whether an input may be of no use for the outputs.

    Raises
    ------
    TypeError, ValueError
        It can't be captured so. Nothing has run.
    UnsupportedError
        Autocast keeps what it has cast.
    """

    def __init__(self, name: str, function: Any, args: Sequence[Any], allow_unused: bool) -> None:
        torch = self._torch = loaded()
        self.name = name
        self.function = function
        self._args = tuple(args)
        self._allow_unused = allow_unused
        self._statics: list[Any] = torch.utils._pytree.tree_leaves(self._args)
        for i, value in enumerate(self._statics):
            if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
                kind = f"of type {type(value).__name__!r}"
                raise TypeError(f"{name}: sample argument {i} is {kind}; only strided tensors can be passed.")
        self.arguments = [(f"argument {i}", value) for i, value in enumerate(self._statics)]
        self.parameters: list[tuple[str, Any]] = []
        self.is_module = isinstance(function, torch.nn.Module)
        if self.is_module:
            self._check_module()
            self.parameters = [(f"parameter {key!r}", value) for key, value in function.named_parameters()]
        tensors = [*self.arguments, *self.parameters]
        self._inputs = [(label, value) for label, value in tensors if value.requires_grad]
        kinds = filter(
            torch.amp.is_autocast_available, {value.device.type for _, value in tensors} or {"cuda"}
        )
        if torch.is_autocast_cache_enabled() and any(map(torch.is_autocast_enabled, kinds)):
            raise UnsupportedError(
                f"{name}: autocast keeps what it has cast, and replays would go on reading that; enter "
                "autocast with cache_enabled=False."
            )
        self.forget()

    def _check_module(self) -> None:
        for kind in _HOOKS:
            if getattr(self.function, kind, None):
                raise ValueError(
                    f"{self.name} has hooks ({kind.strip('_')}), and what they do in Python would not be "
                    "replayed; register them afterwards."
                )
        for key, buffer in self.function.named_buffers():
            if buffer.requires_grad:
                raise ValueError(f"{self.name}: buffer {key!r} requires grad; make it a parameter.")

    def forget(self) -> None:
        """Let go of what a run or a capture has left."""
        self._result: Any = None
        self._tracked: list[Any] = []
        self._incoming: list[Any] = []
        self._grads: Sequence[Any] = ()

    def forward(self) -> None:
        """Run the callable, and keep its result with all that leads back from it."""
        self._result = self.function(*self._args)

    def prepare_backward(self) -> bool:
        """Make the static gradients of the outputs; say whether there are any."""
        leaves = self._torch.utils._pytree.tree_leaves(self._result)
        self._tracked = [leaf for leaf in leaves if getattr(leaf, "requires_grad", False)]
        if self._tracked and not self._inputs:
            raise ValueError(
                f"{self.name}: its outputs require grad, but no argument and no parameter of its own does; "
                "pass what does as an argument, or call under no_grad()."
            )
        self._incoming = [self._torch.zeros_like(output) for output in self._tracked]
        return bool(self._tracked)

    def backward(self) -> None:
        """Compute the gradients of the inputs, and keep them."""
        inputs = [value for _, value in self._inputs]
        self._grads = self._torch.autograd.grad(self._tracked, inputs, self._incoming, allow_unused=True)
        unused = [label for (label, _), grad in zip(self._inputs, self._grads, strict=True) if grad is None]
        if unused and not self._allow_unused:
            raise ValueError(
                f"{self.name}: its outputs don't depend on {', '.join(unused)}; pass "
                "allow_unused_input=True if that is meant."
            )

    def join(self, forward: Lane, backward: Lane, loans: Loans) -> Callable[..., Any]:
        """Return the callable that replays, and let go of the graph that autograd has made."""
        params = [value for _, value in self.parameters if value.requires_grad]
        captured = Captured(
            self.name, self._args, self._statics, params, self._result, self._incoming, self._grads
        )
        self.forget()
        return joined(self._torch, captured, forward, backward, loans)
