"""When parts of a graph begin and end: a copy of it that records events at their borders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..backends.base import GraphContents, GraphEdge, GraphNode
from .capture_base import Captured
from .replay import Executable
from .streams import Event, OwnedEvent, Stream

Range = tuple[int, int]
"""The number of a part's first node, and the one after its last."""

Span = tuple[float, float]
"""When a part began and ended, in microseconds since a replay was launched."""

_TOLERANCE = 0.05
"""How far events of a graph may lie outside those around its launch, as a share of the time between these."""


class Borders(NamedTuple):
    """The positions of the events."""

    before: list[int]
    after: list[int]
    begins: list[list[int]]
    ends: list[list[int]]
    """By part: the events of which the first is its beginning, and those of which the last is its end."""
    cut: list[GraphEdge]
    """Programmatic dependencies that the events make ordinary ones."""


def borders(ranges: Sequence[Range], contents: GraphContents) -> Borders:
    """Return where events tell when parts begin and end, without ordering any nodes that are not ordered."""
    nodes, edges = contents
    earlier: list[list[int]] = [[] for _ in nodes]
    later: list[list[int]] = [[] for _ in nodes]
    for edge in edges:
        earlier[edge.target].append(edge.source)
        later[edge.source].append(edge.target)
    # a place is a node, and whether the event is after it
    begins = [
        [
            (earlier[node][0], True) if len(earlier[node]) == 1 else (node, False)
            for node in range(*each)
            if not _any_within(earlier[node], each)
        ]
        for each in ranges
    ]
    ends = [[(node, True) for node in range(*each) if not _any_within(later[node], each)] for each in ranges]
    used = {place for places in (*begins, *ends) for place in places}
    before, after = (sorted(node for node, is_after in used if is_after == side) for side in (False, True))
    places = [*((node, False) for node in before), *((node, True) for node in after)]
    event = {place: index for index, place in enumerate(places)}
    return Borders(
        before,
        after,
        [[event[place] for place in dict.fromkeys(places)] for places in begins],
        [[event[place] for place in places] for places in ends],
        [
            edge
            for edge in edges
            if edge.kind and ((edge.source, True) in used or (edge.target, False) in used)
        ],
    )


def why_not_copied(nodes: Iterable[GraphNode]) -> str:
    """Return why a graph can't be copied; an empty string if nothing is known against it."""
    for node in nodes:
        if node.kind in _NOT_COPIED:
            return f"the graph {_NOT_COPIED[node.kind]} (node {node.id}), and such graphs can't be copied"
        for body in node.bodies:
            why = why_not_copied(body[0])
            if why:
                return why
    return ""


_NOT_COPIED = {
    "mem_alloc": "allocates memory",
    "mem_free": "frees memory",
    "conditional": "has a conditional node",
}


class Sections:
    """An executable that tells when parts of a graph begin and end.

    Parameters
    ----------
    stream : Stream
        Where it runs.
    captured : Captured
        The graph.
    places : Borders
        Where its events stand.
    """

    def __init__(self, stream: Stream, captured: Captured, places: Borders) -> None:
        backend = stream._backend
        value, events = captured.recorder.instantiate_timed(captured.value, places.before, places.after)
        self._events = [OwnedEvent(backend, backend, event) for event in events]
        self._executable = Executable(backend, backend, value, stream._owner, *self._events)
        self._stream = stream
        self._places = places
        self._around: tuple[Event, Event]

    def launch(self) -> None:
        """Enqueue a run, with an event before and after it."""
        start = self._stream.record(timing=True)
        self._stream._backend.replay(self._executable.value, self._stream._native)
        self._around = start, self._stream.record(timing=True)

    def spans(self) -> list[Span] | None:
        """Return the spans of the latest run, once it is over; None if the runtime does not tell them."""
        times = _times_within(self._events, *self._around)
        if times is None:
            return None
        return [
            (min(times[event] for event in begins), max(times[event] for event in ends))
            for begins, ends in zip(self._places.begins, self._places.ends, strict=True)
        ]


def _times_within(events: Sequence[OwnedEvent], start: Event, end: Event) -> list[float] | None:
    """Return the times of a graph's events in microseconds since an event before its launch.

    None if the runtime does not report them, or if one lies outside the run, which `end` is behind.
    """
    began = start._native.value
    found = [event.backend.elapsed_time(began, event.value) for event in events]
    times = [time * 1000 for time in found if time is not None]
    most = start.elapsed_time(end) * 1000
    if len(times) < len(found) or min(times) < -_TOLERANCE * most or max(times) > (1 + _TOLERANCE) * most:
        return None
    return times


def _any_within(nodes: Iterable[int], span: Range) -> bool:
    return any(span[0] <= node < span[1] for node in nodes)
