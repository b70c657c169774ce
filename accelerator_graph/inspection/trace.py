"""A profile in Chrome's trace format.

A file is an object with ``traceEvents``. A complete event (``"ph": "X"``) has a name, its beginning ``ts``
and duration ``dur`` in microseconds, and a place ``pid`` and ``tid``. Events at one place have to be nested.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from .names import short_name
from .timings import ProfiledGraph, parents


class Slice(NamedTuple):
    """A named span of time."""

    name: str
    begin: float
    end: float
    details: dict[str, Any]
    around: tuple[Slice, ...] = ()
    """The slices that it is a part of."""


def to_trace(profile: ProfiledGraph) -> str:
    """Return a profile as a file's text."""
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": list(_events(profile))}, indent=1)


def _events(profile: ProfiledGraph) -> Iterator[dict[str, Any]]:
    title = f"graph of {profile.backend}, device {profile.device}"
    found = {"labels": _slices(profile), "kernels, under a profiler": _kernels(profile)}
    for group, (what, slices) in enumerate(found.items(), 1):
        if slices:
            yield _name("process_name", group, 0, f"{title}: {what}")
        for lane, inside in enumerate(_lanes(slices), 1):
            yield _name("thread_name", group, lane, "branch")
            for each in inside:
                yield {
                    "name": each.name,
                    "ph": "X",
                    "ts": each.begin,
                    "dur": each.end - each.begin,
                    "pid": group,
                    "tid": lane,
                    "args": each.details,
                }


def _slices(profile: ProfiledGraph) -> list[Slice]:
    """Return what is to be drawn, the outer ones before those inside."""
    whole = profile.median if profile.with_events is None else profile.with_events
    replay = Slice("replay", 0.0, whole, {"without events (us)": profile.median, "notes": profile.notes})
    found = [replay]
    labels = [each.label for each in profile.labels]
    for each, label, parent in zip(profile.labels, labels, parents(labels), strict=True):
        outer = replay if parent is None else found[1 + parent]
        details = {
            "nodes": f"{label.start} to {label.stop - 1}",
            "source": f"{label.file}:{label.line}",
            "own (us)": each.own,
            "uncertain": each.uncertain,
        }
        found.append(Slice(label.name, each.begin, each.end, details, (*outer.around, outer)))
    return found


def _kernels(profile: ProfiledGraph) -> list[Slice]:
    return [
        Slice(
            short_name(each.node.demangled or each.node.name) or each.node.kind,
            each.begin,
            each.begin + each.time,
            {"node": each.node.id, "function": each.node.name},
        )
        for each in profile.kernels
    ]


def _lanes(slices: list[Slice]) -> list[list[Slice]]:
    """Distribute slices so that each is apart from the others in its lane, or a part of them."""
    lanes: list[tuple[list[Slice], list[Slice]]] = []  # each with the slices in it that are under way
    for each in sorted(slices, key=lambda each: (each.begin, len(each.around))):
        place = next((lane for lane in lanes if _fits(each, lane[1])), None)
        if place is None:
            place = [], []
            lanes.append(place)
        for members in place:
            members.append(each)
    return [members for members, _ in lanes]


def _fits(each: Slice, under_way: list[Slice]) -> bool:
    while under_way and under_way[-1].end <= each.begin:
        under_way.pop()
    return not under_way or any(outer is under_way[-1] for outer in each.around)


def _name(kind: str, group: int, lane: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": group, "tid": lane, "args": {"name": name}}
