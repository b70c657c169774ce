"""The one slot of a capture for whatever watches it; `accelerator_graph.diagnosis` fills it."""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from . import switches

if TYPE_CHECKING:
    from ..errors import CaptureError

VARIABLE = "ACCELERATOR_GRAPH_DIAGNOSE"

diagnosing: ContextVar[bool] = ContextVar("diagnosing", default=False)
"""True inside ``with diagnose():``."""


class Observation(Protocol):
    """Watches one capture, from its begin."""

    def begin(self) -> None:
        """Watch the capture, which has just begun on this thread."""

    def stop(self) -> None:
        """Watch no more. Called on any thread, perhaps twice; does not raise."""

    def explained(self, error: CaptureError, cause: BaseException | None) -> CaptureError:
        """Return the error to raise in the place of `error`. `cause` is what the captured code raised."""

    def succeeded(self) -> None:
        """Warn of what was noticed, after the capture has become a graph."""


def is_forbidden() -> bool:
    """Return True if the environment says that no capture should be watched unless a program asks for it."""
    return os.environ.get(VARIABLE, "").strip() == "0"


def asked_for(given: object) -> bool:
    """Return True if a graph's captures should be watched; None means as the environment says."""
    return switches.is_on(given, "diagnose", VARIABLE)
