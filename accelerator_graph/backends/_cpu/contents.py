"""Looking into a recorded graph."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..base import GraphContents, GraphEdge, GraphNode
from .graph import Node, body_of
from .work import Call

_COPIES, _FILLS = ("source", "target", "enabled"), ("target", "value", "enabled")
"""What can be changed of them in an executable."""


def list_nodes(nodes: Sequence[Node], *, inside: bool = False) -> GraphContents:
    """Return the recorded calls and the dependencies between them, and those of the graphs inside.

    Nodes inside others can't be changed in an executable.
    """
    listed = [_listed(index, node, settable=not inside) for index, node in enumerate(nodes)]
    return listed, [GraphEdge(source, target) for target, node in enumerate(nodes) for source in node.after]


def _listed(index: int, node: Node, *, settable: bool) -> GraphNode:
    listed = GraphNode(index, node.kind, node.name)
    match node.kind, node.call[1]:
        case "memset", (memory, value):
            return listed._replace(
                target=memory.address, nbytes=memory.nbytes, value=value, settable=_FILLS if settable else ()
            )
        case "memcpy", (target, source):
            return listed._replace(
                target=target.address,
                source=source.address,
                nbytes=source.nbytes,
                settable=_COPIES if settable else (),
            )
        case "graph", _:
            return listed._replace(bodies=(list_nodes(body_of(node.call), inside=True),))
    return listed


def host_bytes(nodes: Sequence[Node]) -> int:
    """Return the size of recorded calls, without the callables and the arguments themselves."""
    return sum(sys.getsizeof(part) for node in nodes for part in (node, node.after, *_own(node.call)))


def _own(call: Call) -> tuple[object, ...]:
    """Return what a recorded call consists of, without what belongs to the program."""
    _, args, how, _ = call
    return call, args, how
