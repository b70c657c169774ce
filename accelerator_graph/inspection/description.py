"""What is in a graph, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ..backends.base import GraphContents, GraphEdge, GraphNode
from .contents import Label, all_nodes
from .names import demangled


class GraphDescription(NamedTuple):
    """The contents of a graph at the time when it was described.

    Descriptions are values: they hold nothing of the graph, compare with ``==``, and go to JSON and back
    unchanged. ``str()`` is a table for a terminal.

    Two captures of the same work on the same memory are equal: the id of the pool, the lines that recorded
    the nodes, and the profiler's ids of nodes do not count.
    """

    backend: str
    """Name of the backend that captured it."""
    device: int
    """Ordinal of the device."""
    nodes: tuple[GraphNode, ...]
    """Each comes after those that it depends on; a node's `id` is its index."""
    edges: tuple[GraphEdge, ...]
    """The dependencies, ordered by target and source."""
    labels: tuple[Label, ...] = ()
    """In the order in which they began. If there are labels, the nodes are in the order of recording."""
    mode: str = ""
    """The capture mode that was in force, such as ``"thread_local"``; empty in files of earlier versions."""
    pool: tuple[int, int] | None = None
    """The id of the memory pool, as `Graph.pool` returns it; None in files of earlier versions."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphDescription):
            return NotImplemented
        return self._compared() == other._compared()

    def __ne__(self, other: object) -> bool:  # that of tuples would compare the pools
        return not self == other

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple[object, ...]:
        return tuple(self._replace(pool=None, nodes=tuple(map(_bare, self.nodes))))

    @classmethod
    def of(
        cls,
        backend: str,
        device: int,
        contents: GraphContents,
        labels: Iterable[Label] = (),
        mode: str = "",
        pool: tuple[int, int] | None = None,
    ) -> GraphDescription:
        """Make the description of what a backend has listed."""
        nodes, edges = _ordered(contents)
        return cls(backend, device, tuple(nodes), tuple(edges), tuple(labels), mode, pool)

    def kinds(self) -> dict[str, int]:
        """Return how many nodes of each kind there are, those of child graphs included, most first."""
        return dict(Counter(node.kind for node in all_nodes(self.nodes)).most_common())

    def to_json(self, indent: int | None = None) -> str:
        """Return the description as JSON, which `from_json` reads."""
        from .serialization import to_json

        return to_json(self, indent)

    @classmethod
    def from_json(cls, text: str) -> GraphDescription:
        """Read what `to_json` has written.

        Raises
        ------
        ValueError
            The text is not a description, or was written by a later version of the schema.
        """
        from .serialization import from_json

        return from_json(text, cls)

    def __str__(self) -> str:
        from .text import table

        return table(self)

    def _repr_html_(self) -> str:
        from .drawing import to_html

        return to_html(self)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds().items()) or "no nodes"
        return f"<GraphDescription of a graph of {self.backend!r}, device {self.device}: {kinds}>"


def _ordered(contents: GraphContents) -> GraphContents:
    """Order the dependencies, which vendors list in any order, and demangle the names; in bodies too."""
    nodes, edges = contents
    return [_named(node) for node in nodes], sorted(edges, key=lambda edge: (edge.target, edge.source))


def _bare(node: GraphNode) -> GraphNode:
    """Return a node without what tells two captures of the same work apart; bodies as well."""
    bodies = tuple((list(map(_bare, nodes)), edges) for nodes, edges in node.bodies)
    return node._replace(stack=(), profiler_id=None, bodies=bodies)


def _named(node: GraphNode) -> GraphNode:
    if not node.demangled and node.name.startswith("_Z") and (name := demangled(node.name)) != node.name:
        node = node._replace(demangled=name)
    return node._replace(bodies=tuple(map(_ordered, node.bodies))) if node.bodies else node
