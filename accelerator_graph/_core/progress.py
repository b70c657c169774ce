"""Markers that a graph writes at the borders of its labels, so that the host sees how far a replay is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backends.base import Capability, unsupported
from ..errors import AcceleratorGraphError, UnsupportedError

if TYPE_CHECKING:
    from ..backends.base import Backend

_kept: list[object] = []
"""Memory that replays may still write, even of graphs that are gone. A few bytes for each marker."""


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
    """The markers of one graph. Each is a copy of four bytes of host memory, in the order of the work."""

    __slots__ = ("_cell", "_places")

    def __init__(self) -> None:
        self._cell = bytearray(4)
        self._places: list[Place] = [Place("not begun")]
        _kept.append(self._cell)

    @staticmethod
    def check(backend: Backend, device: int) -> None:
        """Raise `UnsupportedError` if the backend enqueues no copies."""
        if Capability.ENQUEUE not in backend.capabilities(device):
            raise unsupported(backend, Capability.ENQUEUE)

    def begin(self, backend: Backend, stream: Any, counted: int | None) -> None:
        """Record the marker for the begin of a run, into a capture with so many nodes."""
        if counted is None:
            fact = "can't count the nodes of a capture, so it has no labels to mark"
            raise _refused(backend, fact)
        try:
            self._record(backend, stream, Place("running"))
        except (TypeError, ValueError, UnsupportedError) as error:
            raise _refused(backend, f"can't copy host memory in a graph ({error})") from error

    def enter(self, backend: Backend, stream: Any, labels: Sequence[str]) -> None:
        """Record the marker for a border: from here on, the run is in these labels."""
        with suppress(AcceleratorGraphError):  # a capture that is broken says so at its end
            self._record(backend, stream, Place("running", tuple(labels)))

    def end(self, backend: Backend, stream: Any) -> None:
        """Record the marker for the end of a run."""
        with suppress(AcceleratorGraphError):
            self._record(backend, stream, Place("ended"))

    def _record(self, backend: Backend, stream: Any, place: Place) -> None:
        number = len(self._places).to_bytes(len(self._cell), "little")
        backend.copy(stream, self._cell, number, None)
        _kept.append(number)
        self._places.append(place)

    def place(self) -> Place:
        """Return how far the latest run has come. Asks neither the device nor the driver."""
        return self._places[int.from_bytes(self._cell, "little")]


def _refused(backend: Backend, fact: str) -> UnsupportedError:
    return UnsupportedError(
        f"progress=True: backend {backend.name!r} {fact}; capture without progress.",
        capability=str(Capability.ENQUEUE),
    )
