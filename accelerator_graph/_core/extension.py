"""The way into C: replays without a line of Python, where the extension was built and a backend can.

Everything works without the extension, through Python.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..backends.base import SameContext, SameStream

if TYPE_CHECKING:
    from ._fast import Launch
    from .binding import Executable
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


def calling(slot: object, method: Function) -> Function:
    """Return a method that, without arguments, calls what is in a slot of its object at once.

    It calls `method` where the slot holds None, or with arguments. Without the extension it is `method`.
    """
    return method if fast is None else cast("Function", update_wrapper(fast.Method(slot, method), method))


def launch_in_c(executable: Executable, stream: Stream) -> Launch | None:
    """Return what launches an executable on a stream without Python; None if only its recorder can."""
    if fast is None:
        return None
    recorder, backend = executable.recorder, stream._backend
    found = recorder.launch_function(executable.value, stream.native)
    if found is None:
        return None
    latest = current = context = 0
    match found.guard:
        case SameStream(latest):
            pass
        case SameContext(current, context):
            pass
    handles = recorder.handle_int(executable.value), backend.handle_int(stream.native)
    conditions = latest, current, context, found.capturing
    launch: Launch = fast.Launch(
        found.address, *handles, executable, found.failed, executable.lock, *conditions
    )
    return launch
