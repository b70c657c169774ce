"""Amounts of memory: the fields of what a graph and a pool take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ..backends.base import DeviceMemory
from ..interop.base import PoolSegment


class MemoryAmount(NamedTuple):
    """A number of bytes, or the reason why it is not known."""

    nbytes: int | None
    note: str
    """How the number was found and how exact it is. If there is none, why, and what would help."""


class PoolMemory(NamedTuple):
    """A memory pool at the moment when it was asked for."""

    backend: str
    device: int
    id: tuple[int, int]
    """As `Graph.pool` returns it."""
    graphs: int
    """How many live graphs of this process share the pool."""
    held: MemoryAmount
    """The memory that frameworks have got from the driver for the pool."""
    used: MemoryAmount
    """The part of it that live arrays occupy. The graphs may use the rest as well."""
    segments: tuple[PoolSegment, ...] = ()
    """The pieces of which `held` is the sum, in ascending order."""


class MeasuredGraph(NamedTuple):
    """The fields of a `GraphMemory`."""

    name: str
    """The name that `memory_report` was given for it, or empty."""
    backend: str
    device: int
    nodes: int | None
    """How many nodes the graph has; None if the backend does not know."""
    executable: MemoryAmount
    """The memory of the executable on the device."""
    executable_host: MemoryAmount
    """The memory of the executable on the host."""
    definition: MemoryAmount
    """The memory of the kept graph on the host, without the executable; 0 if the graph was not kept."""
    touched: MemoryAmount
    """How much of the pool the graph uses."""
    touched_segments: tuple[int, ...] | None
    """The segments of the pool that the graph uses, by address; None if that is not known."""
    pool: PoolMemory

    @property
    def nbytes(self) -> int:
        """The sum of the known amounts: executable, definition, and the used part of the pool."""
        parts = (self.executable, self.executable_host, self.definition, self.touched)
        return sum(part.nbytes or 0 for part in parts)


class Report(Protocol):
    """What is shown and written of a `MemoryReport`."""

    @property
    def graphs(self) -> Sequence[MeasuredGraph]:
        """The graphs, biggest first."""

    @property
    def devices(self) -> Sequence[tuple[str, int, DeviceMemory]]:
        """Their devices."""

    @property
    def pools(self) -> Sequence[PoolMemory]:
        """Their pools, each once."""

    @property
    def on_devices(self) -> int:
        """The sum of what is known on the devices."""

    @property
    def on_host(self) -> int:
        """The sum of what is known on the host."""

    def freed_without(self, graph: MeasuredGraph) -> int | None:
        """Return how many bytes of its pool no other graph uses; None if that is not known."""
