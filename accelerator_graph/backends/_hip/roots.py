"""One root for a graph while it is instantiated.

HIP 7.2 runs the branches of a graph on streams of its own. It does not let the first nodes of all branches
wait for earlier work on the launch stream, which includes the graph's own previous run (rocm-systems#3131).
A graph that begins with one node does not have that problem.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from .driver import Driver
from .topology import add_dependencies, dependencies, extra_node, node_handles, root_count


def one_root(driver: Driver, graph: int) -> AbstractContextManager[None]:
    """Give a graph with several roots an empty first node for as long as the context lasts.

    An executable is a copy of the graph, and keeps the node.
    """
    if root_count(driver, graph) < 2:
        return nullcontext()

    targets = {target for _, target in dependencies(driver, graph)}
    roots = [node for node in node_handles(driver, graph) if node not in targets]
    return extra_node(
        driver, graph, lambda first: add_dependencies(driver, graph, [(first, root) for root in roots])
    )
