"""The modes of torch that change what functions do."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from ..base import ModeState


class Modes(ModeState):
    """Torch's modes of this thread, as they were when this was made."""

    __slots__ = ("_autocast", "_cache", "_grad", "_inference", "_kinds", "_torch")

    def __init__(self, torch: Any, kinds: tuple[str, ...]) -> None:
        self._torch = torch
        self._kinds = kinds
        self._grad, self._inference, self._autocast, self._cache = self._now()

    def _now(self) -> tuple[bool, bool, tuple[object, ...], bool]:
        torch = self._torch
        autocast = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in self._kinds]
        cache = torch.is_autocast_cache_enabled()
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), tuple(autocast), cache

    def are_on(self) -> bool:
        """Return True if the modes of this thread are these."""
        return self._now() == (self._grad, self._inference, self._autocast, self._cache)

    def entered(self) -> ExitStack:
        """Return a context in which they are."""
        torch, stack = self._torch, ExitStack()
        with stack:
            stack.enter_context(torch.inference_mode(self._inference))
            stack.enter_context(torch.set_grad_enabled(self._grad))
            for kind, (on, dtype) in zip(self._kinds, self._autocast, strict=True):
                stack.enter_context(torch.autocast(kind, dtype, on, self._cache))
            return stack.pop_all()
        raise AssertionError  # no context above swallows an exception
