"""Looking into a recorded graph, and timing its parts."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from numbers import Number
from types import NoneType

from ..base import GraphContents, GraphEdge, GraphNode
from ..memory import Memory
from .graph import Node, body_of
from .work import Call, code_of, whole_call
from .worker import Latch, Worker

_COPIES, _FILLS = ("source", "target", "enabled"), ("target", "value", "enabled")
"""What can be changed of them in an executable."""


def list_nodes(nodes: Sequence[Node]) -> GraphContents:
    """Return the recorded calls and the dependencies between them, and those of the graphs inside."""
    listed = [_listed(index, node) for index, node in enumerate(nodes)]
    return listed, [GraphEdge(source, target) for target, node in enumerate(nodes) for source in node.after]


def _listed(index: int, node: Node) -> GraphNode:
    listed = GraphNode(index, node.kind, node.name)
    match node.kind, node.call[1]:
        case "memset", (memory, value):
            return listed._replace(target=memory.address, nbytes=memory.nbytes, value=value, settable=_FILLS)
        case "memcpy", (target, source):
            return listed._replace(
                target=target.address, source=source.address, nbytes=source.nbytes, settable=_COPIES
            )
        case "graph", _:
            return listed._replace(bodies=(list_nodes(body_of(node.call)),))
    function, args, how = whole_call(node.call)
    words = [*map(_shown, args), *(f"{name}={_shown(value)}" for name, value in how.items())]
    call = "" if all(word.endswith(_LARGE) for word in words) else f"({', '.join(words)})"
    code = code_of(function)
    if code is None:
        return listed._replace(call=call)
    return listed._replace(call=call, file=code.co_filename, line=code.co_firstlineno)


_LARGE = "..."
_LONGEST = 40
"""How many characters of an argument are shown."""


def _shown(value: object) -> str:
    """Return a small argument as Python writes it. Numbers that may be addresses are not small."""
    kind = type(value)
    if kind in (tuple, list) and len(value) < _LONGEST:  # type: ignore[arg-type]
        parts = [_shown(part) for part in value]  # type: ignore[attr-defined]
        text = ("({})" if kind is tuple else "[{}]").format(", ".join(parts))
        return _LARGE if any(part.endswith(_LARGE) for part in parts) or len(text) > _LONGEST else text
    if kind not in (bool, int, float, complex, str, bytes, NoneType):
        try:
            if not isinstance(value, Number):
                return _LARGE
            value = value.item()  # type: ignore[attr-defined]
        except Exception:  # of somebody else's class
            return _LARGE
    if isinstance(value, int) and abs(value) >= 1 << 32:
        return _LARGE
    text = repr(value)
    return text if len(text) <= _LONGEST else _LARGE


def host_bytes(nodes: Sequence[Node]) -> int:
    """Return the size of recorded calls, without the callables and the arguments themselves."""
    return sum(sys.getsizeof(part) for node in nodes for part in (node, node.after, *_own(node.call)))


def held_memory(nodes: Sequence[Node]) -> list[range]:
    """Return the memory that fills and copies keep alive, those of recorded replays included."""
    found: list[range] = []
    for node in nodes:
        if node.kind == "graph":
            found += held_memory(body_of(node.call))
        elif node.kind in ("memset", "memcpy"):
            memories = (each for each in node.call[1] if isinstance(each, Memory))
            found += [
                range(each.address, each.address + each.nbytes) for each in memories if each.owner is not None
            ]
    return found


def _own(call: Call) -> tuple[object, ...]:
    """Return what a recorded call consists of, without what belongs to the program."""
    _, args, how, _ = call
    return call, args, how


# ---- times ---------------------------------------------------------------------------------------


class Mark(Latch):
    """A latch that every run of a graph reaches anew."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Worker())

    def __call__(self) -> None:
        """Note the time."""
        self.time = time.perf_counter_ns()
        if not self.is_set:
            self.set()


def with_marks(
    nodes: Sequence[Node], before: Sequence[int], after: Sequence[int]
) -> tuple[list[Node], list[Mark]]:
    """Return the nodes with marks before and after some of them, and those marks, in that order."""
    ahead, behind = {index: Mark() for index in before}, {index: Mark() for index in after}
    found: list[Node] = []
    end: list[int] = []  # by node: what the nodes that depended on it depend on now
    for index, node in enumerate(nodes):
        waits = tuple(end[earlier] for earlier in node.after)
        if index in ahead:
            found.append(_marking(ahead[index], waits, node.branch))
            waits = (len(found) - 1,)
        found.append(node._replace(after=waits))
        if index in behind:
            found.append(_marking(behind[index], (len(found) - 1,), node.branch))
        end.append(len(found) - 1)
    return found, [*ahead.values(), *behind.values()]


def _marking(mark: Mark, after: tuple[int, ...], branch: int) -> Node:
    return Node("event_record", "", (mark, (), {}, None), after, branch)
