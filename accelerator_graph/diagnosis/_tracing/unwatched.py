"""Threads that trace functions do not reach, since they ran before: before Python 3.12."""

from __future__ import annotations

import sys
import threading

Positions = dict[int, tuple[str, int, int]]
"""By thread: its name, which frame it is in, and at which instruction."""


def positions() -> Positions:
    """Return where the other threads are that run Python code; nothing if they are watched like this one."""
    if sys.version_info >= (3, 12):
        return {}
    names = {each.ident: each.name for each in threading.enumerate()}
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    return {
        ident: (names[ident], id(frame), frame.f_lasti) for ident, frame in frames.items() if ident in names
    }


def moved(before: Positions) -> list[str]:
    """Return the names of the threads that are elsewhere by now, or have ended."""
    now = positions() if before else {}
    return [name for ident, (name, *at) in before.items() if ident not in now or list(now[ident][1:]) != at]
