"""The fast path: replays through C, where the extension was built and a backend has a function for it.

Without it everything works, through the callables of `_replay` alone.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._fast import Launch
    from ._lifetime import Owned
    from .streams import Stream

SWITCH = "ACCELERATOR_GRAPH_PURE_PYTHON"


def _extension() -> Any:
    if os.environ.get(SWITCH, "").strip() not in ("", "0"):
        return None
    try:
        import accelerator_graph._fast as extension
    except ImportError:
        return None
    return extension


fast = _extension()
"""The extension; None if it was not built, or is switched off."""

new_lock = threading.RLock if fast is None else fast.Lock
"""Makes the lock of an executable."""


def launch_of(owner: Owned, stream: Stream) -> Launch | None:
    """Return what launches an executable on a stream without Python; None if only its backend can."""
    if fast is None:
        return None
    backend = owner.backend
    found = backend.launch_function(owner.value, stream.native)
    if found is None:
        return None
    handles = backend.handle_int(owner.value), backend.handle_int(stream.native)
    if not found.alone:
        where = {"current": found.current, "context": found.context}
        launch: Launch = fast.Launch(found.address, *handles, owner, found.failed, **where)
        return launch
    here, theirs = stream._owner, found.ready

    def ready() -> bool:
        return owner.last is here and (theirs is None or theirs())

    alone: Launch = fast.Launch(found.address, *handles, owner, found.failed, owner.lock, ready)
    return alone
