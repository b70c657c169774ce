"""Nodes, as CUDA and HIP share them: shapes that allow an update, and events between nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, TypeVar

from ...errors import DriverError
from ..base import Misfit
from ..mixins import Events


class Shape(NamedTuple):
    """What an update in place does not change."""

    kinds: Sequence[str]
    """By node."""
    functions: Sequence[int | None]
    """By node, with 0 or None where it is no kernel."""
    children: Sequence[Shape]
    """The shapes of the graphs inside."""
    edges: Sequence[Any]
    """The dependencies, by the numbers of the nodes."""
    misfit: Misfit | None
    """Why this graph never updates an executable."""


def difference(old: Shape, new: Shape) -> Misfit | None:
    """Return why a graph can't update the executable of another one; None if the shapes allow it."""
    if old.misfit or new.misfit:
        return new.misfit or old.misfit
    if len(old.kinds) != len(new.kinds):
        return Misfit(f"the graphs have {len(old.kinds)} and {len(new.kinds)} nodes")
    if old.kinds != new.kinds:
        number = _first(old.kinds, new.kinds)
        return Misfit(f"a {old.kinds[number]} node has become a {new.kinds[number]} node", number)
    if old.functions != new.functions:
        return Misfit("the kernel is a different one", _first(old.functions, new.functions))
    if old.children != new.children:
        number = place_of(new.kinds, "graph", _first(old.children, new.children))
        return Misfit("the child graph differs", number)
    return None if old.edges == new.edges else Misfit("the dependencies differ")


def place_of(kinds: Sequence[str], kind: str, nth: int) -> int:
    """Return the number of the n-th node of a kind, counted from 0."""
    return [number for number, each in enumerate(kinds) if each == kind][nth]


def _first(old: Sequence[Any], new: Sequence[Any]) -> int:
    """Return the first place at which two sequences of one length differ."""
    return next(at for at, (was, now) in enumerate(zip(old, new, strict=True)) if was != now)


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
    backend: Events,
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
