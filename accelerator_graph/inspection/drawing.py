"""Drawings of a graph: by Graphviz, and small ones for notebooks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from html import escape
from itertools import count, takewhile
from typing import TYPE_CHECKING

from ..backends.base import GraphEdge, GraphNode
from .contents import Label, all_nodes, place, runs, short_names
from .names import body_title, caption, printable
from .text import details, fitting, table

if TYPE_CHECKING:
    from .description import GraphDescription

FORMATS = ("svg", "png", "pdf")
MOST_DRAWN = 3000
"""Graphviz draws so many nodes in 3 seconds, 10,000 in half a minute, and does not end with 100,000."""
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


def draw(description: GraphDescription, form: str, path: str) -> None:
    """Draw a graph.

    Parameters
    ----------
    description : GraphDescription
        The graph.
    form : {"svg", "png", "pdf"}
        The format.
    path : str
        The file to write.

    Raises
    ------
    ValueError
        The graph has more nodes than Graphviz draws in seconds.
    OSError
        Graphviz is not installed, or failed.
    """
    nodes = sum(1 for _ in all_nodes(description.nodes))
    if nodes > MOST_DRAWN:
        raise ValueError(
            f"the graph has {nodes} nodes, and Graphviz takes too long for more than {MOST_DRAWN}; write a "
            ".html file, a page that shows graphs of any size."
        )
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


def to_dot(description: GraphDescription) -> str:
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


def _labelled(description: GraphDescription) -> Iterator[str]:
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


# ---- for notebooks --------------------------------------------------------------------------------

MOST = 25
_WIDTH, _HEIGHT, _LANE, _ROW = 240, 22, 256, 34
_FITTING = 34
"""How many characters of a name there is room for."""


def to_html(description: GraphDescription) -> str:
    """Return a drawing of the first nodes, beside the table of them."""
    text = escape(table(description, most=MOST))
    return (
        '<div style="display: flex; gap: 24px; align-items: flex-start; overflow: auto">'
        f'{"".join(_drawing(description))}<pre style="margin: 0">{text}</pre></div>'
    )


def _drawing(description: GraphDescription) -> Iterator[str]:
    nodes = description.nodes[:MOST]
    edges = [edge for edge in description.edges if max(edge.source, edge.target) < len(nodes)]
    places = lanes(len(nodes), edges)
    titles = {start: labels for labels, start, _ in runs(description) if start < len(nodes)}
    tops, bottom = [], 4
    for node in nodes:
        bottom += _ROW if titles.get(node.id) else 0
        tops.append(bottom)
        bottom += _ROW
    width = max(places, default=0) * _LANE + _WIDTH + 8
    look = 'style="flex: none" font-family="sans-serif" font-size="12"'
    yield f'<svg width="{width}" height="{bottom}" {look}>'
    for edge in edges:
        (x1, y1), (x2, y2) = (
            (places[node] * _LANE + _WIDTH // 2 + 4, tops[node]) for node in (edge.source, edge.target)
        )
        turn = y1 + _HEIGHT + 4 if x1 <= x2 else y2 - 4
        dashes = ' stroke-dasharray="4 3"' if edge.kind else ""
        yield (f'<path d="M{x1} {y1 + _HEIGHT} V{turn} H{x2} V{y2}" fill="none" stroke="#888888"{dashes}/>')
    for node, lane in zip(nodes, places, strict=True):
        x, y = lane * _LANE + 4, tops[node.id]
        if labels := titles.get(node.id):
            words = fitting(printable(" / ".join(short_names(labels))), min(60, (width - 22) // 7))
            yield (
                f"<g><title>{escape(printable(place(labels[-1])))}</title>"
                f'<rect x="4" y="{y - 24}" width="{7 * len(words) + 12}" height="19" rx="4" fill="#f1f3f7"/>'
                f'<text x="10" y="{y - 10}" font-weight="bold" fill="#1c2430">{escape(words)}</text></g>'
            )
        words = printable(caption(node))
        yield (
            f"<g><title>{node.id}: {escape(words)}</title>"
            f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill="{colour(node.kind)}" '
            f'stroke="#666666"/><text x="{x + _WIDTH // 2}" y="{y + 15}" text-anchor="middle" fill="#1c2430">'
            f"{escape(fitting(words, _FITTING))}</text></g>"
        )
    yield "</svg>"


MOST_LANES = 256
"""Further branches share the last lane, so that a picture does not grow without end."""


def lanes(count: int, edges: Sequence[GraphEdge]) -> list[int]:
    """Return a lane for each of a number of nodes, which are one below the other in their order.

    A chain stays in its lane. Where it forks, the successor with the longest way to go keeps the lane. The
    others go on in a lane that the first has left, or to lanes that have been empty since the fork, so that
    the line to them passes no other node.
    """
    before: list[list[int]] = [[] for _ in range(count)]
    last, length, heir = [-1] * count, [0] * count, [-1] * count
    for edge in sorted(edges, key=lambda edge: edge.target, reverse=True):
        source, target = edge.source, edge.target
        before[target].append(source)
        last[source] = max(last[source], target)
        if length[target] + 1 >= length[source]:
            length[source], heir[source] = length[target] + 1, target
    placed: list[int] = []
    tips: list[int] = []
    for node in range(count):
        kept = [placed[source] for source in before[node] if source < node and heir[source] == node]
        left = [placed[source] for source in before[node] if source < node and -1 < heir[source] < node]
        lane = min((each for each in kept if heir[tips[each]] == node), default=-1)
        if lane < 0:
            lane = min((each for each in left if tips[each] in before[node]), default=-1)
        if lane < 0:
            since = min(before[node], default=node)
            free = (each for each, tip in enumerate(tips) if max(tip, last[tip]) <= since)
            lane = next(free, min(len(tips), MOST_LANES - 1))
        tips[lane : lane + 1] = [node]
        placed.append(lane)
    return placed
