"""The dependencies between a graph's nodes, with their data.

Up to cuda-python 13.3.0 the binding's own function returns data whose memory it has released
(cuda-python#1804), so the driver's is called here.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from ctypes import byref, c_ubyte
from typing import Any, NamedTuple

from .driver import Driver
from .raw_calls import calls_of

_NAME = "cuGraphGetEdges"
_WORD = 8
"""The size of a handle, and of the data of a dependency."""


class Data(ctypes.Structure):
    """`CUgraphEdgeData`."""

    _fields_ = (("from_port", c_ubyte), ("to_port", c_ubyte), ("type", c_ubyte), ("reserved", c_ubyte * 5))


class Dependency(NamedTuple):
    """A dependency between two nodes, which are indices."""

    source: int
    target: int
    data: Data


def raw_edges(driver: Driver, graph: int) -> tuple[bytes, bytes, bytes]:
    """Return the sources, the targets and the data of a graph's dependencies."""
    function, count = calls_of(driver).edges, array("Q", (0,))
    if function is None:
        driver.broke(_NAME, RuntimeError(f"there is no {_NAME} of CUDA 12.3"))
    place = count.buffer_info()[0]
    driver.check(_NAME, function(graph, None, None, None, place))
    found = [array("Q", bytes(_WORD * count[0])) for _ in range(3)]
    if count[0]:
        driver.check(_NAME, function(graph, *(each.buffer_info()[0] for each in found), place))
    sources, targets, data = (each.tobytes() for each in found)
    return sources, targets, data


def dependencies(driver: Driver, graph: Any, handles: Sequence[Any]) -> list[Dependency]:
    """Return the dependencies between the nodes of a graph, whose handles these are."""
    sources, targets, data = raw_edges(driver, int(graph))
    index_of = {int(handle): index for index, handle in enumerate(handles)}
    ends = (map(index_of.__getitem__, memoryview(each).cast("Q")) for each in (sources, targets))
    each_data = (Data.from_buffer_copy(data, at) for at in range(0, len(data), _WORD))
    return list(map(Dependency, *ends, each_data))


def as_the_bindings(driver: Driver, data: Data) -> Any:
    """Return the data of a dependency as the binding's functions take it."""
    copy = driver.api.CUgraphEdgeData()
    ctypes.memmove(copy.getPtr(), byref(data), ctypes.sizeof(data))
    return copy
