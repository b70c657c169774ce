"""Memory reports as tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from .amounts import MeasuredGraph, MemoryAmount, PoolMemory, Report
from .names import printable
from .text import count, size

_UNKNOWN = "?"
_COLUMNS = ("graph", "nodes", "executable", "on the host", "definition", "in the pool", "alone in it", "pool")


def graph_table(memory: MeasuredGraph) -> str:
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


def report_table(report: Report) -> str:
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
    lines = [
        f"memory of {count(len(graphs), 'graph')}, biggest first",
        *table,
        "",
        *map(_pool, report.pools),
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


def _row(number: int, memory: MeasuredGraph, report: Report) -> tuple[str, ...]:
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


def _doubt(report: Report, *, on_device: bool) -> str:
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


def _notes(report: Report) -> Iterator[str]:
    """Yield the notes, each once, with the columns that it is about and how many graphs have it."""
    columns = ("executable", "executable_host", "definition", "touched")
    found: dict[tuple[str, int], list[str]] = {}
    for title, name in zip(_COLUMNS[2:6], columns, strict=True):
        for note, times in Counter(getattr(graph, name).note for graph in report.graphs).items():
            found.setdefault((note, times), []).append(title)
    for (note, times), titles in found.items():
        of = "" if times == len(report.graphs) else f" ({count(times, 'graph')})"
        yield f"{', '.join(titles)}{of}: {note}"
    for note in dict.fromkeys(pool.held.note for pool in report.pools):
        yield f"{_COLUMNS[7]}: {note}"
    yield f"{_COLUMNS[6]}: what of that no other graph of the pool touches"
