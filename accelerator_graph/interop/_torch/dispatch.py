"""A look at the operators that a thread calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any


def observe_operators(
    torch: Any,
    seen: Callable[[Any, Any, Any, Any], object],
    around: Callable[[Any, Any, Any], AbstractContextManager[None]] = lambda *_: nullcontext(),
) -> Callable[[], bool]:
    """Call ``seen(operator, args, kwargs, result)`` after each operator that this thread calls.

    The operator runs in the context that ``around(operator, args, kwargs)`` returns.

    This includes operators that autograd runs in threads of its own, since autograd copies this thread's
    modes to them. It does not include what an operator calls inside of itself. Compiled code stays compiled.

    Returns
    -------
    callable
        Ends it. Returns True if it had not ended before.
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
            kwargs = kwargs or {}
            with around(func, args, kwargs):
                result = func(*args, **kwargs)
            seen(func, args, kwargs, result)
            return result

    observer = Observer()

    def undo() -> bool:
        here = any(each is observer for each in dispatch._get_current_dispatch_mode_stack())
        if here:
            observer.__exit__(None, None, None)
        return here

    observer.__enter__()
    return undo
