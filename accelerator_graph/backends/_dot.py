"""Graphs in the DOT language."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import GraphEdge, GraphNode


def to_dot(nodes: list[GraphNode], edges: list[GraphEdge]) -> str:
    """Draw a graph in the DOT language."""
    lines = ["digraph accelerator_graph {", '  node [shape="box"];']
    for node in nodes:
        label = "\\n".join(map(_escaped, filter(None, (node.kind, node.name))))
        lines.append(f'  n{node.id} [label="{label}"];')
    lines.extend(f"  n{edge.source} -> n{edge.target};" for edge in edges)
    return "\n".join([*lines, "}", ""])


def _escaped(text: str) -> str:
    """Return a text for a label of DOT, where backslashes and quotes have a meaning."""
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    return shown.replace("\\", "\\\\").replace('"', '\\"')
