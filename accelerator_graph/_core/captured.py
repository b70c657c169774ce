"""A graph that was captured."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .ownership import Owned

if TYPE_CHECKING:
    from .capture_plan import CaptureMode
    from .captured_events import CapturedEvents
    from .marks import LabelledRange


class Captured(Owned):
    """A graph that was captured."""

    __slots__ = ("events", "labels", "mode")

    is_lent: ClassVar[bool] = False
    """The graph is another one's, which lives as long as this."""
    events: CapturedEvents | None
    labels: tuple[LabelledRange, ...]
    mode: CaptureMode

    def act(self) -> None:
        """Destroy the graph."""
        self.recorder.destroy_graph(self.value)
