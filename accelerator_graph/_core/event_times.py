"""The times of a graph's own events, in one of its runs."""

from __future__ import annotations

from collections.abc import Sequence

from .streams import Event, OwnedEvent

Span = tuple[float, float]
"""When a part began and ended, in microseconds since a replay was launched."""

_TOLERANCE = 0.05
"""How far events of a graph may lie outside those around its launch, as a share of the time between these."""


def times_within(events: Sequence[OwnedEvent], start: Event, end: Event) -> list[float] | None:
    """Return the times of a graph's events in microseconds since an event before its launch.

    None if the runtime does not tell them, or if one lies outside the run, which `end` is behind.
    """
    began = start._native.value
    found = [event.backend.elapsed_time(began, event.value) for event in events]
    times = [time * 1000 for time in found if time is not None]
    most = start.elapsed_time(end) * 1000
    if len(times) < len(found) or min(times) < -_TOLERANCE * most or max(times) > (1 + _TOLERANCE) * most:
        return None
    return times
