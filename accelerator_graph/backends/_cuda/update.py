"""Giving an executable the work of another graph.

The driver is called without the binding, which drops what the driver says about a refusal, and which would
take longer over the kernels of a thousand nodes than the driver over the update.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from ctypes import c_int, c_size_t, c_void_p
from typing import Any, NamedTuple

from .._shared.shapes import Shape, difference
from ..base import Misfit
from . import edges as _edges
from .driver import Driver, Executable, Graph
from .nodes import kind_of

Function = Callable[..., int]

_INVALID_VALUE = 1
_NOT_UPDATED = 910
_CLUSTER_DIMENSION = 4
_WORD = 8
_ATTRIBUTE_WORDS = 8
_KERNEL_WORDS, _FUNCTION, _KERNEL = 9, 0, 7
"""How long a ``CUDA_KERNEL_NODE_PARAMS_v2`` is, and where `func` and `kern` are in it."""

_KINDS = frozenset(("memcpy", "memset", "host", "empty", "wait_event", "event_record"))
"""The nodes that are updated in place, beside kernels and child graphs."""


class _Result(ctypes.Structure):
    """``CUgraphExecUpdateResultInfo``."""

    _fields_ = (("result", c_int), ("node", c_void_p), ("from_node", c_void_p))


class Calls(NamedTuple):
    """The functions of the driver that are called without the binding."""

    update: Function
    nodes: Function
    kernel: Function
    attribute: Function


FUNCTIONS = (
    ("cuGraphExecUpdate", 12000, c_void_p, c_void_p, c_void_p),
    ("cuGraphGetNodes", 12000, c_void_p, c_void_p, c_void_p),
    ("cuGraphKernelNodeGetParams", 12000, c_void_p, c_void_p),
    ("cuGraphKernelNodeGetAttribute", 12000, c_void_p, c_int, c_void_p),
)
"""The same with the version of CUDA that had the signature first, and the types of the arguments."""


def update(driver: Driver, executable: Executable, former: Graph, graph: Graph) -> Misfit | None:
    """Update an executable in place; or return what does not fit, with nothing changed."""
    calls = calls_of(driver)
    if calls is None or not driver.edges_address:
        return Misfit("the driver does not support CUDA 12.3")
    with driver.current(graph.context):
        old = former.shape or shape_of(driver, calls, int(former.handle))
        new = shape_of(driver, calls, int(graph.handle))
        misfit = difference(old, new)
        if misfit is not None:
            return misfit
        answer = _Result()
        code = calls.update(int(executable.handle), int(graph.handle), ctypes.addressof(answer))
        if code == _NOT_UPDATED:
            return _refusal(driver, calls, answer, graph)
        if code:
            driver.answered("cuGraphExecUpdate", code)
    graph.shape = new
    return None


def calls_of(driver: Driver) -> Calls | None:
    """Return the functions; None if the driver does not have all of them."""
    if driver.calls is None:
        found = [each for each in itertools.starmap(driver.raw, FUNCTIONS) if each is not None]
        driver.calls = Calls(*found) if len(found) == len(FUNCTIONS) else None
    return driver.calls


def shape_of(driver: Driver, calls: Calls, graph: int) -> Shape:
    """Return the shape of a graph."""
    handles = _handles(driver, calls, graph)
    codes, found = _asked(calls.kernel, handles, _KERNEL_WORDS)
    functions, kernels = found[_FUNCTION::_KERNEL_WORDS].tolist(), found[_KERNEL::_KERNEL_WORDS].tolist()
    nodes: list[Any] = [function or kernel for function, kernel in zip(functions, kernels, strict=True)]
    misfit = None
    for number, code in enumerate(codes):
        if code == 0:
            continue
        if code != _INVALID_VALUE:
            driver.answered("cuGraphKernelNodeGetParams", code)
        kind = nodes[number] = kind_of(driver, handles[number])
        if kind == "graph":
            child = int(driver.call("cuGraphChildGraphNodeGetGraph", handles[number]))
            inside = nodes[number] = shape_of(driver, calls, child)
            misfit = misfit or (inside.misfit and inside.misfit._replace(node=number))
        elif kind not in _KINDS:
            misfit = misfit or Misfit(f"a {kind} node is not updated in place", number)
    launches = [handle for handle, code in zip(handles, codes, strict=True) if code == 0]
    clustered = _clustered(calls, launches)
    if clustered is None:
        made = {
            pair for pair in set(zip(functions, kernels, strict=True)) if _made_for_clusters(driver, *pair)
        }
        pairs = zip(handles, functions, kernels, strict=True)
        clustered = next((handle for handle, *pair in pairs if tuple(pair) in made), None) if made else None
    if clustered is not None:
        reason = "the driver does not update the clusters of a kernel reliably"
        misfit = misfit or Misfit(reason, handles.index(clustered))
    return Shape(nodes, _dependencies(driver, graph, handles), misfit)


def _asked(function: Function, nodes: list[int], words: int, *more: Any) -> tuple[list[int], memoryview]:
    """Call a function for each node, with a place for its answer; return the codes and all answers."""
    answers = (ctypes.c_uint64 * (words * len(nodes)))()
    start, size = ctypes.addressof(answers), _WORD * words
    places = range(start, start + size * len(nodes), size)
    codes = list(map(function, nodes, *map(itertools.repeat, more), places))
    return codes, memoryview(answers).cast("B").cast("Q")


def _handles(driver: Driver, calls: Calls, graph: int) -> list[int]:
    count = c_size_t()
    _check(driver, "cuGraphGetNodes", calls.nodes(graph, None, ctypes.addressof(count)))
    found = (c_void_p * count.value)()
    if found:
        _check(driver, "cuGraphGetNodes", calls.nodes(graph, found, ctypes.addressof(count)))
    return list(found)


def _dependencies(driver: Driver, graph: int, handles: list[int]) -> tuple[list[int], ...]:
    function, count = _edges.Function(driver.edges_address), c_size_t()
    place = ctypes.addressof(count)
    _check(driver, "cuGraphGetEdges", function(graph, None, None, None, place))
    sources, targets, data = ((ctypes.c_uint64 * count.value)() for _ in range(3))
    if count.value:
        _check(driver, "cuGraphGetEdges", function(graph, sources, targets, data, place))
    number_of = {handle: number for number, handle in enumerate(handles)}.__getitem__
    ends = (memoryview(each).cast("B").cast("Q").tolist() for each in (sources, targets))
    return *(list(map(number_of, each)) for each in ends), list(data)


def _clustered(calls: Calls, kernels: list[int]) -> int | None:
    """Return the first node that is launched in clusters, or for which the driver can't tell that."""
    codes, found = _asked(calls.attribute, kernels, _ATTRIBUTE_WORDS, _CLUSTER_DIMENSION)
    if not any(codes) and not bytes(found).strip(b"\0"):
        return None
    xy, z = found[::_ATTRIBUTE_WORDS], found[1::_ATTRIBUTE_WORDS]
    told = zip(kernels, codes, xy, z, strict=True)
    return next((node for node, code, a, b in told if code or a or b & 0xFFFF_FFFF), None)


def _made_for_clusters(driver: Driver, function: int, kernel: int) -> bool:
    """Return True if a function, or else a kernel, was compiled for clusters, or the driver can't tell."""
    if not (function or kernel):
        return False  # another kind of node
    width = driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
    if function:
        answer = driver.answer("cuFuncGetAttribute", width, function)
    else:
        answer = driver.answer("cuKernelGetAttribute", width, kernel, driver.call("cuCtxGetDevice"))
    return answer[0] is not driver.success or answer[1] != 0


def _refusal(driver: Driver, calls: Calls, answer: _Result, graph: Graph) -> Misfit:
    """Return what the driver says about an update that it did not make."""
    try:
        name = driver.api.CUgraphExecUpdateResult(answer.result).name
    except ValueError:  # a driver that is newer than the binding
        name = f"result {answer.result}"
    handles = _handles(driver, calls, int(graph.handle))
    number = handles.index(answer.node) if answer.node in handles else None
    return Misfit(f"the driver does not update it ({name})", number)


def _check(driver: Driver, function: str, code: int) -> None:
    if code:
        driver.answered(function, code)
