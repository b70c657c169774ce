"""How much memory graphs take: one graph, and all together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..backends.base import DeviceMemory
from .amounts import MeasuredGraph, MemoryAmount, PoolMemory


class GraphMemory(MeasuredGraph):
    """How much memory a graph takes. ``str()`` is a table for a terminal."""

    __slots__ = ()

    def to_json(self, indent: int | None = None) -> str:
        """Return this as JSON, which `from_json` reads."""
        from .memory_json import graph_to_json

        return graph_to_json(self, indent)

    @classmethod
    def from_json(cls, text: str) -> GraphMemory:
        """Read what `to_json` has written. Raises ValueError if the text is something else."""
        from .memory_json import graph_from_json

        return graph_from_json(text, cls)

    def __str__(self) -> str:
        from .text import graph_table

        return graph_table(self)


class MemoryReport(NamedTuple):
    """How much memory graphs take together. ``str()`` is a table for a terminal."""

    graphs: tuple[GraphMemory, ...]
    """Biggest first."""
    devices: tuple[tuple[str, int, DeviceMemory], ...]
    """For each device of the graphs, by backend and ordinal, what its driver tells."""

    @property
    def pools(self) -> tuple[PoolMemory, ...]:
        """The pools of the graphs, each once."""
        return tuple({_key(each.pool): each.pool for each in self.graphs}.values())

    @property
    def on_devices(self) -> int:
        """The sum of what is known on the devices: all executables, and each pool once."""
        return known([*(each.executable for each in self.graphs), *(each.held for each in self.pools)])

    @property
    def on_host(self) -> int:
        """The sum of what is known on the host: executables and definitions."""
        return known([part for each in self.graphs for part in (each.executable_host, each.definition)])

    def freed_without(self, graph: MeasuredGraph) -> int | None:
        """Return how many bytes of its pool no other graph uses; None if that is not known.

        A set of graphs without this one needs that much less. As long as another graph of the pool lives, the
        memory stays in the pool even if this graph is reset.
        """
        sharing = [each for each in self.graphs if _key(each.pool) == _key(graph.pool)]
        if len(sharing) != graph.pool.graphs or any(each.touched_segments is None for each in sharing):
            return None
        others = {at for each in sharing if each is not graph for at in each.touched_segments or ()}
        own = {*(graph.touched_segments or ())} - others
        return sum(segment.nbytes for segment in graph.pool.segments if segment.address in own)

    def to_json(self, indent: int | None = None) -> str:
        """Return the report as JSON, which `from_json` reads."""
        from .memory_json import report_to_json

        return report_to_json(self, indent)

    @classmethod
    def from_json(cls, text: str) -> MemoryReport:
        """Read what `to_json` has written. Raises ValueError if the text is something else."""
        from .memory_json import report_from_json

        return report_from_json(text, GraphMemory, cls)

    def __str__(self) -> str:
        from .text import report_table

        return report_table(self)


def known(amounts: Sequence[MemoryAmount]) -> int:
    """Return the sum of the amounts that are known."""
    return sum(each.nbytes or 0 for each in amounts)


def _key(pool: PoolMemory) -> tuple[str, int, tuple[int, int]]:
    return pool.backend, pool.device, pool.id
