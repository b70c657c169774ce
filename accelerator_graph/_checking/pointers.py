"""Which addresses the executable of a graph has now, and which of them are surely pointers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

    The `parameters` are those that the nodes were captured with. Each of the `setters`, by the numbers of its
    node and of those around it, has changed that since then, and has the present parameters.
    """
    found = Addresses([], [], 0)
    for node, captured in zip(nodes, parameters, strict=True):
        found = _add(found, node, captured, iter(_present(captured, (node.id,), setters)), ())
    return found


def _present(
    node: NodeParameters, path: tuple[int, ...], setters: Mapping[tuple[int, ...], NodeSetter]
) -> Sequence[bytes]:
    """Return the blocks of a node and of those inside it, as they are now."""
    blocks = list(node.blocks or ())
    for number, each in enumerate(node.inside):
        blocks += _present(each, (*path, number), setters)
    setter = setters.get(path)
    # a setter without blocks can only enable the node
    return blocks if setter is None or len(setter.blocks) != len(blocks) else setter.blocks


def _add(
    found: Addresses,
    node: GraphNode,
    captured: NodeParameters | None,
    blocks: Iterator[bytes],
    around: tuple[GraphNode, ...],
) -> Addresses:
    """Add the addresses of a node, and of those inside it, whose present blocks come in the same order."""
    pointers, own, unread = found
    told = captured is not None and captured.blocks is not None
    now = [next(blocks) for _ in captured.blocks] if captured is not None and captured.blocks else []
    named: list[tuple[str, int | None, bool]] = []
    if node.kind in ("mem_alloc", "mem_free"):
        if node.target is not None and node.nbytes:
            own.append(range(node.target, node.target + node.nbytes))
    elif node.kind in ("memcpy", "memset"):
        target, source = node.target, node.source
        if now:
            target, source = (int.from_bytes(each, "little") for each in now[:2])
        named = [("target", target, True)]
        if node.kind == "memcpy":
            named.append(("source", source, True))
        unread += any(address is None for _, address, _ in named)
    elif node.kind == "kernel":
        unread += not told
        named = list(_of_kernel(node, now))
    elif node.kind == "conditional":
        unread += not node.bodies
    if node.enabled and all(each.enabled for each in around):
        pointers += [
            Pointer(node, around, name, address, sure)
            for name, address, sure in named
            if address is not None and address >= _LOWEST
        ]
    found = Addresses(pointers, own, unread)
    for number, (body, _) in enumerate(node.bodies):
        inside: Iterable[NodeParameters | None] = captured.inside if captured and not number else ()
        told_inside = [*inside] or [None] * len(body)
        for each, parameters in zip(body, told_inside, strict=False):
            found = _add(found, each, parameters, blocks, (*around, node))
    return found


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
