"""How long a graph takes, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..backends.base import GraphEdge, GraphNode
from .description import Label

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


class GraphProfile(NamedTuple):
    """How long the replays of a graph took, as the device's events have it. ``str()`` is a table."""

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
    """What has to be known to read the times, in sentences."""

    @classmethod
    def of(
        cls,
        backend: str,
        device: int,
        nodes: int | None,
        times: Iterable[float],
        labels: Sequence[Label] = (),
        spans: Sequence[Sequence[tuple[float, float]]] = (),
        cut: Iterable[GraphEdge] = (),
        why_not: str = "",
        known: Iterable[str] = (),
    ) -> GraphProfile:
        """Make the profile of what was measured.

        Parameters
        ----------
        backend, device, nodes, times
            As the attributes.
        labels : sequence of Label
            Those whose times are known.
        spans : sequence
            By replay: when the whole graph, and then each label, began and ended.
        cut : iterable of GraphEdge
            Programmatic dependencies that were ordinary ones while `spans` were measured.
        why_not : str
            Why the times of labels are not known.
        known : iterable of str
            Sentences for `notes`.
        """
        from .profile_text import notes

        profile = cls(backend, device, nodes, tuple(times))
        if not spans:
            why = why_not or "the runtime does not tell the times of events inside a graph"
            return profile._replace(notes=(f"No times by label: {why}.",))
        (origin, end), *found = _medians(spans)
        around = list(parents(labels))
        inside: list[list[tuple[float, float]]] = [[] for _ in labels]
        for span, parent in zip(found, around, strict=True):
            if parent is not None:
                inside[parent].append(span)
        timed = tuple(
            LabelTime(label, begin - origin, end - begin, end - begin - _covered(inner))
            for label, (begin, end), inner in zip(labels, found, inside, strict=True)
        )
        profile = profile._replace(labels=timed, with_events=end - origin)
        return profile._replace(notes=(*notes(profile, cut), *known))

    def with_kernels(
        self, nodes: Sequence[GraphNode], seen: Sequence[Mapping[int, tuple[float, float]]]
    ) -> GraphProfile:
        """Return the profile with the times of single nodes.

        Parameters
        ----------
        nodes : sequence of GraphNode
            The graph's.
        seen : sequence of dict
            By replay: when the nodes began and ended, by their number.
        """
        found = []
        for node in nodes:
            spans = [run[node.id] for run in seen if node.id in run]
            if spans:
                begin, end = (_median(each) for each in zip(*spans, strict=True))
                found.append(KernelTime(node, begin, end - begin))
        return self._replace(kernels=tuple(found))

    @property
    def replays(self) -> int:
        """How many replays were timed."""
        return len(self.times)

    @property
    def median(self) -> float:
        """The median of the times in microseconds."""
        return _median(self.times)

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
        return self.with_events - _covered((each.begin, each.end) for each in self.labels)

    def to_trace(self) -> str:
        """Return the text of a file in Chrome's trace format, which Perfetto opens."""
        from .trace import to_trace

        return to_trace(self)

    def __str__(self) -> str:
        from .profile_text import text

        return text(self)


def parents(labels: Sequence[Label]) -> Iterator[int | None]:
    """Yield, for each label, the index of the innermost label before it that it lies within."""
    open_: list[int] = []
    for index, label in enumerate(labels):
        while open_ and not labels[open_[-1]].start <= label.start <= label.stop <= labels[open_[-1]].stop:
            open_.pop()
        yield open_[-1] if open_ else None
        open_.append(index)


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the time in which at least one of some spans was under way."""
    covered, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return covered


def _medians(spans: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Return the median beginning and end of each part, since the whole began."""
    parts = [[(begin - replay[0][0], end - replay[0][0]) for begin, end in replay] for replay in spans]
    return [
        (_median([begin for begin, _ in part]), _median([end for _, end in part]))
        for part in zip(*parts, strict=True)
    ]


def _median(values: Sequence[float]) -> float:
    from statistics import median  # takes longer to import than all of this package

    return median(values)
