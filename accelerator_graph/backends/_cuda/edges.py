"""The dependencies between a graph's nodes, with their data.

Up to cuda-python 13.3.0 the binding's own function returns data whose memory it has released
(cuda-python#1804), so the driver's is called here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_ubyte, c_void_p
from typing import Any, NamedTuple

from .driver import Driver

_NAME = "cuGraphGetEdges"

Function = ctypes.CFUNCTYPE(c_int, *(c_void_p,) * 5)
"""Makes the driver's function of its address."""


class Data(ctypes.Structure):
    """`CUgraphEdgeData`."""

    _fields_ = (("from_port", c_ubyte), ("to_port", c_ubyte), ("type", c_ubyte), ("reserved", c_ubyte * 5))


class Dependency(NamedTuple):
    """A dependency between two nodes, which are indices."""

    source: int
    target: int
    data: Data


def dependencies(driver: Driver, graph: Any, handles: Sequence[Any]) -> list[Dependency]:
    """Return the dependencies between the nodes of a graph, whose handles these are."""
    if not driver.edges_address:
        driver.broke(_NAME, RuntimeError(f"there is no {_NAME} of CUDA 12.3"))
    function, count = Function(driver.edges_address), c_size_t()

    def get(*arrays: Any) -> None:
        code = function(int(graph), *arrays, byref(count))
        if code:
            driver.answered(_NAME, code)

    get(None, None, None)
    if not count.value:
        return []
    sources, targets = (c_void_p * count.value)(), (c_void_p * count.value)()
    data = (Data * count.value)()
    get(sources, targets, data)
    index_of = {int(handle): index for index, handle in enumerate(handles)}
    ends = zip(sources, targets, data, strict=True)
    return [Dependency(index_of[source], index_of[target], each) for source, target, each in ends]


def as_the_bindings(driver: Driver, data: Data) -> Any:
    """Return the data of a dependency as the binding's functions take it."""
    copy = driver.api.CUgraphEdgeData()
    ctypes.memmove(copy.getPtr(), byref(data), ctypes.sizeof(data))
    return copy
