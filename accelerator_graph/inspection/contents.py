"""The fields of a graph's description."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ..backends.base import GraphEdge, GraphNode


class Label(NamedTuple):
    """A label: a name for the nodes from `start` up to, and without, `stop`.

    A label that lies within an earlier one is nested in it.
    """

    name: str
    start: int
    stop: int
    file: str
    """The file in which the label was written. For a module, the one in which its ``forward`` is."""
    line: int
    """The line in that file."""


class DescribedGraph(NamedTuple):
    """The fields of a `GraphDescription`."""

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

    def kinds(self) -> dict[str, int]:
        """Return how many nodes of each kind there are, those of child graphs included, most first."""
        return dict(Counter(node.kind for node in all_nodes(self.nodes)).most_common())


def all_nodes(nodes: tuple[GraphNode, ...] | list[GraphNode]) -> Iterator[GraphNode]:
    """Yield the nodes, and after each node those of its bodies."""
    for node in nodes:
        yield node
        for body in node.bodies:
            yield from all_nodes(body[0])
