"""Markers that a graph writes at the borders of its labels, so that the host sees how far a replay is."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from ..backends.base import Capability
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


class Progress:
    """The markers of one graph. Each is a fill of host memory with its number, in the order of the work.

    Raises
    ------
    UnsupportedError
        The backend has no memory of the host that a graph can write.
    """

    __slots__ = ("_address", "_places", "nodes")

    def __init__(self, backend: Backend, stream: Any) -> None:
        if Capability.PROGRESS not in backend.capabilities(backend.device_of(stream)):
            raise _refused(backend, "has no memory of the host that a graph can write")
        self._address = _new_cell(backend, stream)
        self._places: list[Place] = [Place("not begun")]
        self.nodes = 0
        """How many nodes the markers are."""

    def begin(self, backend: Backend, stream: Any, counted: int | None) -> None:
        """Record the marker for the begin of a run, into a capture with so many nodes."""
        if counted is None:
            raise _refused(backend, "can't count the nodes of a capture, so it has no labels to mark")
        self._record(backend, stream, Place("running"))

    def enter(self, backend: Backend, stream: Any, labels: Sequence[str]) -> None:
        """Record the marker for a border: from here on, the run is in these labels."""
        with suppress(AcceleratorGraphError):  # a capture that is broken says so at its end
            self._record(backend, stream, Place("running", tuple(labels)))

    def end(self, backend: Backend, stream: Any) -> None:
        """Record the marker for the end of a run."""
        with suppress(AcceleratorGraphError):
            self._record(backend, stream, Place("ended"))

    def _record(self, backend: Backend, stream: Any, place: Place) -> None:
        number = len(self._places)
        if number == _MOST_PLACES - 1 and place.state != "ended":
            return  # the last number is for the end
        for i in reversed(range(_CELL)):
            byte = number >> 8 * i & 0xFF
            if i == 0 or number - 1 >> 8 * i & 0xFF != byte or number == 1:
                backend.fill(stream, self._address + i, byte, 1)
                self.nodes += 1
        self._places.append(place)

    def place(self) -> Place:
        """Return how far the latest run has come. Asks neither the device nor the driver."""
        number = int.from_bytes(ctypes.string_at(self._address, _CELL), "little")
        return self._places[min(number, len(self._places) - 1)]  # the bytes are written one by one


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
        f"progress=True: backend {backend.name!r} {fact}; capture without progress.",
        capability=str(Capability.PROGRESS),
    )
