"""Giving an executable the work of another graph, which must have the same shape: what no update changes.

Graphs may have thousands of nodes, so they are read by raw calls.
"""

from __future__ import annotations

import ctypes
from array import array
from ctypes import c_int, c_void_p

from .._shared.nodes import Shape, difference, place_of
from ..base import Misfit
from .driver import Driver, Executable, Graph
from .node import kind_name, raw_edges
from .raw_calls import WORD, Calls, call_each, calls_of, distinct, numbers_of

_CLUSTER_DIMENSION = 4
_KIND = bytes((0,))
"""Which word of a ``CUgraphNodeType`` is kept."""

_FUNCTION_AND_KERNEL = bytes((0, 7))
"""Which words of a ``CUDA_KERNEL_NODE_PARAMS_v2`` are `func` and `kern`."""

_DIMENSIONS = bytes((0, 1))
"""Which words of a ``CUkernelNodeAttrValue`` are x and y, and z with something else."""

_ROW, _SIDES = 32, (4, 5, 6)
"""The bytes that are kept of a node, and the places of x, y and z among its integers of 4 bytes."""

_INVALID_VALUE = 1
"""What the driver answers for the parameters of a node that is no kernel."""

_UPDATED = frozenset(("kernel", "graph", "memcpy", "memset", "host", "empty", "wait_event", "event_record"))
"""The nodes that are updated in place."""

_SINGLE = frozenset(("mem_alloc", "mem_free", "conditional"))
"""The nodes with which the driver allows a graph one executable at a time."""

_NO_CLUSTERS = "the driver does not update the clusters of a kernel reliably"

_NOT_UPDATED = 910


class _Result(ctypes.Structure):
    """``CUgraphExecUpdateResultInfo``."""

    _fields_ = (("result", c_int), ("node", c_void_p), ("from_node", c_void_p))


def update(driver: Driver, executable: Executable, former: Graph, graph: Graph) -> Misfit | None:
    """Update an executable in place; or return what does not fit, with nothing changed."""
    calls = calls_of(driver)
    with driver.current(graph.place):
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


# ---- shapes --------------------------------------------------------------------------------------


def handles_of(driver: Driver, calls: Calls, graph: int) -> bytes:
    """Return the handles of a graph's nodes."""
    count = array("Q", (0,))
    place = count.buffer_info()[0]
    driver.check("cuGraphGetNodes", calls.nodes(graph, None, place))
    found = array("Q", bytes(WORD * count[0]))
    if found:
        driver.check("cuGraphGetNodes", calls.nodes(graph, found.buffer_info()[0], place))
    return found.tobytes()


def kinds_of(driver: Driver, calls: Calls, handles: bytes) -> list[str]:
    """Return the kinds of nodes."""
    code, _, found = call_each(handles, ((calls.kind, _KIND, -1),))
    driver.check("cuGraphNodeGetType", code)
    numbers = array("Q", found)
    if found == bytes(len(found)):  # most graphs have only kernels
        return ["kernel"] * len(numbers)
    names = {number: kind_name(driver, number) for number in set(numbers)}
    return [names[number] for number in numbers]


def single_executable(driver: Driver, graph: int) -> bool:
    """Return True if a graph has nodes with which the driver allows it one executable at a time."""
    calls = calls_of(driver)
    return not _SINGLE.isdisjoint(kinds_of(driver, calls, handles_of(driver, calls, graph)))


def shape_of(driver: Driver, calls: Calls, graph: int) -> Shape:
    """Return the shape of a graph."""
    handles = handles_of(driver, calls, graph)
    questions = (calls.kernel, _FUNCTION_AND_KERNEL, -1), (calls.attribute, _DIMENSIONS, _CLUSTER_DIMENSION)
    code, failed, found = call_each(handles, questions, _INVALID_VALUE)
    if failed == 0:
        driver.check("cuGraphKernelNodeGetParams", code)
    if code:  # the driver does not report a cluster dimension
        return Shape((), (), (), (), Misfit(_NO_CLUSTERS, len(found) // _ROW))
    words = array("Q", found)
    functions, of_libraries = words[0::4], set()
    kinds, children = ["kernel"] * len(functions), list[Shape]()
    once = array("Q", distinct(functions.tobytes()))
    if 0 in once:
        pairs = list(zip(functions, words[1::4], strict=True))
        of_libraries = {kernel for function, kernel in pairs if not function}
        functions = array("Q", [function or kernel for function, kernel in pairs])
        kinds, children = _others(driver, calls, handles, functions)
        once = array("Q", distinct(functions.tobytes()))
    clustered = _clustered(found)
    if clustered is None:
        made = [each for each in once if each and _made_for_clusters(driver, each, each in of_libraries)]
        clustered = min(map(functions.index, made), default=None)
    sources, targets, data = raw_edges(driver, graph)
    edges = numbers_of(handles, sources), numbers_of(handles, targets), data
    return Shape(kinds, functions, children, edges, _misfit(kinds, children, clustered))


def _others(
    driver: Driver, calls: Calls, handles: bytes, functions: array[int]
) -> tuple[list[str], list[Shape]]:
    """Return the kinds of nodes of which some have no function, and the shapes of the graphs inside."""
    nodes = array("Q", handles)
    without = [number for number, function in enumerate(functions) if not function]
    kinds = ["kernel"] * len(nodes)
    asked = array("Q", [nodes[number] for number in without]).tobytes()
    for number, kind in zip(without, kinds_of(driver, calls, asked), strict=True):
        kinds[number] = kind
    graphs = (node for node, kind in zip(nodes, kinds, strict=True) if kind == "graph")
    inside = (int(driver.call("cuGraphChildGraphNodeGetGraph", each)) for each in graphs)
    return kinds, [shape_of(driver, calls, each) for each in inside]


def _clustered(found: bytes) -> int | None:
    """Return the number of the first node with a cluster dimension."""
    sides = array("I", found)
    x, y, z = (sides[at :: _ROW // sides.itemsize] for at in _SIDES)
    if x == y == z == array("I", bytes(x.itemsize * len(x))):
        return None
    return next((number for number, each in enumerate(zip(x, y, z, strict=True)) if any(each)), None)


def _made_for_clusters(driver: Driver, handle: int, is_kernel: bool) -> bool:
    """Return True if a function or a kernel was compiled for clusters, or the driver does not report it."""
    width = driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
    if is_kernel:
        answer = driver.answer("cuKernelGetAttribute", width, handle, driver.call("cuCtxGetDevice"))
    else:
        answer = driver.answer("cuFuncGetAttribute", width, handle)
    return answer[0] is not driver.success or answer[1] != 0


def _misfit(kinds: list[str], children: list[Shape], clustered: int | None) -> Misfit | None:
    """Return why a graph never updates an executable."""
    for nth, child in enumerate(children):
        if child.misfit:
            return child.misfit._replace(node=place_of(kinds, "graph", nth))
    if not _UPDATED.issuperset(kinds):
        number, kind = next(each for each in enumerate(kinds) if each[1] not in _UPDATED)
        return Misfit(f"a {kind} node is not updated in place", number)
    return None if clustered is None else Misfit(_NO_CLUSTERS, clustered)
