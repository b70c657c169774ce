"""Descriptions, profiles and memory reports as tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ..backends.base import GraphEdge, GraphNode
from .contents import all_nodes, place, recorded_at, runs, short_names
from .names import body_title, printable, short_name, title
from .timings import UNCERTAIN, LabelTime, parents

if TYPE_CHECKING:
    from .description import GraphDescription
    from .memory import GraphMemory, MemoryAmount, MemoryReport, PoolMemory
    from .profile import GraphProfile

_USUAL_MODES = ("", "default", "thread_local")
_Row = tuple[str, str, str, str, str]
"""The number of a node, its kind, what it does, after which nodes, and where it was recorded."""
_LONGEST = 80
"""How many characters of a name a table shows: those of libraries and compilers can have hundreds."""


def table(description: GraphDescription, most: int = 40) -> str:
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
    heading = ("", "kind", "what", "after", "recorded at" if any(row[4] for row in rows) else "")
    lines = _aligned([heading, *rows[:most]]) if rows else []
    headings = _headings(description)
    body = []
    for (number, *_), line in zip(rows[:most], lines[1:], strict=True):
        body += [*headings.pop(number, ()), line]
    end = [f"... and {count(more, 'more node')}"] if more else []
    return "\n".join(map(printable, [headline, *lines[:1], *body, *end]))


def captured(description: GraphDescription) -> str:
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
    """Return a node's number and title, and the line that recorded it if that is known."""
    return f"node {node.id} ({', '.join(filter(None, (title(node), recorded_at(node))))})"


def listed(nodes: Sequence[GraphNode], most: int = 6) -> str:
    """Return the numbers of nodes, and how many there are of what."""
    if len(nodes) == 1:
        return named(nodes[0])
    titles = Counter(map(title, nodes)).most_common()
    words = [f"{times} {name}" for name, times in titles[:most]] if len(titles) > 1 else [titles[0][0]]
    if others := sum(times for _, times in titles[most:]):
        words.append(f"{others} more")
    words += filter(None, [recorded_at(nodes[0])] if len(set(map(recorded_at, nodes))) == 1 else [])
    return f"nodes {numbers([node.id for node in nodes])} ({', '.join(words)})"


def details(node: GraphNode) -> str:
    """Return what a node does, in a few words."""
    parts = [fitting(short_name(node.demangled or node.name))] if node.name else []
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
        parts.append("(the driver does not report what is inside)")
    return " ".join(parts)


def fitting(name: str) -> str:
    """Return a name, without its middle if it is too long: kernels of one family differ at the end."""
    half = _LONGEST // 2
    return name if len(name) <= _LONGEST else f"{name[: half - 3]}...{name[-half:]}"


def is_closed(node: GraphNode) -> bool:
    """Return True for a conditional node whose bodies the vendor does not report."""
    return node.kind == "conditional" and not node.bodies


