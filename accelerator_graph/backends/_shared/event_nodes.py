"""Where the nodes of events stand that are added to a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from ...errors import DriverError

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


def release(destroy: Callable[[T], object], value: T) -> None:
    """Destroy what is not needed any more. Does not raise on account of the driver."""
    with suppress(DriverError):
        destroy(value)
