"""Executables that record events between the nodes of a graph."""

from __future__ import annotations

from collections.abc import Sequence

from .._shared.nodes import instantiate_copy, rerouted
from ..driver import Event
from ..mixins import Events
from .driver import Driver, Graph
from .launch import Executable
from .nodes import add_dependencies, in_order, remove_dependencies


def instantiate_timed(
    backend: Events, driver: Driver, graph: Graph, before: Sequence[int], after: Sequence[int]
) -> tuple[Executable, Sequence[Event]]:
    """Make an executable of a copy that has nodes which record events."""
    device, timed = graph.place, int(driver.api.hipEventDefault)
    with driver.relaxed(device):
        return instantiate_copy(
            backend,
            lambda: Graph(driver.call("hipGraphClone", graph.handle), device),
            (Event(driver.call("hipEventCreateWithFlags", timed), device) for _ in (*before, *after)),
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
    originals, edges = in_order(driver, graph.handle)
    index_of = {handle: index for index, handle in enumerate(originals)}
    ends = [(index_of[source], index_of[target]) for source, target in edges]
    gone, new = rerouted(ends, before, after, len(originals))
    nodes: dict[int, int] = {}
    for index, event in enumerate(events, len(originals)):
        nodes[index] = driver.call("hipGraphAddEventRecordNode", copy.handle, None, 0, event.handle)
    for index in {index for edge in (*gone, *new) for index in edge}.difference(nodes):
        nodes[index] = driver.call("hipGraphNodeFindInClone", originals[index], copy.handle)
    for change, changed in ((remove_dependencies, gone), (add_dependencies, new)):
        if changed:
            change(driver, copy.handle, [(nodes[source], nodes[target]) for source, target in changed])
