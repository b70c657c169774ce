"""A small picture of a graph, for notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from .contents import DescribedGraph
from .drawing import colour
from .lanes import lanes
from .names import caption, printable
from .text import table

MOST = 25
_WIDTH, _HEIGHT, _LANE, _ROW = 190, 22, 206, 34


def to_html(description: DescribedGraph) -> str:
    """Return a drawing of the first nodes, beside the table of them."""
    text = escape(table(description, most=MOST))
    return (
        '<div style="display: flex; gap: 24px; align-items: flex-start; overflow: auto">'
        f'{"".join(_drawing(description))}<pre style="margin: 0">{text}</pre></div>'
    )


def _drawing(description: DescribedGraph) -> Iterator[str]:
    nodes = description.nodes[:MOST]
    edges = [edge for edge in description.edges if max(edge.source, edge.target) < len(nodes)]
    places = lanes(len(nodes), edges)
    width = max(places, default=0) * _LANE + _WIDTH + 8
    height = len(nodes) * _ROW + 8
    look = 'style="flex: none" font-family="sans-serif" font-size="12"'
    yield f'<svg width="{width}" height="{height}" {look}>'
    for edge in edges:
        (x1, y1), (x2, y2) = ((places[node] * _LANE, node * _ROW) for node in (edge.source, edge.target))
        turn = y1 + _HEIGHT + 8 if x1 <= x2 else y2
        dashes = ' stroke-dasharray="4 3"' if edge.kind else ""
        yield (
            f'<path d="M{x1 + _WIDTH // 2} {y1 + _HEIGHT} V{turn} H{x2 + _WIDTH // 2} V{y2 + 4}" fill="none" '
            f'stroke="#888888"{dashes}/>'
        )
    for node, lane in zip(nodes, places, strict=True):
        x, y = lane * _LANE + 4, node.id * _ROW + 4
        words = printable(caption(node))
        shown = words if len(words) <= 28 else f"{words[:27]}…"
        yield (
            f"<g><title>{node.id}: {escape(words)}</title>"
            f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill="{colour(node.kind)}" '
            f'stroke="#666666"/><text x="{x + _WIDTH // 2}" y="{y + 15}" text-anchor="middle" fill="#1c2430">'
            f"{escape(shown)}</text></g>"
        )
    yield "</svg>"
