"""Nodes of events that are added to the copy of a graph: where they stand, and how it is instantiated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from ...errors import DriverError
from ..base import Backend

T = TypeVar("T")
Edge = tuple[int, int]


def rerouted(
    edges: Iterable[Edge], before: Sequence[int], after: Sequence[int], first: int
) -> tuple[list[Edge], list[Edge]]:
    """Return the dependencies that go, and those that come, for events before and after some nodes.

    The events are numbered from `first` on, those of `before` first.
    """
    ahead = {node: first + index for index, node in enumerate(before)}
    behind = {node: first + len(before) + index for index, node in enumerate(after)}
    gone = [(source, target) for source, target in edges if source in behind or target in ahead]
    new = {(behind.get(source, source), ahead.get(target, target)) for source, target in gone}
    new.update((event, node) for node, event in ahead.items())
    new.update(behind.items())
    return gone, sorted(new)


def instantiate_copy(
    backend: Backend,
    copy: Callable[[], Any],
    new_events: Iterable[Any],
    add_events: Callable[[Any, Sequence[Any]], None],
) -> tuple[Any, Sequence[Any]]:
    """Return an executable of a copy to which events were added, and the events.

    Each event is made when `new_events` is asked for it. If anything is raised, nothing of it is left.
    """
    with ExitStack() as undo:
        events = []
        for event in new_events:
            events.append(event)
            undo.callback(release, backend.destroy_event, event)
        made = copy()
        undo.callback(release, backend.destroy_graph, made)
        add_events(made, events)
        executable = backend.instantiate(made)
        undo.callback(release, backend.destroy_executable, executable)
        backend.destroy_graph(made)
        undo.pop_all()
    return executable, events


def release(destroy: Callable[[T], object], value: T) -> None:
    """Destroy what is not needed any more. Does not raise on account of the driver."""
    with suppress(DriverError):
        destroy(value)
