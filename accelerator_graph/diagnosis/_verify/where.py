"""Where a graph is wrong: its nodes, as far as the description tells, and the modules of torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

from ...backends.base import GraphEdge, GraphNode
from ...errors import AcceleratorGraphError
from .case import Case, Expectation
from .places import Place, read_all
from .report import Finding
from .trial import Changing, OutOfTime, Run

_NO_WORK = ("empty", "event_record", "wait_event")
_MOST_PAIRS = 100_000
_MOST_BYTES = 1 << 30
"""How much memory the copies of modules' outputs may take."""


def _contents(case: Case) -> tuple[Sequence[GraphNode], Sequence[GraphEdge]]:
    """Return the nodes and edges of the graph, or of a new capture if it was not kept.

    None are known where the backend can't list them, and of a graph of the caller's that was not kept.
    """
    if case.described is None:
        case.described = _described(case)
        if case.described is None and not case.program.given_graph:
            with suppress(AcceleratorGraphError, Changing), case.trial.captured_anew():
                case.described = _described(case)
        case.described = case.described or ((), ())
    return case.described


def _described(case: Case) -> tuple[Sequence[GraphNode], Sequence[GraphEdge]] | None:
    with suppress(AcceleratorGraphError):
        if case.program.graph is not None:
            found = case.program.graph.describe()
            return found.nodes, found.edges
    return None


def unordered(case: Case) -> list[tuple[GraphNode, GraphNode]]:
    """Return the pairs of nodes that work and do not wait for each other, even indirectly."""
    nodes, edges = _contents(case)
    before = {node.id: 0 for node in nodes}
    sources: dict[int, list[int]] = {}
    for edge in edges:
        sources.setdefault(edge.target, []).append(edge.source)
    for node in nodes:  # in an order in which each comes after those that it waits for
        for source in sources.get(node.id, ()):
            before[node.id] |= before[source] | 1 << source
    working = [node for node in nodes if node.kind not in _NO_WORK]
    found = []
    for i, node in enumerate(working):
        for other in working[:i]:
            if not before[node.id] >> other.id & 1:
                found.append((other, node))
                if len(found) >= _MOST_PAIRS:
                    return found
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


def last_writer(case: Case, finding: Finding) -> str:
    """Return the last node that writes an array, as a clause; empty if that is not known.

    Of copies and fills the description tells where they write. A kernel, or a function of the host, may write
    anywhere: with one of them behind the last copy or fill, nothing is known.
    """
    outputs = [place for place in case.program.outputs if place.name == finding.array]
    if not outputs or outputs[0].extent is None:
        return ""
    found = _described(case)  # of this very graph: a new capture writes elsewhere
    for node in reversed(found[0] if found else ()):
        if node.kind in _NO_WORK:
            continue
        if node.kind not in ("memcpy", "memset") or node.target is None or node.nbytes is None:
            return ""
        if _meet(outputs[0].extent, _extent(node, node.target)):
            return f"node {node.id}, a {node.kind}"
    return ""


def first_wrong_module(case: Case) -> str:
    """Return which module's output is the first that is wrong, as a clause; empty if that is not known."""
    program = case.program
    modules = {} if program.given_graph else program.modules()
    if not modules:
        return ""
    before = program.python
    before.restore()
    with suppress(AcceleratorGraphError, Changing, OutOfTime), ExitStack() as hooks:
        hooks.callback(setattr, program, "python", before)
        outputs = Outputs(case, modules, hooks)
        program.python = program.look()[0]  # with the hooks, which are put back as well
        name = outputs.first_wrong()
        return f"the output of module {name!r}" if name else ""
    return ""


class Outputs:
    """Copies of what modules return, in the order in which they return."""

    def __init__(self, case: Case, modules: dict[str, Any], hooks: ExitStack) -> None:
        self._case = case
        self._program = case.program
        self._copies: list[Place] = []
        self._nbytes = 0
        for name, module in modules.items():
            handle = module.register_forward_hook(self._hook(name))
            hooks.callback(handle.remove)

    def _hook(self, name: str) -> Any:
        is_compiling = sys.modules["torch"].compiler.is_compiling

        def keep(module: Any, args: Any, result: Any) -> None:
            if is_compiling():  # inside a compiled module there are no such results
                return
            for place in self._program.arrays_of(result, name):
                self._nbytes += place.nbytes
                if self._nbytes <= _MOST_BYTES:
                    copy = place.array_type.copy(place.array)
                    self._copies.append(Place(copy, place.array_type, name))

        return keep

    def _taken(self) -> list[Place]:
        copies, self._copies, self._nbytes = self._copies, [], 0
        return copies

    def first_wrong(self) -> str:
        """Compare two eager runs with a replay of a new capture; return the name of the first difference."""
        case, trial, stream = self._case, self._case.trial, self._program.stream
        data, start = case.failed
        start = start or {}
        if case.follows_python:
            trial.eager(data, start=start)
        self._taken()
        runs = []
        places: list[Place] = []
        for filled in (0,) if case.follows_python else (0, 1):
            trial.eager(data, start=start, filled=filled, python=not case.follows_python)
            places = self._taken()
            runs.append(Run(read_all(stream, places)))
        with trial.captured_anew():
            captured = self._taken()[: len(places)]  # an eager run has followed
            trial.replay(data, start=start)
            replayed = Run(read_all(stream, captured))
        if len(captured) != len(places) or not all(map(Place.like, captured, places)):
            return ""
        expected = Expectation(places, runs, case.tolerance)
        wrong = [each.target for each in expected.mismatches(replayed, {}) if each.kind == "wrong"]
        return places[min(wrong)].name if wrong else ""
