"""Markers that a graph writes at the borders of its labels, so that the host sees how far a replay is."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from .._core.capture import Capture
from .._core.graph import BaseGraph
from .._core.observers import Observer
from ..backends.base import Capability, GraphNode
from ..errors import AcceleratorGraphError, UnsupportedError

if TYPE_CHECKING:
    from ..backends.base import AnyBackend as Backend

_BLOCK = 4096
_CELL = 2
_MOST_PLACES = 1 << 8 * _CELL

_cells: WeakKeyDictionary[Backend, Iterator[int]] = WeakKeyDictionary()
"""By backend: addresses that no graph uses. They are not used again, since replays outlive their graphs."""


class Place(NamedTuple):
    """How far a replay has come."""

    state: str
    """``"not begun"``, ``"running"`` or ``"ended"``; of the latest run that has begun."""
    labels: tuple[str, ...] = ()
    """The labels that the run is in, the outermost first; none before, between and after labels."""

    def __str__(self) -> str:
        if self.state != "running":
            return "no run has begun" if self.state == "not begun" else "the last run has ended"
        return f"in {' / '.join(self.labels)!r}" if self.labels else "in no label"


class progress(Observer):
    """Mark the borders of labels in memory of the host: `Graph(observe=progress())`.

    A `watchdog` can then say in which `label` a replay is. Each border is a fill of one or two bytes in the
    graph. Needs a backend that can count the nodes of a capture and has memory of the host that a graph can
    write; otherwise the capture raises `UnsupportedError`.

    Examples
    --------
    ::

        with ag.Graph(observe=ag.progress()) as graph, ag.label("attention"):
            attention(x)
        graph.replay()
        with ag.watchdog(graph, seconds=60):
            graph.stream.synchronize()
    """

    __slots__ = ()

    def begin(self, capture: Any) -> object | None:
        """Return the markers of a capture, unless another observer records some."""
        if any(isinstance(each, Markers) for each in capture.observations):
            return None
        return Markers(capture)


def markers_of(graph: BaseGraph) -> Markers | MarkersOfSegments | None:
    """Return the markers of the graph's work; None if nobody observed its progress, or it is empty."""
    runner = graph._runner  # another thread may reset the graph
    found = [each for each in (runner.observations if runner else ()) if isinstance(each, Markers)]
    if runner is not None and len(found) > 1:
        return MarkersOfSegments(found, lambda: runner.under_way)
    return found[0] if found else None


class Markers:
    """The markers of one graph. Each is a fill of host memory with its number, in the order of the work.

    Raises
    ------
    UnsupportedError
        The backend has no memory of the host that a graph can write.
    """

    __slots__ = ("_address", "_capture", "_places", "own_nodes")

    def __init__(self, capture: Any) -> None:
        backend = capture.backend
        if Capability.PROGRESS not in backend.capabilities(capture.stream.device):
            raise _refused(backend, "has no memory of the host that a graph can write")
        self._capture: Capture | None = capture
        self._address = _new_cell(backend, capture.native)
        self._places: list[Place] = [Place("not begun")]
        self.own_nodes: int = 0
        """How many nodes the markers are."""

    def begun(self) -> None:
        """Record the marker for the begin of a run."""
        assert self._capture is not None
        if self._capture.recorded() is None:
            fact = "can't count the nodes of a capture, so it has no labels to mark"
            raise _refused(self._capture.backend, fact)
        self._record(Place("running"))

    def border(self, labels: Sequence[str]) -> None:
        """Record the marker for a border: from here on, the run is in these labels."""
        with suppress(AcceleratorGraphError):  # a capture that is broken says so at its end
            self._record(Place("running", tuple(labels)))

    def end(self) -> None:
        """Record the marker for the end of a run."""
        with suppress(AcceleratorGraphError):
            self._record(Place("ended"))
        self._capture = None

    def hand_on(self) -> Markers:
        """Return these markers, which the work goes on writing in whatever graph."""
        return self

    def own_name(self, node: GraphNode) -> str:
        """Return the name of a node that is one of the markers."""
        mine = node.target is not None and 0 <= node.target - self._address < _CELL
        return "marker of progress" if mine else ""

    def place(self) -> Place:
        """Return how far the latest run has come. Asks neither the device nor the driver."""
        number = int.from_bytes(ctypes.string_at(self._address, _CELL), "little")
        return self._places[min(number, len(self._places) - 1)]  # the bytes are written one by one

    def _record(self, place: Place) -> None:
        number, capture = len(self._places), self._capture
        if capture is None or (number == _MOST_PLACES - 1 and place.state != "ended"):
            return  # the last number is for the end
        for i in reversed(range(_CELL)):
            byte = number >> 8 * i & 0xFF
            if i == 0 or number - 1 >> 8 * i & 0xFF != byte or number == 1:
                capture.backend.fill(capture.native, self._address + i, byte, 1)
                self.own_nodes += 1
        self._places.append(place)


class MarkersOfSegments:
    """The markers of a graph with breaks, or with loops that the host tests."""

    __slots__ = ("_segments", "_under_way")

    def __init__(self, segments: Sequence[Markers], under_way: Callable[[], bool]) -> None:
        self._segments = segments
        self._under_way = under_way

    def place(self) -> Place:
        """Return how far the latest run has come: between two segments, it is in no label."""
        places = [each.place() for each in self._segments]
        running = [each for each in places if each.state == "running"]
        if running:
            return running[0]
        behind = places[-1].state == "not begun" and places[0].state != "not begun"
        return Place("running") if behind or self._under_way() else places[-1]


def _new_cell(backend: Backend, stream: Any) -> int:
    cells = _cells.get(backend)
    cell = None if cells is None else next(cells, None)
    if cell is None:
        address = backend.host_memory(stream, _BLOCK)
        cells = _cells[backend] = iter(range(address, address + _BLOCK, _CELL))
        cell = next(cells)
    return cell


def _refused(backend: Backend, fact: str) -> UnsupportedError:
    return UnsupportedError(
        f"progress(): backend {backend.name!r} {fact}; capture without it.",
        capability=str(Capability.PROGRESS),
    )
