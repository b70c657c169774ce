"""Where in the user's code a call came from, and the warnings that are issued there."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..backends.base import AnyBackend as Backend

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


def why_empty(backend: Backend) -> str:
    """Return why a capture on a backend may have recorded nothing, and the way out: a clause."""
    if backend.recording == "explicit":
        return "this backend records only work that is enqueued through accelerator_graph.Stream"
    return (
        "the work may have gone to another stream or device, or have run at once, as ordinary Python and "
        "NumPy do; enqueue it on the captured stream, or capture the stream that it goes to"
    )


def warn_of_nothing(message: str, category: type[Warning]) -> None:
    """Issue a warning for the first line outside of this package."""
    warnings.warn(message, category, stacklevel=outside()[0])
