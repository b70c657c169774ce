"""Captures of streams that share one device and one context."""

from __future__ import annotations

from typing import Any

from accelerator_graph.backends import recording


class Captures(recording.Captures):
    """All captures in progress. Nothing that is refused breaks one: the capture goes on."""

    __slots__ = ()

    def check_join(self, capture: recording.Capture, stream: Any) -> None:
        """Raise an error for a stream of another device or context."""
        origin = capture.origin
        if (stream.context, stream.ordinal) != (origin.context, origin.ordinal):
            raise self.error(
                *("wait_event", "CL_INVALID_CONTEXT", "other"),
                "a graph's streams must share one device and one context; make the other stream with "
                "like= the captured one",
            )
