"""Events that a capture records at the borders of its labels, so that a graph without a copy can be timed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..backends.base import Backend, Capability, GraphContents, unsupported
from ..errors import AcceleratorGraphError, UnsupportedError
from .event_times import Span, times_within
from .streams import Event, OwnedEvent

if TYPE_CHECKING:
    from .marks import LabelledRange, Mark

_SLOWER = "The events at the borders of labels are a part of the graph, and of the time of every replay."


class CapturedEvents:
    """The events of one graph. They stand on the captured stream, in the order of its work.

    Raises
    ------
    UnsupportedError
        The backend can't record timed events in a capture.
    """

    __slots__ = ("_backend", "_borders", "_native", "failure", "owned")

    def __init__(self, backend: Backend, native: Any, device: int) -> None:
        if Capability.CAPTURED_EVENTS not in backend.capabilities(device):
            raise unsupported(backend, Capability.CAPTURED_EVENTS)
        self._backend = backend
        self._native = native
        self.owned: list[OwnedEvent] = []
        self.failure: AcceleratorGraphError | None = None
        """Why an event could not be recorded, if the capture became a graph all the same."""
        self._borders: list[tuple[int, int]] = []

    def begin(self, recorded: int | None) -> None:
        """Record the event at the begin of the graph, which has so many nodes as yet."""
        if recorded is None:
            raise UnsupportedError(
                f"timing=True: backend {self._backend.name!r} can't count the nodes of a capture, so it "
                "has no labels to time; capture without timing.",
                capability=str(Capability.CAPTURED_EVENTS),
            )
        self._record()

    def record(self) -> int | None:
        """Record an event for a border and return its number; None if that fails."""
        try:
            return self._record()
        except AcceleratorGraphError as error:  # a capture that is broken says so at its end
            self.failure = error
            return None

    def end(self) -> Sequence[OwnedEvent]:
        """Record the event at the end of the graph and return all, which the graph has to keep."""
        self.record()
        return self.owned

    def _record(self) -> int:
        event = self._backend.record_timed_event(self._native)
        self.owned.append(OwnedEvent(self._backend, self._backend, event))
        return len(self.owned) - 1

    def stand_at(self, marks: Iterable[Mark]) -> None:
        """Take over where the graph's labels begin and end. A label that was not left ends with the graph."""
        last = len(self.owned) - 1
        self._borders = [
            (0 if mark.begin is None else mark.begin, last if mark.end is None else mark.end)
            for mark in marks
        ]

    def spans(self, start: Event, end: Event) -> list[Span] | None:
        """Return the spans of the graph and its labels in the run between two events; None if not known."""
        times = times_within(self.owned, start, end)
        if times is None:
            return None
        return [(times[begin], times[stop]) for begin, stop in ((0, -1), *self._borders)]

    def notes(self, labels: Iterable[LabelledRange], contents: GraphContents) -> list[str]:
        """Return what has to be known to read the times, in sentences."""
        outside = [name for name, start, stop, *_ in labels if _leaves_out(start - 1, stop, contents)]
        if not outside:
            return [_SLOWER]
        names = ", ".join(dict.fromkeys(outside))
        return [
            _SLOWER,
            f"Work on streams that are not joined inside the label is not in the time of: {names}.",
        ]


def _leaves_out(begin: int, end: int, contents: GraphContents) -> bool:
    """Return True if a node between two events does not follow the first or is not followed by the second."""
    _, edges = contents
    inside = [edge for edge in edges if begin <= edge.source and edge.target <= end]
    after, before = {begin}, {end}
    for edge in sorted(inside, key=lambda edge: edge.target):
        if edge.source in after:
            after.add(edge.target)
    for edge in sorted(inside, key=lambda edge: edge.source, reverse=True):
        if edge.target in before:
            before.add(edge.source)
    return not set(range(begin, end + 1)) <= after & before
