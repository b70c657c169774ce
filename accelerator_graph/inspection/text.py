"""A description as a table for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from ..backends.base import GraphEdge, GraphNode
from .contents import DescribedGraph, all_nodes
from .grouping import place, runs, short_names
from .names import body_title, printable, short_name, title

_USUAL_MODES = ("", "default", "thread_local")
_LONGEST = 80
"""How many characters of a name a table shows: those of libraries and compilers can have hundreds."""


def table(description: DescribedGraph, most: int = 40) -> str:
    """Return a headline, and a row for each node up to a number of rows; what is beyond is counted.

    Where the labels change, a line between the rows names them.
    """
    nodes, edges = description.nodes, description.edges
    inside = sum(1 for _ in all_nodes(nodes)) - len(nodes)
    kinds = ", ".join(f"{count} {kind}" for kind, count in description.kinds().items())
    headline = (
        f"graph of {description.backend}, device {description.device}: "
        f"{count(len(nodes), 'node')}{f' and {inside} inside them' if inside else ''}"
        f"{f' ({kinds})' if kinds else ''}, {count(len(edges), 'dependency')}{captured(description)}"
    )
    rows = list(_rows(nodes, edges))
    more = max(len(rows) - most, 0)
    lines = _aligned([("", "kind", "what", "after"), *rows[:most]]) if rows else []
    headings = _headings(description)
    body = []
    for (number, *_), line in zip(rows[:most], lines[1:], strict=True):
        body += [*headings.pop(number, ()), line]
    end = [f"... and {count(more, 'more node')}"] if more else []
    return "\n".join(map(printable, [headline, *lines[:1], *body, *end]))


def captured(description: DescribedGraph) -> str:
    """Return the capture mode and the pool, unless they are those of a capture that names none."""
    mode, pool = description.mode, description.pool
    said = "" if mode in _USUAL_MODES else f", mode {mode}"
    return said + (f", pool {pool}" if pool and not pool[0] else "")


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def numbers(ids: Sequence[int], most: int = 6) -> str:
    """Return ascending numbers in words: ``3 to 9, 12 and 14``."""
    runs = [[each for _, each in run] for _, run in groupby(enumerate(ids), lambda each: each[1] - each[0])]
    parts = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    if len(parts) > most:
        parts = [*parts[: most - 1], f"{sum(map(len, runs[most - 1 :]))} more"]
    *rest, last = ", ".join(parts).split(", ")
    return f"{', '.join(rest)} and {last}" if rest else last


def named(node: GraphNode) -> str:
    """Return a node's number and title."""
    return f"node {node.id} ({title(node)})"


def listed(nodes: Sequence[GraphNode], most: int = 6) -> str:
    """Return the numbers of nodes, and how many there are of what."""
    if len(nodes) == 1:
        return named(nodes[0])
    titles = Counter(map(title, nodes)).most_common()
    words = [f"{times} {name}" for name, times in titles[:most]] if len(titles) > 1 else [titles[0][0]]
    if others := sum(times for _, times in titles[most:]):
        words.append(f"{others} more")
    return f"nodes {numbers([node.id for node in nodes])} ({', '.join(words)})"


def details(node: GraphNode) -> str:
    """Return what a node does, in a few words."""
    parts = [_fitting(short_name(node.demangled or node.name))] if node.name else []
    if node.grid and node.block:
        shared = f" {size(node.shared_bytes)} shared" if node.shared_bytes else ""
        parts.append(f"<{_product(node.grid)} x {_product(node.block)}>{shared}")
    if node.nbytes is not None:
        parts.append(size(node.nbytes))
    if node.value is not None:
        parts.append(f"= {node.value}")
    if node.source is not None:
        parts.append(f"{node.source:#x} ->")
    if node.target is not None and node.kind != "host":
        parts.append(f"{node.target:#x}")
    if not node.enabled:
        parts.append("(disabled)")
    if is_closed(node):
        parts.append("(the driver does not tell what is inside)")
    return " ".join(parts)


def _fitting(name: str) -> str:
    """Return a name, without its middle if it is too long: kernels of one family differ at the end."""
    half = _LONGEST // 2
    return name if len(name) <= _LONGEST else f"{name[: half - 3]}...{name[-half:]}"


def is_closed(node: GraphNode) -> bool:
    """Return True for a conditional node whose bodies the vendor does not tell."""
    return node.kind == "conditional" and not node.bodies


def size(nbytes: int) -> str:
    """Return a number of bytes in a unit that fits."""
    amount, unit = float(nbytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if amount >= 100 or amount == int(amount) else f"{amount:.1f} {unit}"


def _headings(description: DescribedGraph) -> dict[str, list[str]]:
    """Return the line that names the labels, by the first node that has them; nothing without labels."""
    if not description.labels:
        return {}
    return {
        str(start): [f"[{' / '.join(short_names(labels))}] {place(labels[-1])}" if labels else "[no label]"]
        for labels, start, _ in runs(description)
        if labels or start
    }


def _rows(
    nodes: Sequence[GraphNode], edges: Sequence[GraphEdge], indent: str = ""
) -> Iterator[tuple[str, str, str, str]]:
    after: dict[int, list[str]] = {}
    for edge in edges:
        mark = "*" if edge.kind else ""
        after.setdefault(edge.target, []).append(f"{edge.source}{mark}")
    for node in nodes:
        before = after.get(node.id, [])
        shown = " ".join(before) if before != [str(node.id - 1)] else ""
        yield f"{indent}{node.id}", node.kind, details(node), shown or ("" if before else "-")
        for number, body in enumerate(node.bodies):
            if node.kind == "conditional":
                yield f"{indent}  {body_title(node, number)}:", "", "", ""
            yield from _rows(*body, indent + "  ")


def _product(sizes: tuple[int, ...]) -> str:
    *rest, last = sizes
    while rest and last == 1:
        *rest, last = rest
    return ",".join(map(str, (*rest, last)))


def _aligned(rows: list[tuple[str, str, str, str]]) -> list[str]:
    nodes = [row for row in rows if row[1]]  # the others are headings
    widths = [max(len(row[column]) for row in nodes) for column in range(3)]
    widths[0] = max(widths[0], 3)
    return [
        f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:<{widths[2]}}  {row[3]}".rstrip()
        for row in rows
    ]
