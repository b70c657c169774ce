"""Functions of the driver that are called without the binding.

The binding drops what the driver says about an update that it refuses, and it takes longer than the driver
where a thousand nodes are read, or one is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import CFUNCTYPE, ArgumentError, c_int, c_void_p
from typing import NamedTuple, NoReturn, Protocol

from .._shared import no_memory

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
    set_kernel: int
    """Addresses of the functions that set the parameters of a node in an executable."""
    set_memcpy: int
    set_memset: int


class Addresses(Protocol):
    """The part of the driver that the functions are looked up with."""

    calls: Calls | None

    def address(self, function: str, version: int) -> int:
        """Return the address of a function as CUDA `version` has it; 0 if the driver does not tell it."""

    def broke(self, function: str, error: Exception) -> NoReturn:
        """Raise the error for a function that is missing."""


def calls_of(driver: Addresses) -> Calls:
    """Return the functions, which are looked up once."""
    if driver.calls is None:
        edges = driver.address("cuGraphGetEdges", 12030)
        driver.calls = Calls(
            _address(driver, "cuGraphNodeGetType"),
            _address(driver, "cuGraphKernelNodeGetParams"),
            _address(driver, "cuGraphKernelNodeGetAttribute"),
            _function(_address(driver, "cuGraphGetNodes"), 3),
            _function(_address(driver, "cuGraphExecUpdate"), 3),
            _function(edges, 5) if edges else None,
            _address(driver, "cuGraphExecKernelNodeSetParams"),
            _address(driver, "cuGraphExecMemcpyNodeSetParams"),
            _address(driver, "cuGraphExecMemsetNodeSetParams"),
        )
    return driver.calls


def _function(address: int, arguments: int) -> Function:
    function = CFUNCTYPE(c_int, *(c_void_p,) * arguments)(address)

    def call(*values: int | None) -> int:
        try:
            code: int = function(*values)
        except ArgumentError as error:  # all of them have the right type
            raise no_memory(error) from error
        return code

    return call


def _address(driver: Addresses, name: str) -> int:
    address = driver.address(name, 12000)
    if not address:
        driver.broke(name, RuntimeError(f"there is no {name}"))
    return address