def size(nbytes: int) -> str:
    """Return a number of bytes in a unit that fits."""
    amount, unit = float(nbytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if amount >= 100 or amount == int(amount) else f"{amount:.1f} {unit}"


def _headings(description: GraphDescription) -> dict[str, list[str]]:
    """Return the line that names the labels, by the first node that has them; nothing without labels."""
    if not description.labels:
        return {}
    return {
        str(start): [
            f"[{' / '.join(map(fitting, short_names(labels)))}] {place(labels[-1])}"
            if labels
            else "[no label]"
        ]
        for labels, start, _ in runs(description)
        if labels or start
    }


def _rows(nodes: Sequence[GraphNode], edges: Sequence[GraphEdge], indent: str = "") -> Iterator[_Row]:
    after: dict[int, list[str]] = {}
    for edge in edges:
        mark = "*" if edge.kind else ""
        after.setdefault(edge.target, []).append(f"{edge.source}{mark}")
    for node in nodes:
        before = after.get(node.id, [])
        shown = " ".join(before) if before != [str(node.id - 1)] else ""
        yield (
            *(f"{indent}{node.id}", node.kind, details(node)),
            *(shown or ("" if before else "-"), recorded_at(node)),
        )
        for number, body in enumerate(node.bodies):
            if node.kind == "conditional":
                yield f"{indent}  {body_title(node, number)}:", "", "", "", ""
            yield from _rows(*body, indent + "  ")


def _product(sizes: tuple[int, ...]) -> str:
    *rest, last = sizes
    while rest and last == 1:
        *rest, last = rest
    return ",".join(map(str, (*rest, last)))


def _aligned(rows: list[_Row]) -> list[str]:
    nodes = [row for row in rows if row[1]]  # the others are headings
    widths = [max(len(row[column]) for row in nodes) for column in range(5)]
    widths[0] = max(widths[0], 3)
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


# ---- profiles -------------------------------------------------------------------------------------


_SLOWER = 1.05
"""By how much events may slow a graph down before the table says so."""


def profile_table(profile: GraphProfile) -> str:
    """Return a profile as a headline, the tables that it has, and what has to be known to read them."""
    nodes = "" if profile.nodes is None else f", {count(profile.nodes, 'node')}"
    headline = f"graph of {profile.backend}, device {profile.device}{nodes}: {replay_time(profile)}"
    return "\n".join(
        map(
            printable,
            [
                headline,
                *_label_table(profile),
                *_kernel_table(profile),
                *_part_table(profile),
                *profile.notes,
            ],
        )
    )


def replay_time(profile: GraphProfile) -> str:
    """Return how long a replay took."""
    return (
        f"{duration(profile.median)} a replay (median of {profile.replays}; {duration(profile.least)} to "
        f"{duration(profile.most)})"
    )


def notes(profile: GraphProfile, cut: Iterable[GraphEdge]) -> Iterator[str]:
    """Yield what has to be known to read the times of labels, in sentences."""
    labels, whole = profile.labels, profile.with_events
    assert whole is not None
    if any(each.uncertain for each in labels):
        yield f"?: below {UNCERTAIN:.0f} us the time is uncertain, since the events at the borders are in it."
    if whole > _SLOWER * profile.median:
        yield (
            f"The events make a replay {whole / profile.median - 1:.0%} slower, so the times of short labels "
            "are too long."
        )
    beside = _overlapping(labels)
    if beside:
        yield f"Labels on parallel branches, whose times overlap: {', '.join(beside)}."
    for edge in cut:
        yield (
            f"An event made node {edge.target} wait for the end of node {edge.source}; without it, their "
            "programmatic dependency lets them overlap."
        )


def _label_table(profile: GraphProfile, most: int = 40) -> Iterator[str]:
    """Yield a row for each label, indented by how deep it is nested, up to a number of rows."""
    if profile.with_events is None or profile.unlabelled is None:
        return
    depth: list[int] = []
    rows = [("time", "own", "share", "label")]
    labels = [each.label for each in profile.labels]
    for each, parent in zip(profile.labels[:most], parents(labels), strict=False):
        depth.append(0 if parent is None else depth[parent] + 1)
        own = duration(each.own) if each.own < each.time else ""
        share = f"{each.time / profile.with_events:.0%}"
        mark = "?" if each.uncertain else ""
        rows.append(
            (
                duration(each.time) + mark,
                own,
                share,
                f"{'  ' * depth[-1]}{fitting(each.label.name)}  {place(each.label)}",
            )
        )
    rest = profile.unlabelled
    rows.append((duration(rest), "", f"{rest / profile.with_events:.0%}", "[no label]"))
    rows.append((duration(profile.with_events), "", "", "with events at the borders of the labels"))
    yield from _times(rows)
    if len(labels) > most:
        yield f"... and {count(len(labels) - most, 'more label')}"


def _kernel_table(profile: GraphProfile, most: int = 20) -> Iterator[str]:
    """Yield a row for each function, and for copies and fills: the longest first, up to a number of rows."""
    if not profile.kernels:
        return
    times: dict[str, list[float]] = {}
    for each in profile.kernels:
        times.setdefault(short_name(each.node.demangled or each.node.name) or each.node.kind, []).append(
            each.time
        )
    total = sum(map(sum, times.values()))
    order = sorted(times.items(), key=lambda item: -sum(item[1]))
    rows = [("time", "share", "runs", "kernel")]
    for name, found in order[:most]:
        spent = sum(found)
        rows.append((duration(spent), f"{spent / total:.0%}", str(len(found)), name))
    yield from _times(rows)
    if len(order) > most:
        yield f"... and {count(len(order) - most, 'more function')}"


def _part_table(profile: GraphProfile, most: int = 40) -> Iterator[str]:
    """Yield a row for each segment and each call of a graph with breaks, up to a number of rows."""
    if not profile.parts:
        return
    rows = [("time", "on the host", "share", "segment or call")]
    whole = profile.parts[-1].begin + profile.parts[-1].time
    for each in profile.parts[:most]:
        nodes = "" if each.nodes is None else count(each.nodes, "node")
        where = place(each) if each.is_call else nodes
        share = f"{each.time / whole:.0%}" if whole else ""
        rows.append(
            (duration(each.time), duration(each.host), share, f"{fitting(each.name)}  {where}".rstrip())
        )
    yield from _times(rows)
    if len(profile.parts) > most:
        yield f"... and {count(len(profile.parts) - most, 'more part')}"


def _times(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a table whose columns are aligned to the right, the last one to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for *cells, last in rows:
        right = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False)]
        yield "  ".join([*right, last]).rstrip()


