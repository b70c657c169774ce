"""How long a graph takes, as plain data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..backends.base import GraphEdge
from .description import Label
from .text import count

UNCERTAIN = 20.0
"""Below so many microseconds, the time of a label says little: each event takes some of it."""

_SLOWER = 1.05
"""By how much events may slow a graph down before the table says so."""


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
        """
        profile = cls(backend, device, nodes, tuple(times))
        if not spans:
            why = why_not or "the runtime does not tell the times of events inside a graph"
            return profile._replace(notes=(f"No times by label: {why}.",))
        (origin, end), *found = _medians(spans)
        parents = list(_parents(labels))
        inside: list[list[tuple[float, float]]] = [[] for _ in labels]
        for span, parent in zip(found, parents, strict=True):
            if parent is not None:
                inside[parent].append(span)
        timed = tuple(
            LabelTime(label, begin - origin, end - begin, end - begin - _covered(inner))
            for label, (begin, end), inner in zip(labels, found, inside, strict=True)
        )
        profile = profile._replace(labels=timed, with_events=end - origin)
        return profile._replace(notes=tuple(_notes(profile, parents, cut)))

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
        nodes = "" if self.nodes is None else f", {count(self.nodes, 'node')}"
        headline = (
            f"graph of {self.backend}, device {self.device}{nodes}: {duration(self.median)} a replay (median "
            f"of {self.replays}; {duration(self.least)} to {duration(self.most)})"
        )
        return "\n".join([headline, *_table(self), *self.notes])


def duration(microseconds: float) -> str:
    """Return a time in a unit that fits."""
    for unit, factor in (("us", 1.0), ("ms", 1e3)):
        if microseconds < 999.5 * factor:
            return f"{microseconds / factor:.3g} {unit}"
    return f"{microseconds / 1e6:.3g} s"


def _table(profile: GraphProfile, most: int = 40) -> Iterator[str]:
    """Yield a row for each label, indented by how deep it is nested, up to a number of rows."""
    if profile.with_events is None or profile.unlabelled is None:
        return
    depth: list[int] = []
    rows = [("time", "own", "share", "label")]
    labels = [each.label for each in profile.labels]
    for each, parent in zip(profile.labels[:most], _parents(labels), strict=False):
        depth.append(0 if parent is None else depth[parent] + 1)
        place = f"{os.path.basename(each.label.file)}:{each.label.line}"
        own = duration(each.own) if each.own < each.time else ""
        share = f"{each.time / profile.with_events:.0%}"
        mark = "?" if each.uncertain else ""
        rows.append((duration(each.time) + mark, own, share, f"{'  ' * depth[-1]}{each.label.name}  {place}"))
    rest = profile.unlabelled
    rows.append((duration(rest), "", f"{rest / profile.with_events:.0%}", "[no label]"))
    rows.append((duration(profile.with_events), "", "", "with events at the borders of the labels"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[3]]).rstrip()
    if len(labels) > most:
        yield f"... and {count(len(labels) - most, 'more label')}"


def _notes(profile: GraphProfile, parents: Sequence[int | None], cut: Iterable[GraphEdge]) -> Iterator[str]:
    labels, whole = profile.labels, profile.with_events
    assert whole is not None
    if any(each.uncertain for each in labels):
        yield f"?: below {UNCERTAIN:.0f} us the time is uncertain, since the events at the borders are in it."
    if whole > _SLOWER * profile.median:
        yield (
            f"The events make a replay {whole / profile.median - 1:.0%} slower, so the times of short labels "
            "are too long."
        )
    beside = _overlapping(labels, parents)
    if beside:
        yield f"Labels on parallel branches, whose times overlap: {', '.join(beside)}."
    for edge in cut:
        yield (
            f"An event made node {edge.target} wait for the end of node {edge.source}; without it, their "
            "programmatic dependency lets them overlap."
        )


def _overlapping(labels: Sequence[LabelTime], parents: Sequence[int | None]) -> list[str]:
    """Return the names of labels that were under way while one beside them was."""
    beside: dict[int | None, list[LabelTime]] = {}
    for each, parent in zip(labels, parents, strict=True):
        beside.setdefault(parent, []).append(each)
    found = set()
    for siblings in beside.values():
        latest: LabelTime | None = None
        for each in sorted(siblings, key=lambda each: each.begin):
            if latest is not None and each.begin < latest.end and each.time > 0:
                found |= {latest, each}
            if latest is None or each.end > latest.end:
                latest = each
    return list(dict.fromkeys(each.label.name for each in labels if each in found))


def _parents(labels: Sequence[Label]) -> Iterator[int | None]:
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
