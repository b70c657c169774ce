"""Which addresses the executable of a graph has now, and which of them are surely pointers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..backends.base import GraphNode, NodeParameters, NodeSetter
from ..inspection.names import demangled

_WORD = 8
_LOWEST = 1 << 16
"""Below this there is no memory: these words are numbers."""

_POINTER = re.compile(r"\*( ?(const|volatile|__restrict__|restrict))*$")
_POINTERS = re.compile(r"^(?:\w+::)*[Aa]rray<[\w: ]+\*(?: const)?, (\d+)[ul]*>$")
"""An array that consists of pointers, such as ``std::array<char*, 2ul>``, in which torch passes its own."""


class Pointer(NamedTuple):
    """A word of the executable that is an address, or may be one."""

    node: GraphNode
    inside: tuple[GraphNode, ...]
    """The nodes around it, the outermost first."""
    argument: str
    """Which of its parameters: ``"source"``, ``"target"``, ``"argument 2"``, ``"argument 2, byte 8"``."""
    address: int
    sure: bool


class Addresses(NamedTuple):
    """What the executable has."""

    pointers: list[Pointer]
    own: list[range]
    """The memory that nodes of the graph allocate."""
    unread: int
    """How many nodes use memory, or may, that the driver does not report."""


def addresses(
    nodes: Sequence[GraphNode],
    parameters: Sequence[NodeParameters],
    setters: Mapping[tuple[int, ...], NodeSetter],
) -> Addresses:
    """Return the addresses in the nodes of an executable.

    The `parameters` are those that the nodes were captured with. Each of the `setters`, by the numbers of the
    nodes around its node and of that, has changed that since then, and has the present parameters.
    """
    pointers: list[Pointer] = []
    own: list[range] = []
    unread = 0
    for top, captured in zip(nodes, parameters, strict=True):
        of_top, blocks = list(_with_those_inside(top, captured, ())), list[bytes]()
        for node, read, around in of_top:
            setter = setters.get((*(each.id for each in around), node.id))
            blocks += _present(() if read is None else read.blocks or (), setter)
        rest = iter(_present(blocks, setters.get((top.id,))))
        for node, read, around in of_top:
            now = [next(rest) for _ in read.blocks or ()] if read is not None else []
            if node.kind in ("mem_alloc", "mem_free") and node.target is not None and node.nbytes:
                own.append(range(node.target, node.target + node.nbytes))
            named = [*_named(node, now)]
            unread += node.kind == "kernel" and (read is None or read.blocks is None)
            unread += node.kind == "conditional" and not node.bodies
            unread += any(address is None for _, address, _ in named)
            if node.enabled and all(each.enabled for each in around):
                pointers += [
                    Pointer(node, around, name, address, sure)
                    for name, address, sure in named
                    if address is not None and address >= _LOWEST
                ]
    return Addresses(pointers, own, unread)


def _present(blocks: Sequence[bytes], setter: NodeSetter | None) -> Sequence[bytes]:
    """Return the present ones of blocks that a setter may have changed. One without any changes none."""
    return blocks if setter is None or len(setter.blocks) != len(blocks) else setter.blocks


def _with_those_inside(
    node: GraphNode, captured: NodeParameters | None, around: tuple[GraphNode, ...]
) -> Iterator[tuple[GraphNode, NodeParameters | None, tuple[GraphNode, ...]]]:
    """Yield a node and those inside it, with their parameters where they are known, and the nodes around."""
    yield node, captured, around
    inside = iter(() if captured is None else captured.inside)
    for body, _ in node.bodies:
        for each in body:
            yield from _with_those_inside(each, next(inside, None), (*around, node))


def _named(node: GraphNode, blocks: Sequence[bytes]) -> Iterator[tuple[str, int | None, bool]]:
    """Yield what a node may use as addresses, now: name, value if that is known, and if it surely is one."""
    if node.kind == "kernel":
        yield from _of_kernel(node, blocks)
    elif node.kind in ("memcpy", "memset"):
        target, source = node.target, node.source
        if blocks:
            target, source = (int.from_bytes(each, "little") for each in blocks[:2])
        yield "target", target, True
        if node.kind == "memcpy":
            yield "source", source, True


def _of_kernel(node: GraphNode, blocks: Sequence[bytes]) -> Iterator[tuple[str, int, bool]]:
    """Yield the aligned words of a kernel's arguments: name, value, and if the signature says pointer."""
    types = parameter_types(demangled(node.name))
    known = types if types is not None and len(types) == len(blocks) else None
    single = len(blocks) == len(node.arguments or ())
    for number, block in enumerate(blocks):
        sure = known is not None and _is_pointer(known[number], len(block))
        for offset in range(0, len(block) - _WORD + 1, _WORD):
            word = int.from_bytes(block[offset : offset + _WORD], "little")
            name = f"argument {number}" if single else "arguments"
            yield (f"{name}, byte {offset}" if len(block) > _WORD else name), word, sure


def _is_pointer(kind: str, nbytes: int) -> bool:
    """Return True if all words of an argument of this type are pointers."""
    if _POINTER.search(kind):
        return nbytes == _WORD
    array = _POINTERS.match(kind)
    return array is not None and nbytes == int(array[1]) * _WORD


def parameter_types(signature: str) -> list[str] | None:
    """Return the types of a function's parameters, as its name in C++ has them; None if it has none."""
    end = signature.rfind(")")
    depth, begin = 0, -1
    for at in range(end, -1, -1):
        depth += {")": 1, "(": -1}.get(signature[at], 0)
        if depth == 0:
            begin = at
            break
    if end < 0 or begin < 0:
        return None
    inner = signature[begin + 1 : end]
    types, depth, start = [], 0, 0
    for at, character in enumerate(inner):
        depth += {"(": 1, "<": 1, "[": 1, "{": 1, ")": -1, ">": -1, "]": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            types.append(inner[start:at].strip())
            start = at + 1
    return [*types, inner[start:].strip()] if inner.strip() else []