def _overlapping(labels: Sequence[LabelTime]) -> list[str]:
    """Return the names of labels that were under way while one beside them was."""
    beside: dict[int | None, list[LabelTime]] = {}
    for each, parent in zip(labels, parents([each.label for each in labels]), strict=True):
        beside.setdefault(parent, []).append(each)
    found = set()
    for siblings in beside.values():
        latest: LabelTime | None = None
        for each in sorted(siblings, key=lambda each: each.begin):
            if latest is not None and each.begin < latest.end and each.time > 0:
                found |= {latest, each}
            if latest is None or each.end > latest.end:
                latest = each
    return list(dict.fromkeys(fitting(each.label.name) for each in labels if each in found))


def duration(microseconds: float) -> str:
    """Return a time in a unit that fits; a time that is below the resolution of a device's clock is 0."""
    if microseconds < 0.05:
        return "0 us"
    for unit, factor in (("us", 1.0), ("ms", 1e3)):
        if microseconds < 999.5 * factor:
            return f"{microseconds / factor:.3g} {unit}"
    return f"{microseconds / 1e6:.3g} s"


# ---- memory ---------------------------------------------------------------------------------------


_UNKNOWN = "?"
_COLUMNS = ("graph", "nodes", "executable", "on the host", "definition", "in the pool", "alone in it", "pool")


def graph_table(memory: GraphMemory) -> str:
    """Return a headline, and a row for each part with a note on how it was found."""
    pool = memory.pool
    nodes = "" if memory.nodes is None else f", {count(memory.nodes, 'node')}"
    rows = [
        ("executable, on the device", memory.executable),
        ("executable, on the host", memory.executable_host),
        ("definition, on the host", memory.definition),
        ("of the pool, touched by this graph", memory.touched),
        (f"pool {pool.id} of {count(pool.graphs, 'graph')}", pool.held),
        ("of the pool, used by live arrays", pool.used),
        *([("results of eager calls", memory.results)] if memory.results.nbytes != 0 else []),
    ]
    width = max(len(title) for title, _ in rows)
    sizes = [shown(amount.nbytes) for _, amount in rows]
    wide = max(map(len, sizes))
    lines = [
        f"  {title:<{width}}  {text:>{wide}}  {amount.note}"
        for (title, amount), text in zip(rows, sizes, strict=True)
    ]
    headline = f"memory of a graph of {memory.backend}, device {memory.device}{nodes}"
    return "\n".join(map(printable, [headline, *lines]))


