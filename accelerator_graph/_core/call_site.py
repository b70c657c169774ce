"""Where in the user's code a call came from."""

from __future__ import annotations

import sys
from types import FrameType

Site = tuple[str, int]
"""A file and a line."""


def caller() -> Site:
    """Return the first file and line outside of this package on the stack."""
    frame = sys._getframe(1)
    package = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def outside() -> tuple[int, FrameType]:
    """Return the first frame outside of this package, and the `stacklevel` of the caller's warning for it."""
    level, frame = 1, sys._getframe(1)
    package = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    return level, frame
