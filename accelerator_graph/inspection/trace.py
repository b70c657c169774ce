"""A profile in Chrome's trace format.

A file is an object with ``traceEvents``. A complete event (``"ph": "X"``) has a name, its beginning ``ts``
and duration ``dur`` in microseconds, and a place ``pid`` and ``tid``. Events at one place have to be nested.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from .names import short_name
from .profile import GraphProfile


class Slice(NamedTuple):
    """A named span of time."""

    name: str
    begin: float
    end: float
    details: dict[str, Any]


def to_trace(profile: GraphProfile) -> str:
    """Return a profile as a file's text."""
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": list(_events(profile))}, indent=1)


def _events(profile: GraphProfile) -> Iterator[dict[str, Any]]:
    title = f"graph of {profile.backend}, device {profile.device}"
    found = {"labels": _slices(profile), "kernels, under a profiler": _kernels(profile)}
    for group, (what, slices) in enumerate(found.items()):
        if slices:
            yield _name("process_name", group, 0, f"{title}: {what}")
        for lane, inside in enumerate(_lanes(slices)):
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


def _slices(profile: GraphProfile) -> list[Slice]:
    """Return what is to be drawn, the outer ones before those inside."""
    whole = profile.median if profile.with_events is None else profile.with_events
    found = [Slice("replay", 0.0, whole, {"without events (us)": profile.median, "notes": profile.notes})]
    for each in profile.labels:
        label = each.label
        details = {
            "nodes": f"{label.start} to {label.stop - 1}",
            "source": f"{label.file}:{label.line}",
            "own (us)": each.own,
            "uncertain": each.uncertain,
        }
        found.append(Slice(label.name, each.begin, each.end, details))
    return found


def _kernels(profile: GraphProfile) -> list[Slice]:
    return [
        Slice(
            short_name(each.node.name) or each.node.kind,
            each.begin,
            each.begin + each.time,
            {"node": each.node.id, "function": each.node.name},
        )
        for each in profile.kernels
    ]


def _lanes(slices: list[Slice]) -> list[list[Slice]]:
    """Distribute slices so that those in one lane are nested or apart. The fewest lanes are not sought."""
    lanes: list[list[Slice]] = []
    for each in slices:
        for lane in lanes:
            if all(_fit(each, other) for other in lane):
                lane.append(each)
                break
        else:
            lanes.append([each])
    return lanes


def _fit(inner: Slice, outer: Slice) -> bool:
    apart = inner.end <= outer.begin or outer.end <= inner.begin
    return apart or outer.begin <= inner.begin <= inner.end <= outer.end


def _name(kind: str, group: int, lane: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": group, "tid": lane, "args": {"name": name}}
