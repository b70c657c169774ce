"""Pausing the garbage collector while a capture is in progress, and making collections by hand harmless.

The collector can find dead graphs, streams and arrays at any line of the captured code. Destroying them
during a capture invalidates it, or is recorded in it.
"""

from __future__ import annotations

import gc
import threading
from contextlib import ExitStack, suppress

from .._interpreter.process import after_fork
from . import capture_table

_ours = False
"""True if this module has switched the collector off."""
_collecting = False
_lock = threading.RLock()
_thread = threading.local()


def pause() -> None:
    """Switch the collector off, in all threads, until no capture is in progress. Pausing twice does nothing.

    Collections by hand disturb none of the captures in `capture_table.live`.
    """
    global _ours
    with _lock:
        if id(_around) not in map(id, gc.callbacks):  # the other callbacks could compare equal to anything
            gc.callbacks.append(_around)
        if gc.isenabled():
            _ours = True
            gc.disable()


def resume() -> None:
    """End the pause if no capture is in progress any more; the collector is on again if it was before."""
    global _ours
    with _lock:
        if capture_table.live:
            return
        if not _collecting and id(_around) in map(id, gc.callbacks):  # else it has to see the end
            del gc.callbacks[[*map(id, gc.callbacks)].index(id(_around))]
        if _ours:  # even if an interrupt came before this, the last time
            gc.enable()
            _ours = False


def _around(phase: str, info: object) -> None:
    """Relax the collecting thread from the collection's start to its end."""
    global _collecting
    _collecting = phase == "start"
    if _collecting:
        entered = _thread.entered = ExitStack()
        for capture in list(capture_table.live.values()):
            with suppress(Exception):
                entered.enter_context(capture.relaxed())
    else:
        entered = _thread.__dict__.pop("entered", None)
        if entered is not None:
            entered.close()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()
    resume()


after_fork(_after_fork)
