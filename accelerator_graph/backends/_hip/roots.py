"""One root for a graph while it is instantiated.

HIP 7.2 runs the branches of a graph on streams of its own, and forgets to let the first ones wait for what is
ahead of the graph on the launch stream, its own previous run included (rocm-systems#3131). A graph that
begins with one node does not have that problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_void_p

from .driver import Driver
from .nodes import dependencies, node_handles, root_count


@contextmanager
def one_root(driver: Driver, graph: int) -> Iterator[None]:
    """Give a graph with several roots an empty first node for as long as the context lasts.

    An executable is a copy, and keeps it.
    """
    add, destroy = driver.function("hipGraphAddEmptyNode"), driver.function("hipGraphDestroyNode")
    first = c_void_p()
    place = byref(first)
    codes: list[int] = []
    try:
        if root_count(driver, graph) > 1:
            targets = {target for _, target in dependencies(driver, graph)}
            roots = [node for node in node_handles(driver, graph) if node not in targets]
            codes.extend(map(add, (place,), (graph,), (None,), (0,)))  # nothing of ours before it is kept
            driver.checked("hipGraphAddEmptyNode", (codes[0],))
            firsts = (c_void_p * len(roots))(*[first.value] * len(roots))
            driver.call("hipGraphAddDependencies", graph, firsts, (c_void_p * len(roots))(*roots), len(roots))
        yield
    finally:
        if codes == [0]:
            destroy(first)
