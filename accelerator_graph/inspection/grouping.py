"""Which labels a node has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise

from .contents import DescribedGraph, Label


def runs(description: DescribedGraph) -> Iterator[tuple[tuple[Label, ...], int, int]]:
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


def place(label: Label) -> str:
    """Return the file, without its folder, and the line."""
    return f"{os.path.basename(label.file)}:{label.line}"
