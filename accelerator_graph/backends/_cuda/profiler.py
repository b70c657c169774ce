"""When single nodes run, by CUPTI's records of activity, through the package cupti-python."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import RLock
from typing import Any, NamedTuple

from ...errors import UnsupportedError
from .._shared.nodes import release
from ..base import GraphNode
from ..mixins import TimesGraphs

_ACTIVITIES = {"kernel": "CONCURRENT_KERNEL", "memcpy": "MEMCPY", "memset": "MEMSET"}
"""The kinds of CUPTI's activities by those of the nodes that it sees."""

_BUFFER_BYTES = 8 << 20

_lock = RLock()
"""Held while activities are recorded: the process has one place for the records."""


class Record(NamedTuple):
    """One node's work in one run."""

    run: tuple[int, int]
    """The number of the graph, and that of the launch."""
    node: int
    """CUPTI's number of the node; 0 for work that belongs to no graph."""
    kind: str
    name: str
    grid: tuple[int, int, int] | None
    nbytes: int | None
    begin: int
    end: int
    """In nanoseconds."""


def time_nodes(
    backend: TimesGraphs, graph: Any, stream: Any, runs: int
) -> Sequence[Mapping[int, tuple[float, float]]]:
    """Run a copy of a graph, and return when its nodes ran."""
    nodes, _ = backend.nodes(graph)
    with recording() as records:
        executable, _ = backend.instantiate_timed(graph, (), ())
        try:
            for _ in range(runs):
                backend.replay(executable, stream)
            backend.synchronize(stream)
        finally:
            release(backend.destroy_executable, executable)
    return matched(records, nodes, runs)


@contextmanager
def recording() -> Iterator[list[Record]]:
    """Record activities into a list, which is complete when the context ends.

    Raises
    ------
    UnsupportedError
        The package, or the library below it, is missing or can't be used.
    """
    cupti = _import()
    kinds = {int(getattr(cupti.ActivityKind, name)): kind for kind, name in _ACTIVITIES.items()}
    records: list[Record] = []

    def completed(activities: list[Any]) -> None:  # CUPTI calls it, from any thread
        records.extend(_read(each, kinds[each.kind]) for each in activities if each.kind in kinds)

    with _lock:
        with _refused(cupti), ExitStack() as undo:
            cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), completed)
            for kind in kinds:
                cupti.activity_enable(kind)
                undo.callback(cupti.activity_disable, kind)
            disable = undo.pop_all()
        try:
            yield records
        finally:
            with _refused(cupti), disable:
                cupti.activity_flush_all(1)


def matched(
    records: Sequence[Record], nodes: Sequence[GraphNode], runs: int
) -> list[Mapping[int, tuple[float, float]]]:
    """Return the times of the nodes in each run.

    CUPTI numbers the nodes of an executable in the order of the graph's. That is not promised, so the names
    and sizes of all nodes are compared.

    Raises
    ------
    UnsupportedError
        The records are not those of the nodes.
    """
    seen = [node for node in nodes if node.kind in _ACTIVITIES]
    by_run: dict[tuple[int, int], list[Record]] = {}
    for record in records:
        if record.node:
            by_run.setdefault(record.run, []).append(record)
    found: list[Mapping[int, tuple[float, float]]] = []
    for run in by_run.values():
        run.sort(key=lambda record: record.node)
        if len(run) == len(seen) and all(map(_is, run, seen)):
            first = min(each.begin for each in run)  # the numbers are too large for a float
            pairs = zip(run, seen, strict=True)
            found.append(
                {node.id: ((each.begin - first) / 1000, (each.end - first) / 1000) for each, node in pairs}
            )
    if not seen or len(found) != runs:
        raise UnsupportedError(
            "backend 'cuda': CUPTI's records could not be matched with the nodes of the graph, so the times "
            "of single nodes are not known; use Nsight Systems."
        )
    return found


def _is(record: Record, node: GraphNode) -> bool:
    """Return True if a record can be a node's."""
    if record.kind != node.kind:
        return False
    if node.kind == "kernel":
        return record.name == node.name and record.grid == node.grid
    return record.nbytes == node.nbytes


def _read(activity: Any, kind: str) -> Record:
    kernel = kind == "kernel"
    return Record(
        (activity.graph_id, activity.correlation_id),
        activity.graph_node_id,
        kind,
        activity.name if kernel else "",
        (activity.grid_x, activity.grid_y, activity.grid_z) if kernel else None,
        None if kernel else activity.bytes,
        activity.start,
        activity.end,
    )


def _import() -> Any:
    try:
        return importlib.import_module("cupti.cupti")
    except ImportError as error:
        raise UnsupportedError(
            "backend 'cuda': single nodes are timed by CUPTI, and cupti-python can't be imported "
            f"({error}). Install it with: pip install cupti-python"
        ) from error


@contextmanager
def _refused(cupti: Any) -> Iterator[None]:
    """Raise `UnsupportedError` for what CUPTI answers, or if its library can't be loaded."""
    try:
        yield
    except (cupti.cuptiError, RuntimeError, OSError) as error:
        raise UnsupportedError(
            f"backend 'cuda': CUPTI can't be used here ({error}); end other profilers, or install "
            "nvidia-cuda-cupti in the driver's version."
        ) from error
