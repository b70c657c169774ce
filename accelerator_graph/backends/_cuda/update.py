"""Giving an executable the work of another graph."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_void_p

from .._shared.shapes import difference
from ..base import Misfit
from .driver import Driver, Executable, Graph
from .raw_calls import calls_of
from .shape import handles_of, shape_of

_NOT_UPDATED = 910


class _Result(ctypes.Structure):
    """``CUgraphExecUpdateResultInfo``."""

    _fields_ = (("result", c_int), ("node", c_void_p), ("from_node", c_void_p))


def update(driver: Driver, executable: Executable, former: Graph, graph: Graph) -> Misfit | None:
    """Update an executable in place; or return what does not fit, with nothing changed."""
    calls = calls_of(driver)
    if calls.edges is None:
        return Misfit("the driver does not support CUDA 12.3")
    with driver.current(graph.context):
        old = executable.shape or shape_of(driver, calls, int(former.handle))
        new = shape_of(driver, calls, int(graph.handle))
        misfit = difference(old, new)
        if misfit is not None:
            return misfit
        answer = _Result()
        code = calls.update(int(executable.handle), int(graph.handle), ctypes.addressof(answer))
        if code == _NOT_UPDATED:
            handles = memoryview(handles_of(driver, calls, int(graph.handle))).cast("Q").tolist()
            return _refusal(driver, answer, handles)
        driver.check("cuGraphExecUpdate", code)
    executable.shape = new
    return None


def _refusal(driver: Driver, answer: _Result, handles: list[int]) -> Misfit:
    """Return what the driver says about an update that it did not make."""
    try:
        name = driver.api.CUgraphExecUpdateResult(answer.result).name
    except ValueError:  # a driver that is newer than the binding
        name = f"result {answer.result}"
    number = handles.index(answer.node) if answer.node in handles else None
    return Misfit(f"the driver does not update it ({name})", number)
