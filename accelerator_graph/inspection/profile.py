"""How long a graph takes, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..backends.base import GraphEdge, GraphNode
from .contents import Label
from .timings import KernelTime, LabelTime, ProfiledGraph, covered, median_of, parents


class GraphProfile(ProfiledGraph):
    """How long the replays of a graph took, as the device's events have it. ``str()`` is a table."""

    __slots__ = ()

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
            why = why_not or "the runtime does not tell the times of events inside a graph"
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
        """Return the text of a file in Chrome's trace format, which Perfetto opens."""
        from .trace import to_trace

        return to_trace(self)

    def __str__(self) -> str:
        from .text import profile_table

        return profile_table(self)


def _medians(spans: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Return the median beginning and end of each part, since the whole began."""
    parts = [[(begin - replay[0][0], end - replay[0][0]) for begin, end in replay] for replay in spans]
    return [
        (median_of([begin for begin, _ in part]), median_of([end for _, end in part]))
        for part in zip(*parts, strict=True)
    ]
