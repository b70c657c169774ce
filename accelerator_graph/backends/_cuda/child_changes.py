"""Changing child graphs in an executable: the driver takes their nodes as it takes the graph's own."""

from __future__ import annotations

from typing import Any

from ..base import NodeSetter
from . import changes, nodes
from .driver import Driver, Executable, Graph

_WITH_MEMORY = frozenset(("kernel", "memcpy", "memset", "mem_alloc", "mem_free", "conditional"))


def node_setter(driver: Driver, graph: Graph, executable: Executable, index: int) -> NodeSetter | None:
    """Return what changes one kernel, copy or fill, or all of a child graph; None for other nodes."""
    handle = nodes.node_handle(driver, graph.handle, index)
    if nodes.kind_of(driver, handle) != "graph":
        return changes.setter_of(driver, handle, executable, graph.context)
    inside = _setters(driver, handle, executable, graph.context)
    return (
        None
        if None in inside
        else NodeSetter.together("graph", [each for each in inside if each is not None])
    )


def _setters(driver: Driver, handle: Any, executable: Executable, context: Any) -> list[NodeSetter | None]:
    """Return what changes the nodes of a child graph; None for those with memory that can't be changed."""
    found: list[NodeSetter | None] = []
    for node in nodes.node_handles(driver, driver.call("cuGraphChildGraphNodeGetGraph", handle)):
        kind = nodes.kind_of(driver, node)
        if kind == "graph":
            found += _setters(driver, node, executable, context)
        elif kind in _WITH_MEMORY:
            setter = changes.setter_of(driver, node, executable, context)
            unknown = setter is not None and kind != "kernel" and not setter.blocks
            found.append(None if unknown else setter)
    return found
