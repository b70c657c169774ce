"""The warning for a capture that has recorded nothing."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from .call_site import outside

if TYPE_CHECKING:
    from ..backends.base import Backend


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
