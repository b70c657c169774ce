"""Functions of the driver that are called without the binding.

The binding drops what the driver says about an update that it refuses, and for a thousand nodes it takes
longer than the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int, c_void_p
from typing import NamedTuple

Function = Callable[..., int]


class Calls(NamedTuple):
    """Addresses for `call_each`, and functions of ctypes."""

    kind: int
    kernel: int
    attribute: int
    nodes: Function
    update: Function
    edges: Function | None
    """None before CUDA 12.3."""


def look_up(address: Callable[[str], int], edges: int) -> Calls:
    """Return the functions, whose addresses `address` tells; that of ``cuGraphGetEdges``, or 0, is given."""
    return Calls(
        address("cuGraphNodeGetType"),
        address("cuGraphKernelNodeGetParams"),
        address("cuGraphKernelNodeGetAttribute"),
        _function(address("cuGraphGetNodes"), 3),
        _function(address("cuGraphExecUpdate"), 3),
        _function(edges, 5) if edges else None,
    )


def _function(address: int, arguments: int) -> Function:
    return CFUNCTYPE(c_int, *(c_void_p,) * arguments)(address)
