"""Giving an executable the work of another graph."""

from __future__ import annotations

from ctypes import byref

from .._shared.nodes import Shape, difference
from ..base import Misfit
from .driver import Driver, Graph
from .launch import Executable
from .node import KernelParameters, kind_of
from .nodes import in_order, one_root

_KINDS = frozenset(("kernel", "memset", "empty"))
"""The nodes that are updated in place. For a copy to or from memory of another kind than before, HIP 7.2
answers success and goes on making the former copy."""


def update(driver: Driver, executable: Executable, former: Graph, graph: Graph) -> Misfit | None:
    """Update an executable in place; or return what does not fit, with nothing changed.

    The runtime changes one node after the other, so whatever it refuses may have been done in part.
    """
    with driver.relaxed(graph.place):
        misfit = difference(shape_of(driver, former.handle), shape_of(driver, graph.handle))
        if misfit is None:
            with one_root(driver, graph.handle):
                driver.call("hipGraphExecUpdate", executable.handle, graph.handle)
    return misfit


def shape_of(driver: Driver, graph: int) -> Shape:
    """Return the shape of a graph."""
    handles, pairs = in_order(driver, graph)
    kinds = [kind_of(driver, handle) for handle in handles]
    numbered = list(enumerate(kinds))
    functions = [_function(driver, handles[n]) if kind == "kernel" else None for n, kind in numbered]
    unfit = (
        Misfit(f"a {kind} node is not updated in place", n) for n, kind in numbered if kind not in _KINDS
    )
    number_of = {handle: number for number, handle in enumerate(handles)}
    edges = sorted((number_of[a], number_of[b]) for a, b in pairs)
    return Shape(kinds, functions, (), edges, next(unfit, None))


def _function(driver: Driver, node: int) -> int | None:
    found = KernelParameters()
    driver.call("hipGraphKernelNodeGetParams", node, byref(found))
    function: int | None = found.function
    return function
