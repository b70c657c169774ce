"""The part of a description that is the same in every process and every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ..backends.base import GraphEdge, GraphNode
from .contents import all_nodes
from .description import GraphDescription


class Fingerprint(NamedTuple):
    """A short form of a graph, without addresses and handles: equal for equal graphs, in any process.

    Fingerprints compare with ``==``; ``str()`` is 16 hexadecimal digits, for logs and file names.
    """

    functions: tuple[tuple[str, str, int], ...]
    """How many nodes there are of each kind and function, those inside other nodes included, sorted."""
    order: str
    """A digest of the kinds and functions, in the order of recording."""
    sizes: str
    """A digest of the nodes' grids, blocks, shared memory and numbers of bytes."""
    topology: str
    """A digest of the dependencies."""

    @classmethod
    def of(cls, description: GraphDescription) -> Fingerprint:
        """Make the fingerprint of a graph that was described."""
        nodes, edges = description.nodes, description.edges
        functions = Counter((node.kind, node.name) for node in all_nodes(nodes))
        return cls(
            tuple((kind, name, number) for (kind, name), number in sorted(functions.items())),
            _digest(_order(nodes)),
            _digest(_sizes(nodes)),
            _digest(_topology(nodes, edges)),
        )

    def __str__(self) -> str:
        return _digest([list(self.functions), self.order, self.sizes, self.topology])

    def differences(self, other: Fingerprint) -> list[str]:
        """Return in words what `other` has that this one does not; nothing if they are equal."""
        said = []
        mine, others = (
            Counter({(kind, name): number for kind, name, number in each.functions}) for each in (self, other)
        )
        more, fewer = others - mine, mine - others
        shown = _shown({name for _, name in (*more, *fewer)})
        for (kind, name), number in sorted(more.items()):
            said.append(f"{_nodes(number, kind, shown[name])} more")
        for (kind, name), number in sorted(fewer.items()):
            said.append(f"{_nodes(number, kind, shown[name])} fewer")
        if not said and self.order != other.order:
            said.append("the same nodes in another order")
        if not said and self.sizes != other.sizes:
            said.append("other sizes (grids, blocks or numbers of bytes)")
        if not said and self.topology != other.topology:
            said.append("other dependencies between the nodes")
        return said


def _nodes(number: int, kind: str, shown: str) -> str:
    from .text import count

    return f"{count(number, f'{kind} node')}{f' {shown!r}' if shown else ''}"


def _shown(names: Collection[str]) -> dict[str, str]:
    """Return the short names of functions, and the whole ones of those whose short names are equal."""
    from .names import demangled, short_name

    whole = {name: demangled(name) for name in names}
    short = {name: short_name(each) for name, each in whole.items()}
    times = Counter(short.values())
    return {name: each if times[each] == 1 else whole[name] for name, each in short.items()}


def _order(nodes: Sequence[GraphNode]) -> list[Any]:
    return [[node.kind, node.name, [_order(body[0]) for body in node.bodies]] for node in nodes]


def _sizes(nodes: Sequence[GraphNode]) -> list[Any]:
    return [
        [node.grid, node.block, node.shared_bytes, node.nbytes, [_sizes(body[0]) for body in node.bodies]]
        for node in nodes
    ]


def _topology(nodes: Sequence[GraphNode], edges: Sequence[GraphEdge]) -> list[Any]:
    inside = [[_topology(*body) for body in node.bodies] for node in nodes]
    return [len(nodes), sorted(map(list, edges)), inside]


def _digest(value: object) -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
