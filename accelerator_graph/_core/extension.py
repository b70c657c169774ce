"""The way into C: replays without a line of Python, where the extension was built and a backend can.

Everything works without the extension, through Python.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

SWITCH = "ACCELERATOR_GRAPH_PURE_PYTHON"


def _extension() -> Any:
    if os.environ.get(SWITCH, "").strip() not in ("", "0"):
        return None
    try:
        import accelerator_graph._core._fast as extension
    except ImportError:
        return None
    return extension


fast = _extension()
"""The extension; None if it was not built, or is switched off."""

new_lock = threading.RLock if fast is None else fast.Lock
"""Makes the lock of an executable."""


def calling(slot: object, method: Function) -> Function:
    """Return a method that, without arguments, calls what is in a slot of its object at once.

    It calls `method` where the slot holds None, or with arguments. Without the extension it is `method`.
    """
    return method if fast is None else cast("Function", update_wrapper(fast.Method(slot, method), method))
