"""Where a graph is wrong: branches that use one memory, and the modules of torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

from ...backends.base import GraphEdge, GraphNode
from ...errors import AcceleratorGraphError
from .case import Case, Expectation
from .places import Place, read_all
from .trial import Changing, OutOfTime

_Contents = tuple[Sequence[GraphNode], Sequence[GraphEdge]]
_NO_WORK = ("empty", "event_record", "wait_event")
_MOST_PAIRS = 100_000
_MOST_BYTES = 1 << 30
"""How much memory the copies of modules' outputs may take."""


def _contents(case: Case) -> _Contents:
    """Return the nodes and edges of the graph, or of a new capture if it was not kept.

    None are known where the backend can't list them, and of a graph of the caller's that was not kept.
    """
    if case.described is None:
        case.described = _described(case)
        if not case.described[0] and not case.program.given_graph:
            with suppress(AcceleratorGraphError, Changing), case.trial.captured_anew():
                case.described = _described(case)
    return case.described


def _described(case: Case) -> _Contents:
    with suppress(AcceleratorGraphError):
        if case.program.graph is not None:
            found = case.program.graph.describe()
            return found.nodes, found.edges
    return (), ()


def unordered(case: Case) -> list[tuple[GraphNode, GraphNode]]:
    """Return the pairs of nodes that work and do not wait for each other, even indirectly."""
    nodes, edges = _contents(case)
    before = dict.fromkeys((node.id for node in nodes), 0)
    for edge in sorted(edges, key=lambda edge: edge.target):  # which comes after all that it waits for
        before[edge.target] |= before[edge.source] | 1 << edge.source
    found: list[tuple[GraphNode, GraphNode]] = []
    working = 0
    for node in nodes:
        if node.kind in _NO_WORK or len(found) >= _MOST_PAIRS:
            continue
        rest = working & ~before[node.id]
        while rest:
            found.append((nodes[rest.bit_length() - 1], node))
            rest ^= 1 << (rest.bit_length() - 1)
        working |= 1 << node.id
    return found


def conflict(case: Case) -> str:
    """Return how two branches use the same memory at once, as a clause; empty if no copies and fills do."""
    for one, other in unordered(case):
        for a, b in ((one, other), (other, one)):
            written = _extent(a, a.target)
            if written is None or a.kind not in ("memcpy", "memset"):
                continue
            if b.kind in ("memcpy", "memset") and _meet(written, _extent(b, b.target)):
                alike = a.kind == b.kind and a.value == b.value
                if alike and (a.source, a.target) == (b.source, b.target if a.source else a.target):
                    continue  # they write the same bytes
                verb = "write"
            elif b.kind == "memcpy" and _meet(written, _extent(b, b.source)):
                verb = "write and read"
            else:
                continue
            return (
                f"node {a.id}, a {a.kind}, and node {b.id}, a {b.kind}, {verb} the same memory, and neither "
                "waits for the other"
            )
    return ""


def _extent(node: GraphNode, address: int | None) -> tuple[int, int] | None:
    return None if address is None or not node.nbytes else (address, address + node.nbytes)


def _meet(one: tuple[int, int], other: tuple[int, int] | None) -> bool:
    return other is not None and one[0] < other[1] and other[0] < one[1]


def first_wrong_module(case: Case) -> str:
    """Return which module's output is the first that is wrong, as a clause; empty if that is not known.

    Copies of what modules return, in two eager runs, are compared with those of a replay of a new capture.
    """
    program, python = case.program, case.program.python
    modules = {} if program.given_graph else program.modules()
    if not modules:
        return ""
    python.restore()
    with suppress(AcceleratorGraphError, Changing, OutOfTime), ExitStack() as hooks:
        hooks.callback(setattr, program, "python", python)
        copies: list[Place] = []
        for name, module in modules.items():
            hooks.callback(module.register_forward_hook(_keeper(case, name, copies)).remove)
        program.python = program.look()[0]  # with the hooks, which are put back as well
        name = _first_wrong(case, copies)
        return f"the output of module {name!r}" if name else ""
    return ""


def _keeper(case: Case, name: str, copies: list[Place]) -> Any:
    """Return a hook that copies what a module returns, as long as there is memory for it."""
    is_compiling = sys.modules["torch"].compiler.is_compiling

    def keep(module: Any, args: Any, result: Any) -> None:
        if is_compiling():  # inside a compiled module there are no such results
            return
        for place in case.program.arrays_of(result, name):
            if sum(copy.nbytes for copy in copies) + place.nbytes <= _MOST_BYTES:
                copy = place.array_type.copy(place.array)
                copies.append(Place(copy, place.array_type, name))

    return keep


def _first_wrong(case: Case, copies: list[Place]) -> str:
    """Return the name of the first module whose output differs in a replay."""
    trial, stream = case.trial, case.program.stream
    begin, follows = case.failed, case.follows_python
    if follows:
        trial.eager(begin)
    runs = []
    for filled in (0,) if follows else (0, 1):
        copies.clear()
        trial.eager(begin, filled=filled, python=not follows)
        places = list(copies)
        runs.append(read_all(stream, places))
    copies.clear()
    with trial.captured_anew():
        captured = copies[: len(places)]  # an eager run has followed
        trial.replay(begin)
        replayed = read_all(stream, captured)
    as_many = all(len(run) == len(captured) for run in runs)
    if not as_many or not all(map(Place.like, captured, places)):
        return ""
    found = Expectation(places, runs, case.tolerance, {}).mismatches(replayed)
    return next((places[each.target].name for each in found if not each.rounding), "")
