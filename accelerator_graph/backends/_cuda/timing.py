"""Executables that record events between the nodes of a graph."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from .._shared.nodes import instantiate_copy, rerouted
from ..mixins import Events
from .driver import Driver, Event, Executable, Graph
from .node import dependencies, node_handles


def instantiate_timed(
    backend: Events, driver: Driver, graph: Graph, before: Sequence[int], after: Sequence[int]
) -> tuple[Executable, Sequence[Event]]:
    """Make an executable of a copy that has nodes which record events."""
    context = graph.place
    with driver.relaxed(context):
        return instantiate_copy(
            backend,
            lambda: Graph(driver.call("cuGraphClone", graph.handle), context),
            (Event(driver.call("cuEventCreate", 0), context) for _ in (*before, *after)),
            lambda copy, events: _add_events(driver, graph, copy, before, after, events),
        )


def _add_events(
    driver: Driver,
    graph: Graph,
    copy: Graph,
    before: Sequence[int],
    after: Sequence[int],
    events: Sequence[Event],
) -> None:
    """Let the copy of a graph record events before and after some of its nodes."""
    originals = node_handles(driver, graph.handle)
    data_of = {
        (source, target): _as_the_bindings(driver, data)
        for source, target, data in dependencies(driver, graph.handle, originals)
    }
    gone, new = rerouted(data_of, before, after, len(originals))
    nodes: dict[int, Any] = {}
    for index, event in enumerate(events, len(originals)):
        nodes[index] = driver.call("cuGraphAddEventRecordNode", copy.handle, None, 0, event.handle)
    for index in {index for edge in (*gone, *new) for index in edge}.difference(nodes):
        nodes[index] = driver.call("cuGraphNodeFindInClone", originals[index], copy.handle)
    for function, changed, told in (
        ("cuGraphRemoveDependencies", gone, [data_of[edge] for edge in gone]),
        ("cuGraphAddDependencies", new, None),
    ):
        if changed:
            sources, targets = ([nodes[index] for index in ends] for ends in zip(*changed, strict=True))
            # For CUDA 12 the binding has two functions. The one without the suffix takes no data of edges.
            name = f"{function}_v2" if hasattr(driver.api, f"{function}_v2") else function
            driver.call(name, copy.handle, sources, targets, told, len(changed))


def _as_the_bindings(driver: Driver, data: bytes) -> Any:
    """Return the data of a dependency as the binding's functions take it."""
    copy = driver.api.CUgraphEdgeData()
    ctypes.memmove(copy.getPtr(), data, len(data))
    return copy
