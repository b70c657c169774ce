"""Giving an executable the work of another graph.

The driver is called without the binding, which drops what the driver says about a refusal, and which would
take longer over the kernels of a thousand nodes than the driver over the update.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from ctypes import c_int, c_size_t, c_uint, c_void_p
from typing import Any, NamedTuple

from ..base import Misfit
from .driver import Driver, Executable, Graph
from .nodes import kind_of

Function = Callable[..., int]

_INVALID_VALUE = 1
_NOT_UPDATED = 910
_CLUSTER_DIMENSION = 4

_KINDS = frozenset(("memcpy", "memset", "host", "empty", "wait_event", "event_record"))
"""The nodes that are updated in place, beside kernels and child graphs."""


class _Result(ctypes.Structure):
    """``CUgraphExecUpdateResultInfo``."""

    _fields_ = (("result", c_int), ("node", c_void_p), ("from_node", c_void_p))


class _Kernel(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v2``."""

    _fields_ = (
        ("function", c_void_p),
        ("geometry", c_uint * 7),
        ("parameters", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    )


class Shape(NamedTuple):
    """What has to be the same in two graphs, of which one updates the executable of the other."""

    nodes: list[Any]
    """By node: the function of a kernel, the shape of a child graph, the kind of another node."""
    edges: list[tuple[int, ...]]
    """Numbers of nodes, and the data of the edge."""
    misfit: Misfit | None
    """Why this graph never updates an executable."""


class Calls(NamedTuple):
    """The functions of the driver that are called without the binding."""

    update: Function
    nodes: Function
    edges: Function
    kernel: Function
    attribute: Function


FUNCTIONS = (
    ("cuGraphExecUpdate", 12000, c_void_p, c_void_p, c_void_p),
    ("cuGraphGetNodes", 12000, c_void_p, c_void_p, c_void_p),
    ("cuGraphGetEdges", 12030, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
    ("cuGraphKernelNodeGetParams", 12000, c_void_p, c_void_p),
    ("cuGraphKernelNodeGetAttribute", 12000, c_void_p, c_int, c_void_p),
)
"""The same with the version of CUDA that had the signature first, and the types of the arguments."""


def update(driver: Driver, executable: Executable, former: Graph, graph: Graph) -> Misfit | None:
    """Update an executable in place; or return what does not fit, with nothing changed."""
    calls = calls_of(driver)
    if calls is None:
        return Misfit("the driver does not support CUDA 12.3")
    with driver.current(graph.context):
        old = former.shape or shape_of(driver, calls, int(former.handle))
        new = shape_of(driver, calls, int(graph.handle))
        misfit = _difference(old, new)
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
    kernels = (_Kernel * len(handles))()
    start, size = ctypes.addressof(kernels), ctypes.sizeof(_Kernel)
    places = range(start, start + size * len(handles), size)
    codes = list(map(calls.kernel, handles, places))
    nodes: list[Any] = [kernel.function or kernel.kernel for kernel in kernels]
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
    clustered = _clustered(driver, calls, [at for at, code in zip(handles, codes, strict=True) if code == 0])
    clustered = clustered or _made_for_clusters(driver, kernels, handles)
    if clustered:
        misfit = misfit or Misfit(
            "the driver does not update the clusters of a kernel reliably", handles.index(clustered)
        )
    return Shape(nodes, _edges(driver, calls, graph, handles), misfit)


def _handles(driver: Driver, calls: Calls, graph: int) -> list[int]:
    count = c_size_t()
    _check(driver, "cuGraphGetNodes", calls.nodes(graph, None, ctypes.addressof(count)))
    found = (c_void_p * count.value)()
    if found:
        _check(driver, "cuGraphGetNodes", calls.nodes(graph, found, ctypes.addressof(count)))
    return list(found)


def _edges(driver: Driver, calls: Calls, graph: int, handles: list[int]) -> list[tuple[int, ...]]:
    count = c_size_t()
    _check(driver, "cuGraphGetEdges", calls.edges(graph, None, None, None, ctypes.addressof(count)))
    sources, targets = (c_void_p * count.value)(), (c_void_p * count.value)()
    data = (ctypes.c_uint64 * count.value)()
    if data:
        code = calls.edges(graph, sources, targets, data, ctypes.addressof(count))
        _check(driver, "cuGraphGetEdges", code)
    number = {handle: number for number, handle in enumerate(handles)}
    return [(number[a], number[b], kind) for a, b, kind in zip(sources, targets, data, strict=True)]


def _clustered(driver: Driver, calls: Calls, kernels: list[int]) -> int | None:
    """Return the first node that is launched in clusters, or for which the driver can't tell that."""
    values = (ctypes.c_uint64 * 8 * len(kernels))()
    start, size = ctypes.addressof(values), ctypes.sizeof(ctypes.c_uint64 * 8)
    places = range(start, start + size * len(kernels), size)
    codes = map(calls.attribute, kernels, [_CLUSTER_DIMENSION] * len(kernels), places)
    told = zip(kernels, codes, values, strict=True)
    return next((node for node, code, value in told if code or value[0] or value[1] & 0xFFFF_FFFF), None)


def _made_for_clusters(driver: Driver, kernels: Any, handles: list[int]) -> int | None:
    """Return the first node whose kernel was compiled for clusters, or for which the driver can't tell."""
    width = driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
    seen: set[tuple[int | None, int | None]] = {(None, None)}
    for handle, kernel in zip(handles, kernels, strict=True):
        key = kernel.function, kernel.kernel
        if key in seen:
            continue
        seen.add(key)
        if kernel.function:
            answer = driver.answer("cuFuncGetAttribute", width, kernel.function)
        else:
            device = driver.call("cuCtxGetDevice")
            answer = driver.answer("cuKernelGetAttribute", width, kernel.kernel, device)
        if answer[0] is not driver.success or answer[1]:
            return handle
    return None


def _difference(old: Shape, new: Shape) -> Misfit | None:
    if old.misfit or new.misfit:
        return new.misfit or old.misfit
    if len(old.nodes) != len(new.nodes):
        return Misfit(f"the graphs have {len(old.nodes)} and {len(new.nodes)} nodes")
    for number, (was, now) in enumerate(zip(old.nodes, new.nodes, strict=True)):
        if was == now:
            continue
        kinds = [_kind(each) for each in (was, now)]
        if kinds[0] != kinds[1]:
            return Misfit(f"a {kinds[0]} node has become a {kinds[1]} node", number)
        return Misfit(
            "the child graph differs" if kinds[0] == "graph" else "the kernel is another one", number
        )
    return None if old.edges == new.edges else Misfit("the dependencies differ")


def _kind(node: Any) -> str:
    return node if isinstance(node, str) else "graph" if isinstance(node, Shape) else "kernel"


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
