"""One root for a graph while it is instantiated.

HIP 7.2 runs the branches of a graph on streams of its own. It does not let the first nodes of all branches
wait for earlier work on the launch stream, which includes the graph's own previous run (rocm-systems#3131).
A graph that begins with one node does not have that problem.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from ctypes import byref, c_void_p

from ..._interpreter.sure_exit import Between
from .._shared.keeping import keep
from .driver import Driver
from .nodes import dependencies, node_handles, root_count


def one_root(driver: Driver, graph: int) -> AbstractContextManager[None]:
    """Give a graph with several roots an empty first node for as long as the context lasts.

    An executable is a copy of the graph, and keeps the node.
    """
    add, destroy = driver.function("hipGraphAddEmptyNode"), driver.function("hipGraphDestroyNode")
    first = c_void_p()
    codes: list[int] = []

    def begin() -> None:
        if root_count(driver, graph) < 2:
            return
        targets = {target for _, target in dependencies(driver, graph)}
        roots = [node for node in node_handles(driver, graph) if node not in targets]
        keep(codes, add, byref(first), graph, None, 0)
        driver.checked("hipGraphAddEmptyNode", (codes[0],))
        sources = (c_void_p * len(roots))(*[first.value] * len(roots))
        driver.call("hipGraphAddDependencies", graph, sources, (c_void_p * len(roots))(*roots), len(roots))

    def end() -> None:
        if codes == [0]:
            keep(codes, destroy, first)  # so that a second call does nothing

    return Between(begin, end)
