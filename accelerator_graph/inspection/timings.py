"""The fields of a graph's profile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..backends.base import GraphNode
from .contents import Label

UNCERTAIN = 20.0
"""Below so many microseconds, the time of a label says little: each event takes some of it."""


class LabelTime(NamedTuple):
    """How long a labelled part of a graph took: from its first node's start to its last node's end."""

    label: Label
    begin: float
    """When it began, in microseconds since the graph began."""
    time: float
    """How long it took in microseconds, with the labels inside it and whatever ran on other branches."""
    own: float
    """The part of `time` in which no label inside it was under way."""

    @property
    def end(self) -> float:
        """When it ended, in microseconds since the graph began."""
        return self.begin + self.time

    @property
    def uncertain(self) -> bool:
        """True if it is so short that the events at its borders are a good part of its time."""
        return self.time < UNCERTAIN


class KernelTime(NamedTuple):
    """When a kernel, a copy or a fill ran, as the vendor's profiler has seen it."""

    node: GraphNode
    begin: float
    """In microseconds since the first of them began."""
    time: float
    """In microseconds."""


class ProfiledGraph(NamedTuple):
    """The fields of a `GraphProfile`."""

    backend: str
    """Name of the backend."""
    device: int
    """Ordinal of the device."""
    nodes: int | None
    """How many nodes the graph has; None if the backend does not tell."""
    times: tuple[float, ...]
    """The time of each replay in microseconds, in their order."""
    labels: tuple[LabelTime, ...] = ()
    """The labels in the order in which they began, measured on a copy of the graph with events between its
    nodes. The median of the replays. Empty if they can't be known: `notes` says why."""
    with_events: float | None = None
    """How long a replay of that copy took in microseconds, from its first node's start to its last node's
    end: to be compared with `median`."""
    kernels: tuple[KernelTime, ...] = ()
    """The kernels, copies and fills, in the order of recording; the median of the replays. They ran under the
    vendor's profiler. Empty unless they were asked for."""
    notes: tuple[str, ...] = ()
    """Remarks that are needed to read the times, in sentences."""

    @property
    def replays(self) -> int:
        """How many replays were timed."""
        return len(self.times)

    @property
    def median(self) -> float:
        """The median of the times in microseconds."""
        return median_of(self.times)

    @property
    def least(self) -> float:
        """The least of the times in microseconds."""
        return min(self.times)

    @property
    def most(self) -> float:
        """The greatest of the times in microseconds."""
        return max(self.times)

    @property
    def unlabelled(self) -> float | None:
        """The part of `with_events` in which no label was under way, in microseconds; None without labels."""
        if self.with_events is None:
            return None
        return self.with_events - covered((each.begin, each.end) for each in self.labels)


def parents(labels: Sequence[Label]) -> Iterator[int | None]:
    """Yield, for each label, the index of the innermost label before it that it lies within."""
    open_: list[int] = []
    for index, label in enumerate(labels):
        while open_ and not labels[open_[-1]].start <= label.start <= label.stop <= labels[open_[-1]].stop:
            open_.pop()
        yield open_[-1] if open_ else None
        open_.append(index)


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the time in which at least one of some spans was under way."""
    covered, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return covered


def median_of(values: Sequence[float]) -> float:
    """Return the median."""
    from statistics import median  # takes longer to import than all of this package

    return median(values)
