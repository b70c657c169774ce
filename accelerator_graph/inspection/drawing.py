"""Drawings of a graph by Graphviz."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from itertools import count, takewhile

from ..backends.base import GraphEdge, GraphNode
from .contents import DescribedGraph, Label
from .grouping import place, runs, short_names
from .names import body_title, caption, printable
from .text import details

FORMATS = ("svg", "png", "pdf")
_COLOURS = {
    "kernel": "#cfe3ff",
    "memset": "#d8f2dc",
    "memcpy": "#d8f2dc",
    "mem_alloc": "#ffe9c7",
    "mem_free": "#ffe9c7",
    "host": "#f3d9fa",
    "graph": "#f6efb8",
    "conditional": "#f6efb8",
}
_OTHER = "#eeeeee"


def draw(description: DescribedGraph, form: str, path: str) -> None:
    """Draw a graph.

    Parameters
    ----------
    description : DescribedGraph
        The graph. Graphviz needs minutes for some thousands of nodes.
    form : {"svg", "png", "pdf"}
        The format.
    path : str
        The file to write.

    Raises
    ------
    OSError
        Graphviz is not installed, or failed.
    """
    try:
        done = subprocess.run(
            ["dot", f"-T{form}", "-o", path],
            input=to_dot(description),
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
    except FileNotFoundError:
        raise OSError(
            f"a .{form} file is drawn by Graphviz, whose program `dot` was not found; install Graphviz, or "
            "write a .html, .dot or .json file."
        ) from None
    if done.returncode:
        raise OSError(f"Graphviz failed: {done.stderr.strip()}. Write a .html, .dot or .json file instead.")


def to_dot(description: DescribedGraph) -> str:
    """Return a drawing in the DOT language, with a box around the contents of each node that has some."""
    lines = [
        "digraph accelerator_graph {",
        '  graph [fontname="Helvetica", fontsize=11, color="#999999"];',
        '  node [fontname="Helvetica", fontsize=11, shape=box, style="rounded,filled", color="#666666"];',
        '  edge [color="#666666", arrowsize=0.7];',
        *_labelled(description),
        *_edges(description.edges, "n"),
    ]
    return "\n".join([*lines, "}", ""])


def colour(kind: str) -> str:
    """Return the colour of a kind of node, on which black text can be read."""
    return _COLOURS.get(kind, _OTHER)


def _labelled(description: DescribedGraph) -> Iterator[str]:
    """Yield the nodes, with a box around those that have the same label."""
    around: tuple[Label, ...] = ()
    boxes = count()
    for labels, start, stop in runs(description):
        same = len(list(takewhile(lambda pair: pair[0] is pair[1], zip(around, labels, strict=False))))
        yield from ["  }"] * (len(around) - same)
        for name, label in [*zip(short_names(labels), labels, strict=True)][same:]:
            yield f"  subgraph cluster_label_{next(boxes)} {{"
            yield f'  label="{_quoted(name)}"; tooltip="{_quoted(place(label))}"; style=rounded;'
        around = labels
        yield from _nodes(description.nodes[start:stop], "n")
    yield from ["  }"] * len(around)


def _nodes(nodes: Sequence[GraphNode], prefix: str) -> Iterator[str]:
    for node in nodes:
        name = f"{prefix}{node.id}"
        yield (
            f'  {name} [label="{_quoted(caption(node))}", fillcolor="{colour(node.kind)}", '
            f'tooltip="{node.id}: {_quoted(" ".join(filter(None, (node.kind, details(node)))))}"];'
        )
        for number, body in enumerate(node.bodies):
            yield f"  subgraph cluster_{name}_{number} {{"
            yield f'  label="{body_title(node, number)}";'
            yield from _nodes(body[0], f"{name}_{number}_")
            yield from _edges(body[1], f"{name}_{number}_")
            yield "  }"
            yield from (
                f"  {name} -> {name}_{number}_{first.id} [style=dotted, arrowhead=none];"
                for first in body[0][:1]
            )


def _edges(edges: Sequence[GraphEdge], prefix: str) -> Iterator[str]:
    for edge in edges:
        look = " [style=dashed]" if edge.kind else ""
        yield f"  {prefix}{edge.source} -> {prefix}{edge.target}{look};"


def _quoted(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
