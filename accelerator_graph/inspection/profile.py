"""How long a graph takes, as plain data."""

from __future__ import annotations

from typing import NamedTuple


class GraphProfile(NamedTuple):
    """How long the replays of a graph took, as the device's events have it. ``str()`` is one line."""

    backend: str
    """Name of the backend."""
    device: int
    """Ordinal of the device."""
    nodes: int | None
    """How many nodes the graph has; None if the backend does not tell."""
    times: tuple[float, ...]
    """The time of each replay in microseconds, in their order."""

    @property
    def replays(self) -> int:
        """How many replays were timed."""
        return len(self.times)

    @property
    def median(self) -> float:
        """The median of the times in microseconds."""
        from statistics import median  # takes longer to import than all of this package

        return median(self.times)

    @property
    def least(self) -> float:
        """The least of the times in microseconds."""
        return min(self.times)

    @property
    def most(self) -> float:
        """The greatest of the times in microseconds."""
        return max(self.times)

    def __str__(self) -> str:
        from .text import count

        nodes = "" if self.nodes is None else f", {count(self.nodes, 'node')}"
        return (
            f"graph of {self.backend}, device {self.device}{nodes}: {_time(self.median)} a replay (median of "
            f"{self.replays}; {_time(self.least)} to {_time(self.most)})"
        )


def _time(microseconds: float) -> str:
    """Return a time in a unit that fits."""
    for unit, factor in (("us", 1.0), ("ms", 1e3)):
        if microseconds < 1000 * factor:
            return f"{microseconds / factor:.3g} {unit}"
    return f"{microseconds / 1e6:.3g} s"
