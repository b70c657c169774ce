"""Filling the memory of tensors that are made without contents."""

from __future__ import annotations

import sys
from typing import Any

from ..base import Undo

_EMPTY = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
)
_VALUES = (0.28515625, 0.71875)


def fill_new(torch: Any, which: int) -> Undo:
    """Fill the tensors that this thread's code makes by ``empty`` and its like; return the undo.

    Code that was compiled makes tensors without an operator, and is not seen.
    """
    dispatch = torch.utils._python_dispatch

    class Filling(dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]
        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:  # otherwise the first operator would import it
            return f"{torch.__name__}._dynamo" in sys.modules

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if func._schema.name in _EMPTY and type(result) is torch.Tensor:
                number = result.is_floating_point() or result.is_complex()
                result.fill_(_VALUES[which] if number else 1 - which)
            return result

    filling = Filling()
    filling.__enter__()

    def undo() -> None:
        if any(each is filling for each in dispatch._get_current_dispatch_mode_stack()):
            filling.__exit__(None, None, None)

    return undo
