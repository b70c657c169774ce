"""A graph, or two side by side, as one page for a browser that needs no network."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

from ..contents import all_nodes
from ..description import GraphDescription
from ..difference import Comparison, as_description, compare
from ..drawing import lanes
from ..names import case, printable, short_name
from ..profile import GraphProfile
from ..text import captured, replay_time

_SCRIPTS = ("cytoscape.min.js", "rows.js", "words.js", "drawing.js", "overview.js", "colours.js", "page.js")


def to_html(description: GraphDescription, profile: GraphProfile | None = None) -> str:
    """Return a page on which a graph can be panned, zoomed, searched and folded, with times if known."""
    title = f"Graph of {description.backend}, device {description.device}{captured(description)}"
    frames: dict[str, int] = {}
    graph = _graph(description, frames)
    data = {"graphs": [graph], "names": _names([description]), "frames": list(frames)}
    if profile is not None:
        _add_times(graph, description, profile)
        data.update(about=f"{replay_time(profile)}.", notes=[*map(printable, profile.notes)])
    return _page(title, data)


def diff_to_html(a: GraphDescription, b: GraphDescription, titles: tuple[str, str]) -> str:
    """Return a page with two graphs side by side, and what is new, gone and changed in the second one."""
    comparison = compare(a, b)
    frames: dict[str, int] = {}
    data = {
        "graphs": [
            {**_graph(each, frames), "title": printable(title)}
            for each, title in zip((a, b), titles, strict=True)
        ],
        "names": _names([a, b]),
        "frames": list(frames),
        **_compared(a, b, comparison),
        "sentences": comparison.sentences,
    }
    return _page(f"What differs: {titles[0]} and {titles[1]}", data)


def _graph(description: GraphDescription, frames: dict[str, int]) -> dict[str, Any]:
    """Return a graph for the page. The frames of stacks go to a table that all graphs of the page share."""
    data: dict[str, Any] = json.loads(description.to_json())
    data.pop("frames", None)
    _add_to_contents(data, description.nodes, description.edges, frames)
    data["labels"] = [_printable(label._asdict(), "name", "file") for label in description.labels]
    return data


def _add_times(data: dict[str, Any], description: GraphDescription, profile: GraphProfile) -> None:
    """Give each label its time, and each node that was timed."""
    known = {each.label: each for each in profile.labels}
    for shown, label in zip(data["labels"], description.labels, strict=True):
        if label in known:
            shown.update(time=known[label].time, uncertain=known[label].uncertain)
    for kernel in profile.kernels:
        data["nodes"][kernel.node.id]["time"] = kernel.time


def _printable(data: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return fields, of which these have no characters that break lines or turn their direction."""
    return data | {name: printable(data[name]) for name in names if name in data}


def _add_to_contents(data: dict[str, Any], nodes: Any, edges: Any, frames: dict[str, int]) -> None:
    data["lanes"] = lanes(len(nodes), edges)
    data["nodes"] = [_printable(node, "kind", "call", "file") for node in data["nodes"]]
    for each, node in zip(data["nodes"], nodes, strict=True):
        if node.stack:
            shown = (printable(str(frame)) for frame in node.stack)
            each["stack"] = [frames.setdefault(frame, len(frames)) for frame in shown]
        for number, (body, contents) in enumerate(zip(each.get("bodies", ()), node.bodies, strict=True)):
            body["case"] = case(node, number)
            _add_to_contents(body, contents[0], contents[1], frames)


def _names(descriptions: Iterable[GraphDescription]) -> dict[str, tuple[str, str]]:
    """Return the short and the whole name of each function."""
    found = {
        node.name: node.demangled or node.name
        for each in descriptions
        for node in all_nodes(each.nodes)
        if node.name
    }
    return {name: (short_name(found[name]), printable(found[name])) for name in sorted(found)}


def _compared(a: GraphDescription, b: GraphDescription, comparison: Comparison) -> dict[str, Any]:
    """Return the rows of two graphs and what differs in them, and the same of the bodies of nodes."""
    inside = {}
    for i, j in comparison.pairs.items():
        bodies = zip(a.nodes[i].bodies, b.nodes[j].bodies, strict=False)
        if parts := [tuple(map(as_description, each)) for each in bodies]:
            inside[j] = [_compared(old, new, compare(old, new)) for old, new in parts]
    rows = _rows(comparison, len(a.nodes), len(b.nodes))
    return {"rows": rows, "changes": comparison.changes, **({"inside": inside} if inside else {})}


def _rows(comparison: Comparison, old: int, new: int) -> list[tuple[int | None, int | None]]:
    """Return the nodes of both graphs, those that are the same in one row."""
    rows: list[tuple[int | None, int | None]] = []
    partners = {b: a for a, b in comparison.pairs.items()}
    done = 0
    for index in range(new):
        partner = partners.get(index)
        if partner is not None:
            rows += [(gone, None) for gone in range(done, partner)]
            done = partner + 1
        rows.append((partner, index))
    return rows + [(gone, None) for gone in range(done, old)]


def _page(title: str, data: dict[str, Any]) -> str:
    folder = files(__package__)
    parts = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "page.css")}
    scripts = "\n".join(
        f"<script>\n{folder.joinpath(name).read_text(encoding='utf-8')}</script>" for name in _SCRIPTS
    )
    values = {
        "title": escape(printable(title)),
        "style": parts["page.css"],
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        "scripts": scripts,
    }
    first, *rest = parts["page.html"].split("{{")
    return first + "".join(values[name] + text for name, _, text in (each.partition("}}") for each in rest))
