"""Functions of the driver that are called without the binding.

The binding drops what the driver says about an update that it refuses, and for a thousand nodes it takes
longer than the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int, c_void_p
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .driver import Driver

Function = Callable[..., int]

_VERSION = 12000
"""The version of CUDA whose functions these are."""


class Calls(NamedTuple):
    """Addresses for `call_each`, and functions of ctypes."""

    kind: int
    kernel: int
    attribute: int
    nodes: Function
    update: Function


def calls_of(driver: Driver) -> Calls:
    """Return the functions."""
    if driver.calls is None:
        driver.calls = Calls(
            _address(driver, "cuGraphNodeGetType"),
            _address(driver, "cuGraphKernelNodeGetParams"),
            _address(driver, "cuGraphKernelNodeGetAttribute"),
            _function(driver, "cuGraphGetNodes"),
            _function(driver, "cuGraphExecUpdate"),
        )
    return driver.calls


def _function(driver: Driver, name: str) -> Function:
    return CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)(_address(driver, name))


def _address(driver: Driver, name: str) -> int:
    address = driver.address(name, _VERSION)
    if not address:
        driver.broke(name, RuntimeError(f"there is no {name}"))
    return address
