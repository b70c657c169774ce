"""The modes of torch that change what functions do."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from ..base import ModeState


class Modes(ModeState):
    """Torch's modes of this thread, as they were when this was made."""

    __slots__ = ("_kinds", "_torch", "_values")

    def __init__(self, torch: Any, kinds: tuple[str, ...]) -> None:
        self._torch = torch
        self._kinds = kinds
        self._values = self._now()

    def _now(self) -> tuple[bool, bool, bool, tuple[tuple[bool, Any], ...]]:
        torch = self._torch
        autocast = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in self._kinds]
        cache = torch.is_autocast_cache_enabled()
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), cache, tuple(autocast)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Modes) and self._values == other._values

    def __hash__(self) -> int:
        return hash(self._values)

    def are_on(self) -> bool:
        """Return True if the modes of this thread are these."""
        return self._now() == self._values

    def entered(self) -> ExitStack:
        """Return a context in which they are."""
        torch, (grad, inference, cache, autocast) = self._torch, self._values
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(inference))
            stack.enter_context(torch.set_grad_enabled(grad))
            for kind, (on, dtype) in zip(self._kinds, autocast, strict=True):
                stack.enter_context(torch.autocast(kind, dtype, on, cache))
            return stack.pop_all()
