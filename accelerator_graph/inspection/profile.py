"""How long a graph takes, as plain data; and as a trace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..backends.base import GraphEdge, GraphNode
from .contents import Label
from .names import short_name
from .timings import KernelTime, LabelTime, PartTime, covered, median_of, parents


class GraphProfile(NamedTuple):
    """How long the replays of a graph took, as the device's events have it. ``str()`` is a table."""

    backend: str
    """Name of the backend."""
    device: int
    """Ordinal of the device."""
    nodes: int | None
    """`Graph.num_nodes`; None if the backend can't count."""
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
    parts: tuple[PartTime, ...] = ()
    """The segments and eager calls of a graph with breaks, in order; the median of the replays."""
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
        from .text import notes

        profile = cls(backend, device, nodes, tuple(times))
        if not spans:
            why = why_not or "the runtime does not report the times of events inside a graph"
            return profile._replace(notes=(f"No times by label: {why}.",))
        (origin, end), *found = _medians(spans)
        around = list(parents(labels))
        inside: list[list[tuple[float, float]]] = [[] for _ in labels]
        for span, parent in zip(found, around, strict=True):
            if parent is not None:
                inside[parent].append(span)
        timed = tuple(
            LabelTime(label, begin - origin, end - begin, end - begin - covered(inner))
            for label, (begin, end), inner in zip(labels, found, inside, strict=True)
        )
        profile = profile._replace(labels=timed, with_events=end - origin)
        return profile._replace(notes=tuple(notes(profile, cut)))

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
                begin, end = (median_of(each) for each in zip(*spans, strict=True))
                found.append(KernelTime(node, begin, end - begin))
        return self._replace(kernels=tuple(found))

    def to_trace(self) -> str:
        """Return the text of a file in Chrome's trace format, which Perfetto opens.

        It is an object with ``traceEvents``. A complete event (``"ph": "X"``) has a name, its beginning
        ``ts`` and duration ``dur`` in microseconds, and a place ``pid`` and ``tid``. Events at one place are
        nested.
        """
        return json.dumps({"displayTimeUnit": "ns", "traceEvents": list(_events(self))}, indent=1)

    def __str__(self) -> str:
        from .text import profile_table

        return profile_table(self)


def _medians(spans: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Return the median beginning and end of each part, since the first began."""
    parts = [[(begin - replay[0][0], end - replay[0][0]) for begin, end in replay] for replay in spans]
    return [
        (median_of([begin for begin, _ in part]), median_of([end for _, end in part]))
        for part in zip(*parts, strict=True)
    ]


# ---- the trace ------------------------------------------------------------------------------------


class Slice(NamedTuple):
    """A named span of time."""

    name: str
    begin: float
    end: float
    details: dict[str, Any]
    around: tuple[Slice, ...] = ()
    """The slices that it is a part of."""


def _events(profile: GraphProfile) -> Iterator[dict[str, Any]]:
    title = f"graph of {profile.backend}, device {profile.device}"
    found = {
        "labels": _slices(profile),
        "kernels, under a profiler": _kernels(profile),
        "segments and calls": _parts(profile),
    }
    for group, (what, slices) in enumerate(found.items(), 1):
        if slices:
            yield _named_place("process_name", group, 0, f"{title}: {what}")
        for lane, inside in enumerate(_lanes(slices), 1):
            yield _named_place("thread_name", group, lane, "branch")
            for each in inside:
                yield {
                    "name": each.name,
                    "ph": "X",
                    "ts": each.begin,
                    "dur": each.end - each.begin,
                    "pid": group,
                    "tid": lane,
                    "args": each.details,
                }


def _slices(profile: GraphProfile) -> list[Slice]:
    """Return what is to be drawn, the outer ones before those inside."""
    whole = profile.median if profile.with_events is None else profile.with_events
    replay = Slice("replay", 0.0, whole, {"without events (us)": profile.median, "notes": profile.notes})
    found = [replay]
    labels = [each.label for each in profile.labels]
    for each, label, parent in zip(profile.labels, labels, parents(labels), strict=True):
        outer = replay if parent is None else found[1 + parent]
        details = {
            "nodes": f"{label.start} to {label.stop - 1}",
            "source": f"{label.file}:{label.line}",
            "own (us)": each.own,
            "uncertain": each.uncertain,
        }
        found.append(Slice(label.name, each.begin, each.end, details, (*outer.around, outer)))
    return found


def _kernels(profile: GraphProfile) -> list[Slice]:
    return [
        Slice(
            short_name(each.node.demangled or each.node.name) or each.node.kind,
            each.begin,
            each.begin + each.time,
            {"node": each.node.id, "function": each.node.name},
        )
        for each in profile.kernels
    ]


def _parts(profile: GraphProfile) -> list[Slice]:
    return [
        Slice(
            each.name,
            each.begin,
            each.begin + each.time,
            {
                "nodes": each.nodes,
                "source": f"{each.file}:{each.line}" if each.is_call else "",
                "host (us)": each.host,
            },
        )
        for each in profile.parts
    ]


def _lanes(slices: list[Slice]) -> list[list[Slice]]:
    """Distribute slices so that each is apart from the others in its lane, or a part of them."""
    lanes: list[tuple[list[Slice], list[Slice]]] = []  # each with the slices in it that are under way
    for each in sorted(slices, key=lambda each: (each.begin, len(each.around))):
        place = next((lane for lane in lanes if _fits(each, lane[1])), None)
        if place is None:
            place = [], []
            lanes.append(place)
        for members in place:
            members.append(each)
    return [members for members, _ in lanes]


def _fits(each: Slice, under_way: list[Slice]) -> bool:
    while under_way and under_way[-1].end <= each.begin:
        under_way.pop()
    return not under_way or any(outer is under_way[-1] for outer in each.around)


def _named_place(kind: str, group: int, lane: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": group, "tid": lane, "args": {"name": name}}
