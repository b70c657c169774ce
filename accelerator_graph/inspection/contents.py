"""The labels of a graph, and walks through its nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ..backends.base import Frame, GraphNode

if TYPE_CHECKING:
    from .description import GraphDescription
    from .timings import PartTime


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


def all_nodes(nodes: tuple[GraphNode, ...] | list[GraphNode]) -> Iterator[GraphNode]:
    """Yield the nodes, and after each node those of its bodies."""
    for node in nodes:
        yield node
        for body in node.bodies:
            yield from all_nodes(body[0])


def runs(description: GraphDescription) -> Iterator[tuple[tuple[Label, ...], int, int]]:
    """Yield the labels of nodes that follow each other and have the same ones, outermost first.

    With them, the number of the first node and the one after the last.
    """
    begin: dict[int, list[tuple[int, Label]]] = {}
    end: dict[int, list[tuple[int, Label]]] = {}
    for each in enumerate(description.labels):
        begin.setdefault(each[1].start, []).append(each)
        end.setdefault(each[1].stop, []).append(each)
    borders = sorted({0, len(description.nodes), *begin, *end})
    present: list[tuple[int, Label]] = []
    for start, stop in pairwise(borders):
        over = end.get(start, [])
        present = sorted([each for each in present if each not in over] + begin.get(start, []))
        yield tuple(label for _, label in present), start, stop


def short_names(labels: Sequence[Label]) -> list[str]:
    """Return the names of labels that are nested in each other.

    A name does not repeat that of the label around it, as names of modules do: ``block.linear`` in ``block``
    is ``linear``.
    """
    names = [label.name for label in labels]
    return [*names[:1], *(inner.removeprefix(f"{outer}.") for outer, inner in pairwise(names))]


def recorded_at(node: GraphNode) -> str:
    """Return the line of the user's code that recorded a node; nothing if it is not known."""
    frame = Frame.own_of(node.stack)
    return "" if frame is None else str(frame._replace(file=os.path.basename(frame.file)))


def place(of: Label | PartTime) -> str:
    """Return the file, without its folder, and the line."""
    return f"{os.path.basename(of.file)}:{of.line}"
