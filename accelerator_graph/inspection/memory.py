"""How much memory graphs take: one graph, and all together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..backends.base import DeviceMemory
from ..interop.base import PoolSegment
from .serialization import read_record, written

_WHAT = "a report about memory"


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
    """The id of the pool, as `Graph.pool` returns it."""
    graphs: int
    """How many live graphs of this process use the pool."""
    held: MemoryAmount
    """The memory that frameworks have got from the driver for the pool."""
    used: MemoryAmount
    """The part of it that live arrays occupy. The graphs may use the rest as well."""
    segments: tuple[PoolSegment, ...] = ()
    """The pieces of which `held` is the sum, in ascending order."""


class GraphMemory(NamedTuple):
    """How much memory a graph takes. ``str()`` is a table for a terminal."""

    name: str
    """The name that `memory_report` was given for it, or empty."""
    backend: str
    device: int
    nodes: int | None
    """`Graph.num_nodes`; None if the backend can't count."""
    executable: MemoryAmount
    """The memory of the executable on the device."""
    executable_host: MemoryAmount
    """The memory of the executable on the host."""
    definition: MemoryAmount
    """The memory of the kept graph on the host, without the executable; 0 if the graph was not kept."""
    touched: MemoryAmount
    """How much of its pools the graph uses."""
    touched_segments: tuple[int, ...] | None
    """The segments of the pools that the graph uses, by address; None if that is not known."""
    pool: PoolMemory
    """The graph's own pool."""
    results: MemoryAmount = MemoryAmount(0, "the graph makes no eager calls")
    """The arrays that eager calls of a graph with breaks returned in the capture, outside of the pools."""
    inner_pools: tuple[PoolMemory, ...] = ()
    """The pools of the bodies of its loops and branches, and of graphs inside it."""

    @property
    def pools(self) -> tuple[PoolMemory, ...]:
        """All pools that the graph uses, its own first."""
        return self.pool, *self.inner_pools

    @property
    def nbytes(self) -> int:
        """The sum of the known amounts: executable, definition, results, and the used part of the pools."""
        parts = (self.executable, self.executable_host, self.definition, self.touched, self.results)
        return sum(part.nbytes or 0 for part in parts)

    def to_json(self, indent: int | None = None) -> str:
        """Return this as JSON, which `from_json` reads."""
        return written(self, indent)

    @classmethod
    def from_json(cls, text: str) -> GraphMemory:
        """Read what `to_json` has written. Raises ValueError if the text is something else."""
        return read_record(cls, text, _WHAT, "report")

    def __str__(self) -> str:
        from .text import graph_table

        return graph_table(self)


class MemoryReport(NamedTuple):
    """How much memory graphs take together. ``str()`` is a table for a terminal."""

    graphs: tuple[GraphMemory, ...]
    """Biggest first."""
    devices: tuple[tuple[str, int, DeviceMemory], ...]
    """For each device of the graphs, by backend and ordinal, what its driver reports."""

    @property
    def pools(self) -> tuple[PoolMemory, ...]:
        """The pools of the graphs, each once."""
        return tuple({_key(pool): pool for each in self.graphs for pool in each.pools}.values())

    @property
    def on_devices(self) -> int:
        """The sum of what is known on the devices: all executables and results, and each pool once."""
        of_graphs = (part for each in self.graphs for part in (each.executable, each.results))
        return known([*of_graphs, *(each.held for each in self.pools)])

    @property
    def on_host(self) -> int:
        """The sum of what is known on the host: executables and definitions."""
        return known([part for each in self.graphs for part in (each.executable_host, each.definition)])

    def freed_without(self, graph: GraphMemory) -> int | None:
        """Return how many bytes of its pools no other graph uses; None if that is not known.

        A set of graphs without this one needs that much less. As long as another graph of a pool lives, the
        memory stays in the pool even if this graph is reset.
        """
        keys = Counter(_key(pool) for each in self.graphs for pool in each.pools)
        own = {_key(pool): pool.graphs for pool in graph.pools}
        sharing = [each for each in self.graphs if not own.keys().isdisjoint(map(_key, each.pools))]
        complete = all(keys[key] == graphs for key, graphs in own.items())
        if not complete or any(each.touched_segments is None for each in sharing):
            return None
        others = {at for each in sharing if each is not graph for at in each.touched_segments or ()}
        alone = {*(graph.touched_segments or ())} - others
        return sum(each.nbytes for pool in graph.pools for each in pool.segments if each.address in alone)

    def to_json(self, indent: int | None = None) -> str:
        """Return the report as JSON, which `from_json` reads."""
        return written(self, indent)

    @classmethod
    def from_json(cls, text: str) -> MemoryReport:
        """Read what `to_json` has written. Raises ValueError if the text is something else."""
        return read_record(cls, text, _WHAT, "report")

    def __str__(self) -> str:
        from .text import report_table

        return report_table(self)


def known(amounts: Sequence[MemoryAmount]) -> int:
    """Return the sum of the amounts that are known."""
    return sum(each.nbytes or 0 for each in amounts)


def _key(pool: PoolMemory) -> tuple[str, int, tuple[int, int]]:
    return pool.backend, pool.device, pool.id
