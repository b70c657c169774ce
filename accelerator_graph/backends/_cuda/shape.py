"""Reading what an update in place does not change, for thousands of nodes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from ..._interpreter.many_calls import WORD, call_each, numbers_of
from .._shared.shapes import Shape
from ..base import Misfit
from .driver import Driver
from .edges import raw_edges
from .nodes import kind_name
from .raw_calls import Calls, calls_of

_KERNEL, _GRAPH = 0, 4
_CLUSTER_DIMENSION = 4
_KIND_BYTES, _PARAMETER_BYTES, _ATTRIBUTE_BYTES = 4, 72, 64
"""The sizes of ``CUgraphNodeType``, ``CUDA_KERNEL_NODE_PARAMS_v2`` and ``CUkernelNodeAttrValue``."""

_PARAMETER_WORDS, _FUNCTION, _LIBRARY_KERNEL = 9, 0, 7
"""Where `func` and `kern` are in the parameters of a kernel."""

_UPDATED = frozenset(("kernel", "graph", "memcpy", "memset", "host", "empty", "wait_event", "event_record"))
"""The nodes that are updated in place."""

_SINGLE = frozenset(("mem_alloc", "mem_free", "conditional"))
"""The nodes with which the driver allows a graph one executable at a time."""

_NO_CLUSTERS = "the driver does not update the clusters of a kernel reliably"


def handles_of(driver: Driver, calls: Calls, graph: int) -> bytes:
    """Return the handles of a graph's nodes."""
    count = array("Q", (0,))
    place = count.buffer_info()[0]
    driver.check("cuGraphGetNodes", calls.nodes(graph, None, place))
    found = array("Q", bytes(WORD * count[0]))
    if found:
        driver.check("cuGraphGetNodes", calls.nodes(graph, found.buffer_info()[0], place))
    return found.tobytes()


def kinds_of(driver: Driver, calls: Calls, handles: bytes) -> list[int]:
    """Return the kinds of nodes, as the driver's numbers."""
    code, kinds = call_each(calls.kind, handles, _KIND_BYTES)
    driver.check("cuGraphNodeGetType", code)
    return memoryview(kinds).cast("i").tolist()


def single_executable(driver: Driver, graph: int) -> bool:
    """Return True if a graph has nodes with which the driver allows it one executable at a time."""
    calls = calls_of(driver)
    kinds = set(kinds_of(driver, calls, handles_of(driver, calls, graph)))
    return not _SINGLE.isdisjoint(kind_name(driver, kind) for kind in kinds)


def shape_of(driver: Driver, calls: Calls, graph: int) -> Shape:
    """Return the shape of a graph."""
    handles = handles_of(driver, calls, graph)
    kinds = kinds_of(driver, calls, handles)
    only_kernels = not any(kinds)
    numbers = range(len(kinds)) if only_kernels else [n for n, kind in enumerate(kinds) if kind == _KERNEL]
    launches = handles if only_kernels else _chosen(handles, numbers)
    functions, clustered = _kernels(driver, calls, launches)
    nodes: list[Any] = functions
    misfit = None if clustered is None else Misfit(_NO_CLUSTERS, numbers[clustered])
    if not only_kernels:
        nodes = _nodes(driver, calls, handles, kinds, functions)
        misfit = next(filter(None, map(_misfit, nodes, range(len(nodes)))), misfit)
    sources, targets, data = raw_edges(driver, graph)
    ends = numbers_of(handles, sources), numbers_of(handles, targets)
    return Shape(nodes, (*ends, data), misfit)


def _chosen(handles: bytes, numbers: Sequence[int]) -> bytes:
    return array("Q", map(memoryview(handles).cast("Q").__getitem__, numbers)).tobytes()


def _kernels(driver: Driver, calls: Calls, launches: bytes) -> tuple[list[int], int | None]:
    """Return the functions of kernel nodes, and the number of the first that has clusters, or may have."""
    code, found = call_each(calls.kernel, launches, _PARAMETER_BYTES)
    driver.check("cuGraphKernelNodeGetParams", code)
    words = array("Q", found)
    nodes = words[_FUNCTION::_PARAMETER_WORDS].tolist()
    kernels = set()
    if not all(nodes):  # captured as kernels of a library, which are no functions of a context
        pairs = list(zip(nodes, words[_LIBRARY_KERNEL::_PARAMETER_WORDS], strict=True))
        kernels = {kernel for function, kernel in pairs if not function}
        nodes = [function or kernel for function, kernel in pairs]
    made = {each for each in set(nodes) if _made_for_clusters(driver, each, is_kernel=each in kernels)}
    clustered = _clustered(calls, launches)
    if clustered is None and made:
        clustered = next(number for number, each in enumerate(nodes) if each in made)
    return nodes, clustered


def _clustered(calls: Calls, launches: bytes) -> int | None:
    """Return the number of the first node with a cluster dimension, or for which the driver can't tell it."""
    code, found = call_each(calls.attribute, launches, _ATTRIBUTE_BYTES, _CLUSTER_DIMENSION)
    told, words = len(found) // _ATTRIBUTE_BYTES, array("I", found)
    sides = [words[side :: _ATTRIBUTE_BYTES // words.itemsize] for side in range(3)]
    if any(each != array("I", bytes(each.itemsize * told)) for each in sides):
        return next(number for number, each in enumerate(zip(*sides, strict=True)) if any(each))
    return told if code else None


def _made_for_clusters(driver: Driver, handle: int, *, is_kernel: bool) -> bool:
    """Return True if a function or a kernel was compiled for clusters, or the driver can't tell."""
    width = driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
    if is_kernel:
        answer = driver.answer("cuKernelGetAttribute", width, handle, driver.call("cuCtxGetDevice"))
    else:
        answer = driver.answer("cuFuncGetAttribute", width, handle)
    return answer[0] is not driver.success or answer[1] != 0


def _nodes(driver: Driver, calls: Calls, handles: bytes, kinds: list[int], functions: list[int]) -> list[Any]:
    """Return all nodes of a graph that has not only kernels."""
    names = {kind: kind_name(driver, kind) for kind in set(kinds)}
    nodes: list[Any] = []
    kernels = iter(functions)
    for handle, kind in zip(memoryview(handles).cast("Q"), kinds, strict=True):
        if kind == _GRAPH:
            child = int(driver.call("cuGraphChildGraphNodeGetGraph", handle))
            nodes.append(shape_of(driver, calls, child))
        else:
            nodes.append(next(kernels) if kind == _KERNEL else names[kind])
    return nodes


def _misfit(node: Any, number: int) -> Misfit | None:
    """Return why a node is never updated in place."""
    if isinstance(node, Shape):
        return node.misfit and node.misfit._replace(node=number)
    if isinstance(node, str) and node not in _UPDATED:
        return Misfit(f"a {node} node is not updated in place", number)
    return None
