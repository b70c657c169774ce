"""What of a node can be changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict


class NodeChange(TypedDict, total=False):
    """What `Graph.set_node` changes of a node."""

    arguments: Sequence[object] | Mapping[int, object]
    """All arguments of a kernel in order, or some by their positions."""
    source: object
    target: object
    """What a copy or a fill reads and writes: memory as in `Stream.copy`, or an address."""
    value: int
    """What a fill sets each element to."""
    enabled: bool
    """Whether later runs do the node's work."""
