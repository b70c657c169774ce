"""The one slot of a capture for whatever watches it; `accelerator_graph.diagnosis` fills it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..errors import CaptureError


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
