"""The way into C: replays without a line of Python, where the extension was built and a backend can.

Everything works without the extension, through Python.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

SWITCH = "ACCELERATOR_GRAPH_PURE_PYTHON"
VERSION = 6
"""As in `fast/_fast.c`. Raise both whenever Python can't work with the extension that was built before."""


def _extension() -> Any:
    if os.environ.get(SWITCH, "").strip() not in ("", "0"):
        return None
    try:
        import accelerator_graph._core._fast as extension
    except ImportError:
        return None
    if fits(extension):
        return extension
    warnings.warn(
        "accelerator_graph: the C extension was built from another version of the library and is not used, "
        "so replays go through Python; build it again by installing the library again.",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def fits(extension: object) -> bool:
    """Return True if an extension was built from this version of the library."""
    return getattr(extension, "version", None) == VERSION


fast = _extension()
"""The extension; None if it was not built, was built from another version, or is switched off."""


class _Lock(type(threading.RLock())):  # type: ignore[misc]
    """As `_fast.Lock`: a re-entrant lock, and what the launches that hold it launch."""

    __slots__ = ("owner",)


new_lock = _Lock if fast is None else fast.Lock
"""Makes a re-entrant lock."""


def calling(slot: object) -> Callable[[Function], Function]:
    """Return a decorator that makes a method call, without arguments, the object in a slot of its instance.

    The method itself is called where the slot holds None, or with arguments, or without the extension. So
    `Graph.replay` costs 10 ns on top of the launch, where a Python function that does the same costs 40.
    """

    def decorate(method: Function) -> Function:
        return method if fast is None else cast("Function", update_wrapper(fast.Method(slot, method), method))

    return decorate