def report_table(report: MemoryReport) -> str:
    """Return a row for each graph, then the pools, the devices, the sums, and notes on how it was found."""
    graphs = report.graphs
    if not graphs:
        return "memory of 0 graphs"
    rows = [_COLUMNS, *(_row(number, each, report) for number, each in enumerate(graphs))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    table = [
        "  ".join(
            [f"{row[0]:<{widths[0]}}", *map(str.rjust, row[1:-1], widths[1:-1]), f"{row[-1]:<{widths[-1]}}"]
        ).rstrip()
        for row in rows
    ]
    results = sum(each.results.nbytes or 0 for each in graphs)
    lines = [
        f"memory of {count(len(graphs), 'graph')}, biggest first",
        *table,
        "",
        *map(_pool, report.pools),
        *([f"results of eager calls: {size(results)}"] if results else []),
        *(_device(*each) for each in report.devices),
        f"together on the device: {size(report.on_devices)}{_doubt(report, on_device=True)}",
        f"together on the host: {size(report.on_host)}{_doubt(report, on_device=False)}",
        "",
        *_notes(report),
    ]
    return "\n".join(map(printable, lines))


def shown(nbytes: int | None) -> str:
    """Return a number of bytes in a unit that fits, or a question mark."""
    return _UNKNOWN if nbytes is None else size(nbytes)


def _row(number: int, memory: GraphMemory, report: MemoryReport) -> tuple[str, ...]:
    parts = (memory.executable, memory.executable_host, memory.definition, memory.touched)
    return (
        memory.name or str(number),
        _UNKNOWN if memory.nodes is None else str(memory.nodes),
        *(shown(part.nbytes) for part in parts),
        shown(report.freed_without(memory)),
        str(memory.pool.id),
    )


def _pool(pool: PoolMemory) -> str:
    used = "" if pool.used.nbytes is None else f", of which live arrays use {size(pool.used.nbytes)}"
    segments = f" in {count(len(pool.segments), 'segment')}" if pool.segments else ""
    return f"pool {pool.id} of {count(pool.graphs, 'graph')}: {shown(pool.held.nbytes)}{segments}{used}"


def _device(backend: str, device: int, memory: tuple[int, int, int | None, int | None]) -> str:
    free, total, used, reserved = memory
    nodes = ""
    if reserved:
        nodes = f"; nodes that allocate have {size(reserved)}, of which {shown(used)} are in use"
    return f"device {device} of {backend}: {size(free)} of {size(total)} free{nodes}"


def _doubt(report: MemoryReport, *, on_device: bool) -> str:
    """Return how much of a sum is missing."""
    if on_device:
        parts: Sequence[MemoryAmount] = [
            *(each.executable for each in report.graphs),
            *(each.held for each in report.pools),
        ]
    else:
        parts = [part for each in report.graphs for part in (each.executable_host, each.definition)]
    missing = sum(part.nbytes is None for part in parts)
    return f", without {missing} of {count(len(parts), 'part')} that are not known" if missing else ""


def _notes(report: MemoryReport) -> Iterator[str]:
    """Yield the notes, each once, with the columns that it is about and how many graphs have it."""
    columns = ("executable", "executable_host", "definition", "touched")
    found: dict[tuple[str, int], list[str]] = {}
    for heading, name in zip(_COLUMNS[2:6], columns, strict=True):
        for note, times in Counter(getattr(graph, name).note for graph in report.graphs).items():
            found.setdefault((note, times), []).append(heading)
    for (note, times), titles in found.items():
        of = "" if times == len(report.graphs) else f" ({count(times, 'graph')})"
        yield f"{', '.join(titles)}{of}: {note}"
    for note in dict.fromkeys(pool.held.note for pool in report.pools):
        yield f"{_COLUMNS[7]}: {note}"
    yield f"{_COLUMNS[6]}: what of that no other graph of the pool touches"
