"""What a graph contains."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class GraphNode(NamedTuple):
    """One node of a graph. What its kind does not have, or the vendor does not tell, is None."""

    id: int
    """Its index in the list of nodes, in which each comes after those that it depends on."""
    kind: str
    """In lower case: ``"kernel"``, ``"memset"``, ``"memcpy"``, ``"host"``, ``"empty"``, ``"graph"``, ..."""
    name: str = ""
    """The name of the kernel or function, as the vendor spells it, if it is known. Of a conditional node:
    ``"if"``, ``"while"`` or ``"switch"``."""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    """Of a kernel: its blocks, and the threads of a block, in each direction."""
    shared_bytes: int | None = None
    """Of a kernel: the dynamic shared memory of a block."""
    source: int | None = None
    target: int | None = None
    """What is read and written, as address or handle; `target` is also what is allocated, freed or called."""
    nbytes: int | None = None
    value: int | None = None
    """How many bytes are written, copied or allocated; of a fill, what each element is set to."""
    bodies: tuple[GraphContents, ...] = ()
    """Of a child graph or a conditional node: what is inside. A conditional node has at least one body: none
    means that the vendor does not tell."""
    demangled: str = ""
    """The name as it is written in C++, if that differs. A description fills it in; a backend does not."""
    arguments: tuple[int, ...] | None = None
    """Of a kernel: the size of each argument in bytes."""
    settable: tuple[str, ...] = ()
    """What `Graph.set_node` can change, by its keywords; empty for nodes inside others."""
    changed: tuple[str, ...] = ()
    """What it has changed: `source`, `target` and `value` are the new ones. A description fills this in, and
    the following."""
    values: tuple[str, ...] | None = None
    """Of a kernel whose arguments were changed: the bytes of each, in hexadecimal."""
    enabled: bool = True
    """False if the executable leaves the node out."""


class GraphEdge(NamedTuple):
    """One dependency: the node `target` runs after the node `source`."""

    source: int
    target: int
    kind: str = ""
    """``"programmatic"`` if the target may begin before the source has ended; else empty."""


GraphContents: TypeAlias = tuple[list[GraphNode], list[GraphEdge]]
