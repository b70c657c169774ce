"""The changes that can be made to a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict


class NodeChange(TypedDict, total=False):
    """The keywords of `Graph.set_node`."""

    arguments: Sequence[object] | Mapping[int, object]
    """All arguments of a kernel in order, or some by their positions."""
    source: object
    target: object
    """The memory that a copy or a fill reads and writes, as in `Stream.copy`, or an address."""
    value: int
    """The value that a fill gives each element."""
    enabled: bool
    """Whether later runs do the node's work."""
