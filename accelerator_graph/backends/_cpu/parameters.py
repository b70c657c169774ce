"""Fills and copies, and their parameters: read, and changed in an executable."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from ..base import NodeParameters, NodeSetter, word
from ..memory import Memory, memory_of
from .graph import Executable, Node, body_of


def fill(memory: Memory, value: int) -> None:
    """Set bytes of memory."""
    ctypes.memset(memory.address, value, memory.nbytes)


def copy(target: Memory, source: Memory) -> None:
    """Copy memory to memory of the same size."""
    ctypes.memmove(target.address, source.address, source.nbytes)


def parameters(node: Node) -> NodeParameters:
    """Return the parameters of a fill, a copy or a graph; those of other callables are not known."""
    match node.kind, node.call[1]:
        case "memset", (memory, value):
            return NodeParameters(node.kind, (word(memory.address), bytes((value,))), memory.nbytes)
        case "memcpy", (target, source):
            return NodeParameters(node.kind, (word(target.address), word(source.address)), source.nbytes)
        case "graph", _:
            return NodeParameters(node.kind, inside=tuple(map(parameters, body_of(node.call))))
    return NodeParameters(node.kind, None)


def node_setter(executable: Executable, index: int) -> NodeSetter | None:
    """Return what changes a fill or a copy of an executable; None for other nodes."""
    node = executable.nodes[index]
    function = _FUNCTIONS.get(node.kind)
    if function is None:
        return None
    contents = parameters(node).blocks or ()
    buffers = [ctypes.create_string_buffer(each, len(each)) for each in contents]

    def apply() -> None:
        now, args, how, site = executable.call(index)
        numbers = [int.from_bytes(buffer.raw, "little") for buffer in buffers]
        executable.replace(index, (now, tuple(map(_like, args, numbers)), how, site))

    def enable(wanted: bool) -> None:
        _, args, how, site = executable.call(index)
        executable.replace(index, (function if wanted else _nothing, args, how, site))

    blocks = [(ctypes.addressof(each), len(each)) for each in buffers]
    return NodeSetter(node.kind, blocks, apply, enable, nbytes=node.call[1][0].nbytes)


def _like(old: Memory | int, number: int) -> Memory | int:
    """Return a number in the place of another: as memory of the same size, if that is memory."""
    if isinstance(old, Memory):
        return memory_of(number, old.nbytes, writable=False, device=False)
    return number


def _nothing(*args: object) -> None:
    """Stand for a call that is disabled."""


_FUNCTIONS: dict[str, Callable[..., None]] = {"memset": fill, "memcpy": copy}
