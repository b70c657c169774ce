"""Seeing the operators that torch dispatches below autograd."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def each_operator(torch: Any, note: Callable[[Any, Any, Any], None]) -> Callable[[], bool]:
    """Call `note` after each operator on this thread, with it, its arguments and its result; return the undo.

    This includes operators that autograd runs in threads of its own, since autograd copies this thread's
    modes to them. Kernels that no operator launches are not seen. The undo returns False if there was nothing
    to undo.
    """
    dispatch = torch.utils._python_dispatch

    class Observer(dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]
        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:  # otherwise the first operator would import it
            return f"{torch.__name__}._dynamo" in sys.modules

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            note(func, (args, kwargs), result)
            return result

    observer = Observer()

    def undo() -> bool:
        if not any(each is observer for each in dispatch._get_current_dispatch_mode_stack()):
            return False
        observer.__exit__(None, None, None)
        return True

    observer.__enter__()
    return undo
