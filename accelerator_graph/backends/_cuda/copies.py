"""Changing where the copies of an executable read from."""

from __future__ import annotations

from collections.abc import Callable

from . import nodes
from .driver import Driver, Executable, Graph

_SET = "cuGraphExecMemcpyNodeSetParams"
_FIELDS = {
    "CU_MEMORYTYPE_DEVICE": "srcDevice",
    "CU_MEMORYTYPE_HOST": "srcHost",
    "CU_MEMORYTYPE_UNIFIED": "srcDevice",
}


def source_setter(
    driver: Driver, graph: Graph, executable: Executable, index: int
) -> Callable[[int], None] | None:
    """Return a callable that changes the source of one copy; None for other nodes, and for arrays."""
    node = nodes.node_handles(driver, graph.handle)[index]
    if nodes.kind_of(driver, node) != "memcpy":
        return None
    params = driver.call("cuGraphMemcpyNodeGetParams", node)
    field = _FIELDS.get(params.srcMemoryType.name)
    if field is None or params.Height > 1:
        return None
    params.Height = params.Depth = 1
    change, success = driver.api.cuGraphExecMemcpyNodeSetParams, driver.success
    handle, context = executable.handle, graph.context

    def set_source(address: int) -> None:
        setattr(params, field, address)
        try:
            (code,) = change(handle, node, params, context)
        except (RuntimeError, ValueError) as error:
            driver.broke(_SET, error)
        if code is not success:
            driver.failed(_SET, code)

    return set_source
