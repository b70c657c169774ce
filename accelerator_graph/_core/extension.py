"""The fast path: replays through C, where the extension was built and a backend has a function for it.

Without it everything works, through the callables of `_replay` alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from ._fast import Launch
    from .ownership import Owned
    from .streams import Stream

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


def calling(slot: object) -> Callable[[Function], Function]:
    """Return a decorator: without arguments, the method calls what is in a slot of its object at once.

    The method itself is called where the slot holds None, or with arguments, and without the extension.
    """

    def decorate(method: Function) -> Function:
        return method if fast is None else cast("Function", update_wrapper(fast.Method(slot, method), method))

    return decorate


def launch_of(owner: Owned, stream: Stream) -> Launch | None:
    """Return what launches an executable on a stream without Python; None if only its backend can."""
    if fast is None:
        return None
    backend = owner.backend
    found = backend.launch_function(owner.value, stream.native)
    if found is None:
        return None
    handles = backend.handle_int(owner.value), backend.handle_int(stream.native)
    lock = owner.lock if found.alone else None
    asked = found.latest, found.current, found.context, found.capturing
    launch: Launch = fast.Launch(found.address, *handles, owner, found.failed, lock, *asked)
    return launch
