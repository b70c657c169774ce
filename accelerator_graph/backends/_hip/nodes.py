"""The nodes of a graph as handles, the dependencies between them, and one root for a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from ctypes import Array, byref, c_size_t, c_void_p
from itertools import pairwise

from ..._interpreter.interruptions import Between
from .._shared import keep
from .driver import Driver

Edge = tuple[int, int]
"""The handles of the nodes at both ends of a dependency."""


def node_handles(driver: Driver, graph: int) -> list[int]:
    """Return the handles of a graph's nodes."""
    count = c_size_t(driver.node_count(graph))
    if not count.value:
        return []
    handles = (c_void_p * count.value)()
    driver.call("hipGraphGetNodes", graph, handles, byref(count))
    return list(handles[: count.value])  # type: ignore[arg-type]


def root_count(driver: Driver, graph: int) -> int:
    """Return the number of a graph's nodes that depend on no other node."""
    count = c_size_t()
    driver.call("hipGraphGetRootNodes", graph, None, byref(count))
    return count.value


def dependencies(driver: Driver, graph: int) -> list[Edge]:
    """Return the dependencies between a graph's nodes."""
    count = c_size_t()
    driver.call("hipGraphGetEdges", graph, None, None, byref(count))
    if not count.value:
        return []
    sources, targets = (c_void_p * count.value)(), (c_void_p * count.value)()
    driver.call("hipGraphGetEdges", graph, sources, targets, byref(count))
    return list(zip(sources, targets, strict=True))


def add_dependencies(driver: Driver, graph: int, edges: Sequence[Edge]) -> None:
    """Add dependencies to a graph."""
    driver.call("hipGraphAddDependencies", graph, *_both_ends(edges), len(edges))


def remove_dependencies(driver: Driver, graph: int, edges: Sequence[Edge]) -> None:
    """Take dependencies out of a graph."""
    driver.call("hipGraphRemoveDependencies", graph, *_both_ends(edges), len(edges))


def _both_ends(edges: Sequence[Edge]) -> Iterator[Array[c_void_p]]:
    return ((c_void_p * len(edges))(*ends) for ends in zip(*edges, strict=True))


def extra_node(driver: Driver, graph: int, use: Callable[[int], None]) -> AbstractContextManager[None]:
    """Add an empty node to a graph for as long as the context lasts; `use` is called with it first."""
    add, destroy = driver.function("hipGraphAddEmptyNode"), driver.function("hipGraphDestroyNode")
    node = c_void_p()
    codes: list[int] = []

    def begin() -> None:
        keep(codes, add, byref(node), graph, None, 0)
        driver.checked("hipGraphAddEmptyNode", (codes[0],))
        use(node.value or 0)

    def end() -> None:
        if codes == [0]:
            keep(codes, destroy, node)  # so that a second call does nothing

    return Between(begin, end)


def in_order(driver: Driver, graph: int) -> tuple[list[int], list[Edge]]:
    """Return a graph's nodes, in the order in which they were recorded, and its dependencies.

    AMD's runtime sorts the nodes by their dependencies. But it lists the dependencies in the order in which
    their sources were recorded, so every node that is no source becomes one for a moment. A runtime that
    lists a new node without dependencies last does not sort.
    """
    nodes, edges = node_handles(driver, graph), dependencies(driver, graph)
    if edges == list(pairwise(nodes)):  # a line
        return nodes, edges
    last = sorted(set(nodes).difference(source for source, _ in edges))

    def use(extra: int) -> None:
        if node_handles(driver, graph)[-1] == extra:
            return
        add_dependencies(driver, graph, [(node, extra) for node in last])
        nodes[:] = dict.fromkeys(source for source, _ in dependencies(driver, graph))

    with extra_node(driver, graph, use):
        return nodes, edges


def one_root(driver: Driver, graph: int) -> AbstractContextManager[None]:
    """Give a graph with several roots an empty first node for as long as the context lasts.

    An executable is a copy of the graph, and keeps the node. Without it, HIP 7.2, which runs the branches of
    a graph on streams of its own, does not let the first nodes of all branches wait for earlier work on the
    launch stream, which includes the graph's own previous run (rocm-systems#3131).
    """
    if root_count(driver, graph) < 2:
        return nullcontext()

    targets = {target for _, target in dependencies(driver, graph)}
    roots = [node for node in node_handles(driver, graph) if node not in targets]
    return extra_node(
        driver, graph, lambda first: add_dependencies(driver, graph, [(first, root) for root in roots])
    )
