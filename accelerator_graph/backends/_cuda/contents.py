"""Looking into a captured graph."""

from __future__ import annotations

from typing import Any

from ...errors import AcceleratorGraphError
from ..base import GraphContents, GraphEdge, GraphNode
from .driver import Driver
from .edges import dependencies
from .layouts import Layouts, address, is_plain, layout
from .nodes import kind_of, node_handles


def list_nodes(driver: Driver, graph: Any, *, inside: bool = False) -> GraphContents:
    """Return a graph's nodes and the dependencies between them, and those of the graphs inside.

    Nodes inside others can't be changed in an executable.
    """
    handles = node_handles(driver, graph)
    reader = _Reader(driver, settable=not inside)
    nodes = [reader.read(index, handle) for index, handle in enumerate(handles)]
    return nodes, [
        GraphEdge(source, target, "programmatic" if data.type else "")
        for source, target, data in dependencies(driver, graph, handles)
    ]


class _Reader:
    """Reads the parameters of a graph's nodes. Names of functions are asked for once."""

    def __init__(self, driver: Driver, *, settable: bool) -> None:
        self._driver = driver
        self._names: dict[int, str] = {}
        self._layouts: Layouts = {}
        self._settable = settable

    def read(self, index: int, handle: Any) -> GraphNode:
        """Return one node; without parameters where the driver does not tell them."""
        kind = kind_of(self._driver, handle)
        node = GraphNode(index, kind)
        read = getattr(self, f"_{kind}", None)
        if read is None:
            return node
        try:
            return read(node, handle)  # type: ignore[no-any-return]
        except AcceleratorGraphError:
            return node

    def _kernel(self, node: GraphNode, handle: Any) -> GraphNode:
        params = self._driver.call("cuGraphKernelNodeGetParams", handle)
        arguments = self._arguments(params)
        return node._replace(
            name=self._name(params),
            arguments=arguments,
            settable=self._can_set("arguments") if arguments else self._can_set(),
            grid=(params.gridDimX, params.gridDimY, params.gridDimZ),
            block=(params.blockDimX, params.blockDimY, params.blockDimZ),
            shared_bytes=params.sharedMemBytes,
        )

    def _can_set(self, *names: str) -> tuple[str, ...]:
        return (*names, "enabled") if self._settable else ()

    def _arguments(self, params: Any) -> tuple[int, ...] | None:
        """Return the sizes of a kernel's arguments; None if the driver does not tell them."""
        try:
            return tuple(size for _, size in layout(self._driver, params, self._layouts))
        except AcceleratorGraphError:
            return None

    def _name(self, params: Any) -> str:
        """Return the name of a kernel node's function, or an empty string if it is not known."""
        function = int(params.func)
        key = function or int(params.kern)
        if key not in self._names:
            try:
                if function:
                    name = self._driver.call("cuFuncGetName", params.func)
                else:
                    name = self._driver.call("cuKernelGetName", params.kern)
            except AcceleratorGraphError:
                name = b""
            self._names[key] = name.decode(errors="replace") if name else ""
        return self._names[key]

    def _memset(self, node: GraphNode, handle: Any) -> GraphNode:
        params = self._driver.call("cuGraphMemsetNodeGetParams", handle)
        nbytes = params.elementSize * params.width * max(params.height, 1)
        can = ("target", "value") if self._settable and params.height <= 1 else ()
        return node._replace(target=int(params.dst), nbytes=nbytes, value=params.value, settable=can)

    def _memcpy(self, node: GraphNode, handle: Any) -> GraphNode:
        params = self._driver.call("cuGraphMemcpyNodeGetParams", handle)
        return node._replace(
            target=address(params, "dst"),
            source=address(params, "src"),
            settable=self._can_set("source", "target") if is_plain(params) else self._can_set(),
            nbytes=params.WidthInBytes * max(params.Height, 1) * max(params.Depth, 1),
        )

    def _host(self, node: GraphNode, handle: Any) -> GraphNode:
        params = self._driver.call("cuGraphHostNodeGetParams", handle)
        return node._replace(target=int(params.fn))

    def _mem_alloc(self, node: GraphNode, handle: Any) -> GraphNode:
        params = self._driver.call("cuGraphMemAllocNodeGetParams", handle)
        return node._replace(target=int(params.dptr), nbytes=params.bytesize)

    def _mem_free(self, node: GraphNode, handle: Any) -> GraphNode:
        return node._replace(target=int(self._driver.call("cuGraphMemFreeNodeGetParams", handle)))

    def _graph(self, node: GraphNode, handle: Any) -> GraphNode:
        child = self._driver.call("cuGraphChildGraphNodeGetGraph", handle)
        return node._replace(bodies=(list_nodes(self._driver, child, inside=True),))

    def _conditional(self, node: GraphNode, handle: Any) -> GraphNode:
        """Return the node with its bodies, which only drivers and bindings from CUDA 13.2 on tell."""
        if not hasattr(self._driver.api, "cuGraphNodeGetParams"):
            return node
        whole = self._driver.call("cuGraphNodeGetParams", handle)
        params = whole.conditional  # reads the memory of the whole, but does not keep it
        bodies = tuple(list_nodes(self._driver, body, inside=True) for body in params.phGraph_out)
        try:
            name = params.type.name.removeprefix("CU_GRAPH_COND_TYPE_").lower()
        except ValueError:  # a driver that is newer than the binding
            name = ""
        return node._replace(name=name, bodies=bodies)
