"""A profile as text: its tables, and what has to be known to read them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from ..backends.base import GraphEdge
from .names import printable, short_name
from .text import count
from .timings import UNCERTAIN, LabelTime, ProfiledGraph, parents

_SLOWER = 1.05
"""By how much events may slow a graph down before the table says so."""


def text(profile: ProfiledGraph) -> str:
    """Return a profile as a headline, the tables that it has, and what has to be known to read them."""
    nodes = "" if profile.nodes is None else f", {count(profile.nodes, 'node')}"
    headline = (
        f"graph of {profile.backend}, device {profile.device}{nodes}: {duration(profile.median)} a replay "
        f"(median of {profile.replays}; {duration(profile.least)} to {duration(profile.most)})"
    )
    return "\n".join(map(printable, [headline, *_table(profile), *_kernel_table(profile), *profile.notes]))


def notes(profile: ProfiledGraph, cut: Iterable[GraphEdge]) -> Iterator[str]:
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


def _table(profile: ProfiledGraph, most: int = 40) -> Iterator[str]:
    """Yield a row for each label, indented by how deep it is nested, up to a number of rows."""
    if profile.with_events is None or profile.unlabelled is None:
        return
    depth: list[int] = []
    rows = [("time", "own", "share", "label")]
    labels = [each.label for each in profile.labels]
    for each, parent in zip(profile.labels[:most], parents(labels), strict=False):
        depth.append(0 if parent is None else depth[parent] + 1)
        place = f"{os.path.basename(each.label.file)}:{each.label.line}"
        own = duration(each.own) if each.own < each.time else ""
        share = f"{each.time / profile.with_events:.0%}"
        mark = "?" if each.uncertain else ""
        rows.append((duration(each.time) + mark, own, share, f"{'  ' * depth[-1]}{each.label.name}  {place}"))
    rest = profile.unlabelled
    rows.append((duration(rest), "", f"{rest / profile.with_events:.0%}", "[no label]"))
    rows.append((duration(profile.with_events), "", "", "with events at the borders of the labels"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[3]]).rstrip()
    if len(labels) > most:
        yield f"... and {count(len(labels) - most, 'more label')}"


def _kernel_table(profile: ProfiledGraph, most: int = 20) -> Iterator[str]:
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
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[3]])
    if len(order) > most:
        yield f"... and {count(len(order) - most, 'more function')}"


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
    return list(dict.fromkeys(each.label.name for each in labels if each in found))


def duration(microseconds: float) -> str:
    """Return a time in a unit that fits; what no clock of a device tells apart from nothing is 0."""
    if microseconds < 0.05:
        return "0 us"
    for unit, factor in (("us", 1.0), ("ms", 1e3)):
        if microseconds < 999.5 * factor:
            return f"{microseconds / factor:.3g} {unit}"
    return f"{microseconds / 1e6:.3g} s"
