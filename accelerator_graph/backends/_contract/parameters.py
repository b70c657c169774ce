"""The parameters of a graph's nodes, as bytes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

_WORD = 8


class NodeParameters(NamedTuple):
    """The parameters of one node."""

    kind: str
    """As `GraphNode.kind`."""
    blocks: tuple[bytes, ...] | None = ()
    """Of a kernel: its parameters in order, or one block that holds all. Of a copy: the addresses of target
    and source. Of a fill: the address of its target, and the value. Of an allocation or a release: the
    address. Addresses have 8 bytes, the lowest first. None if the vendor does not tell all parameters."""
    rest: Hashable = None
    """What else the node consists of: a kernel's function and geometry, the size of a copy, ... Nodes with
    the same `rest` differ in their blocks at most."""
    inside: tuple[NodeParameters, ...] = ()
    """Of a child graph: its nodes."""


class Change(NamedTuple):
    """New bytes for a part of a node's parameters."""

    block: int
    offset: int
    data: bytes


NodeSetter = Callable[[Sequence[Change]], None]
"""Changes parameters of one node in later runs of one executable."""


def word(number: int) -> bytes:
    """Return a number, such as an address, as a word of a block."""
    return number.to_bytes(_WORD, "little")


def changed(blocks: Sequence[bytes], changes: Iterable[Change]) -> list[bytes]:
    """Return blocks with some bytes changed; ValueError if they have no such bytes."""
    new = list(blocks)
    for block, offset, data in changes:
        if not (0 <= block < len(new) and 0 <= offset <= len(new[block]) - len(data)):
            raise ValueError(f"a node has no {len(data)} bytes at offset {offset} of its parameter {block}.")
        new[block] = new[block][:offset] + data + new[block][offset + len(data) :]
    return new


def addresses_in(nodes: Iterable[NodeParameters]) -> set[int] | None:
    """Return every number among the parameters that could be an address: all aligned words.

    None if there is a node whose parameters are not known.
    """
    found: set[int] = set()
    for node in nodes:
        inside = addresses_in(node.inside)
        if inside is None or node.blocks is None:
            return None
        found |= inside
        for block in node.blocks:
            found.update(memoryview(block)[: len(block) // _WORD * _WORD].cast("Q"))
    return found
