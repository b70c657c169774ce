"""Reading what an update in place does not change, for thousands of nodes."""

from __future__ import annotations

from array import array

from ..._interpreter.many_calls import WORD, call_each, numbers_of
from .._shared.shapes import Shape, place_of
from ..base import Misfit
from .driver import Driver
from .edges import raw_edges
from .nodes import kind_name
from .raw_calls import Calls, calls_of

_CLUSTER_DIMENSION = 4
_KIND = bytes((0,))
"""Which word of a ``CUgraphNodeType`` is kept."""

_FUNCTION_AND_KERNEL = bytes((0, 7))
"""Which words of a ``CUDA_KERNEL_NODE_PARAMS_v2`` are `func` and `kern`."""

_DIMENSIONS = bytes((0, 1))
"""Which words of a ``CUkernelNodeAttrValue`` are x and y, and z with something else."""

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


def kinds_of(driver: Driver, calls: Calls, handles: bytes) -> list[str]:
    """Return the kinds of nodes."""
    code, found = call_each(calls.kind, handles, _KIND)
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
    kinds = kinds_of(driver, calls, handles)
    launches = _chosen(handles, kinds, "kernel")
    functions, clustered = _kernels(driver, calls, launches)
    children = [
        shape_of(driver, calls, int(driver.call("cuGraphChildGraphNodeGetGraph", node)))
        for node in array("Q", _chosen(handles, kinds, "graph"))
    ]
    sources, targets, data = raw_edges(driver, graph)
    edges = numbers_of(handles, sources), numbers_of(handles, targets), data
    return Shape(kinds, functions, children, edges, _misfit(kinds, children, clustered))


def _chosen(handles: bytes, kinds: list[str], kind: str) -> bytes:
    """Return the handles of the nodes of a kind."""
    count = kinds.count(kind)
    if count in (0, len(kinds)):
        return handles if count else b""
    pairs = zip(array("Q", handles), kinds, strict=True)
    return array("Q", [handle for handle, each in pairs if each == kind]).tobytes()


def _kernels(driver: Driver, calls: Calls, launches: bytes) -> tuple[array[int], int | None]:
    """Return the functions of kernel nodes, and the number of the first that has clusters, or may have."""
    code, found = call_each(calls.kernel, launches, _FUNCTION_AND_KERNEL)
    driver.check("cuGraphKernelNodeGetParams", code)
    words = array("Q", found)
    functions, of_libraries = words[0::2], set()
    distinct = set(functions)
    if 0 in distinct:
        pairs = list(zip(functions, words[1::2], strict=True))
        of_libraries = {kernel for function, kernel in pairs if not function}
        functions = array("Q", [function or kernel for function, kernel in pairs])
        distinct = set(functions)
    clustered = _clustered(calls, launches)
    if clustered is None:
        made = {each for each in distinct if _made_for_clusters(driver, each, each in of_libraries)}
        if made:
            clustered = next(number for number, each in enumerate(functions) if each in made)
    return functions, clustered


def _clustered(calls: Calls, launches: bytes) -> int | None:
    """Return the number of the first node with a cluster dimension, or for which the driver can't tell it."""
    code, found = call_each(calls.attribute, launches, _DIMENSIONS, _CLUSTER_DIMENSION)
    words = array("I", found)
    x, y, z = (words[side::4] for side in range(3))
    if not x == y == z == array("I", bytes(x.itemsize * len(x))):
        return next(number for number, sides in enumerate(zip(x, y, z, strict=True)) if any(sides))
    return len(x) if code else None


def _made_for_clusters(driver: Driver, handle: int, is_kernel: bool) -> bool:
    """Return True if a function or a kernel was compiled for clusters, or the driver can't tell."""
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
    return None if clustered is None else Misfit(_NO_CLUSTERS, place_of(kinds, "kernel", clustered))
