"""One beginning and one end for a graph while it is instantiated.

HIP 7.2 runs the branches of a graph on streams of its own, and forgets to let the first ones wait for what is
ahead of the graph on the launch stream, its own previous run included (rocm-systems#3131). Of the last ones
it waits only for those on the deepest level. A graph that begins and ends with one node has neither problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_void_p

from ._hip_driver import Driver
from ._hip_nodes import dependencies, node_handles, root_count


@contextmanager
def one_of_each(driver: Driver, graph: int) -> Iterator[None]:
    """Add an empty first and an empty last node for as long as the context lasts, where they are needed.

    An executable is a copy, and keeps them.
    """
    added: list[int] = []
    try:
        _add(driver, graph, added)
        yield
    finally:
        for node in added:
            driver.answer("hipGraphDestroyNode", node)


def _add(driver: Driver, graph: int, added: list[int]) -> None:
    several_roots = root_count(driver, graph) > 1
    edges = dependencies(driver, graph)
    sources = {source for source, _ in edges}
    nodes = node_handles(driver, graph)
    leaves = [node for node in nodes if node not in sources]
    if len(leaves) > 1:
        array = (c_void_p * len(leaves))(*leaves)
        added.append(driver.call("hipGraphAddEmptyNode", graph, array, len(leaves)))
    if several_roots:
        targets = {target for _, target in edges}
        roots = [node for node in nodes if node not in targets]
        first = driver.call("hipGraphAddEmptyNode", graph, None, 0)
        added.append(first)
        firsts = (c_void_p * len(roots))(*[first] * len(roots))
        driver.call("hipGraphAddDependencies", graph, firsts, (c_void_p * len(roots))(*roots), len(roots))
