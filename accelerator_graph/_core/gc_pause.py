"""Pausing the garbage collector while a capture is in progress, and making collections by hand harmless.

The collector can find dead graphs, streams and arrays at any line of the captured code. Destroying them
during a capture invalidates it, or is recorded in it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress

from .._interpreter.process import after_fork

_captures: dict[object, Callable[[], AbstractContextManager[object]]] = {}
_ours = False
"""True if this module has switched the collector off."""
_collecting = False
_lock = threading.RLock()
_thread = threading.local()


def pause(capture: object, relaxed: Callable[[], AbstractContextManager[object]]) -> None:
    """Switch the collector off, in all threads, until no capture is in progress. Pausing twice does nothing.

    Parameters
    ----------
    capture : object
        For `resume`.
    relaxed : callable
        Returns a context in which this thread disturbs no capture. Collections by hand run in it.
    """
    global _ours
    with _lock:
        if _around not in gc.callbacks:
            gc.callbacks.append(_around)
        _captures[capture] = relaxed
        if gc.isenabled():
            _ours = True
            gc.disable()


def resume(capture: object) -> None:
    """End the pause of one capture; after the last one the collector is on again if it was before."""
    global _ours
    with _lock:
        _captures.pop(capture, None)
        if _captures:
            return
        if not _collecting:  # else it has to see the end
            with suppress(ValueError):
                gc.callbacks.remove(_around)
        if _ours:  # even if an interrupt came before this, the last time
            gc.enable()
            _ours = False


def _around(phase: str, info: object) -> None:
    """Relax the collecting thread from the collection's start to its end."""
    global _collecting
    _collecting = phase == "start"
    if _collecting:
        entered = _thread.entered = ExitStack()
        for relaxed in list(_captures.values()):
            with suppress(Exception):
                entered.enter_context(relaxed())
    else:
        entered = _thread.__dict__.pop("entered", None)
        if entered is not None:
            entered.close()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()
    for capture in list(_captures):
        resume(capture)


after_fork(_after_fork)
