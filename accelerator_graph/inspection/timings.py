"""Times of labels and of kernels."""

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


class PartTime(NamedTuple):
    """How long a segment of a graph with breaks took, or an eager call between two segments."""

    name: str
    """``"segment 1"`` and so on, or the name of the function."""
    nodes: int | None
    """How many nodes the segment has, if that is known; None for a call."""
    file: str
    line: int
    """Where the call was made in the capture; empty and 0 for a segment."""
    begin: float
    """When it began on the stream, in microseconds since the replay began."""
    time: float
    """How long it took in microseconds, until the stream had done it: a call with the time that the stream
    waited for the host."""
    host: float
    """How long the host took in microseconds: for the call, or to launch the segment."""

    @property
    def is_call(self) -> bool:
        """True for an eager call."""
        return bool(self.line)


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
