"""What is in a graph, as plain data."""

from __future__ import annotations

from collections.abc import Iterable

from ..backends.base import GraphContents, GraphNode
from .contents import DescribedGraph, Label
from .names import demangled


class GraphDescription(DescribedGraph):
    """What a graph contained when it was described.

    Descriptions are values: they hold nothing of the graph, compare with ``==``, and go to JSON and back
    unchanged. ``str()`` is a table for a terminal.
    """

    __slots__ = ()

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

        return from_json(text, cls.of)

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


def _named(node: GraphNode) -> GraphNode:
    if not node.demangled and node.name.startswith("_Z") and (name := demangled(node.name)) != node.name:
        node = node._replace(demangled=name)
    return node._replace(bodies=tuple(map(_ordered, node.bodies))) if node.bodies else node
