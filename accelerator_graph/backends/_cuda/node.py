"""One node of a graph: what the driver reports of it, read once, and how it is changed in an executable."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import AcceleratorGraphError, UnsupportedError
from ..base import (
    Argument,
    GraphContents,
    GraphEdge,
    GraphNode,
    NodeParameters,
    NodeSetter,
    SameContext,
    SetFunction,
    word,
)
from .driver import Driver, Executable, Graph
from .raw_calls import calls_of

if TYPE_CHECKING:
    from .driver import Driver

_BLOCK, _BLOCK_SIZE = 1, 2
"""What stands before the address and the size of a block of parameters: ``CU_LAUNCH_PARAM_BUFFER_...``."""

_INVALID_VALUE = 1
_OF_DEVICE = 2
"""``CU_MEMORYTYPE_DEVICE``. For memory that the driver does not know it answers 0."""

_MOST_PARAMETERS = 1 << 12

_TARGET, _VALUE = (0, 8), (16, 4)
"""Offset and size of what can be changed in ``CUDA_MEMSET_NODE_PARAMS``."""

_ADDRESSES = {"srcHost": 40, "srcDevice": 48, "dstHost": 128, "dstDevice": 136}
"""The offsets of the addresses in ``CUDA_MEMCPY3D``."""

_ADDRESS_FIELDS = {
    "CU_MEMORYTYPE_DEVICE": "Device",
    "CU_MEMORYTYPE_HOST": "Host",
    "CU_MEMORYTYPE_UNIFIED": "Device",
}


def list_nodes(driver: Driver, graph: Any, *, settable: bool = True) -> GraphContents:
    """Return a graph's nodes and the dependencies between them, and those of the graphs inside.

    Nodes inside conditional ones can't be changed in an executable.
    """
    handles = node_handles(driver, graph)
    read = Reader(driver, settable=settable)
    nodes = [read(handle).listed(index) for index, handle in enumerate(handles)]
    return nodes, [
        GraphEdge(source, target, "programmatic" if is_programmatic(data) else "")
        for source, target, data in dependencies(driver, graph, handles)
    ]


def parameters(driver: Driver, graph: Any) -> list[NodeParameters]:
    """Return the parameters of all nodes, those of child graphs included."""
    return Reader(driver).parameters(graph)


def profiler_ids(driver: Driver, graph: Any, executable: Any) -> list[int]:
    """Return the ids by which CUPTI knows the nodes; nothing from a driver or a binding before CUDA 13.1.

    The upper half of an id is that of the graph, and the lower half the node's own in it. An executable's
    nodes keep theirs, so of these the upper half is the executable's. Nodes inside others get new ones.
    """
    try:
        ids = [int(driver.call("cuGraphNodeGetToolsId", node)) for node in node_handles(driver, graph)]
        upper = int(driver.call("cuGraphExecGetId", executable)) << 32
    except (AttributeError, UnsupportedError):
        return []
    return [upper | each & 0xFFFFFFFF for each in ids]


def node_setter(
    driver: Driver, graph: Graph, executable: Executable, index: int, *inside: int
) -> NodeSetter | None:
    """Return what changes one kernel, copy or fill, or all of a child graph; None for other nodes.

    The driver takes the nodes inside a child graph, by the handles in it, as it takes the graph's own.
    Copies of several rows and of arrays can only be enabled and disabled; kernels as well if the driver is
    too old to report their arguments. Fills of several rows can't be changed, and no fill can be disabled:
    with driver 580 its neighbours lose their order, and the context can be lost.
    """
    read = Reader(driver)
    node = read(node_handle(driver, graph.handle, index))
    for number in inside:
        handles = node_handles(driver, node.params) if isinstance(node, _ChildGraph) else ()
        if number >= len(handles):
            return None
        node = read(handles[number])
    return node.setter(executable.handle, graph.place)


def copies_pageable(read: Reader, handle: Any) -> bool:
    """Return True for a copy to the device from memory of the host that is not pinned."""
    copy = read(handle)
    return isinstance(copy, _Copy) and copy.is_from_pageable()


class Reader:
    """Reads nodes, which can be changed or not. Names and parameters of functions are asked for once."""

    def __init__(self, driver: Driver, *, settable: bool = True) -> None:
        self.driver = driver
        self.settable = settable
        self._names: dict[int, str] = {}
        self._layouts: dict[int, list[tuple[int, int]]] = {}

    def __call__(self, handle: Any) -> Node:
        """Return a node."""
        kind = kind_of(self.driver, handle)
        return _KINDS.get(kind, Node)(self, kind, handle)

    def parameters(self, graph: Any) -> list[NodeParameters]:
        """Return the parameters of all nodes of a graph."""
        return [self(handle).parameters() for handle in node_handles(self.driver, graph)]

    def name(self, params: Any) -> str:
        """Return the name of a kernel node's function, or an empty string if it is not known."""
        function = int(params.func)
        key = function or int(params.kern)
        if key not in self._names:
            try:
                if function:
                    name = self.driver.call("cuFuncGetName", params.func)
                else:
                    name = self.driver.call("cuKernelGetName", params.kern)
            except AcceleratorGraphError:
                name = b""
            self._names[key] = name.decode(errors="replace") if name else ""
        return self._names[key]

    def layout(self, params: Any) -> list[tuple[int, int]]:
        """Return offset and size of each parameter of a kernel node's function.

        Raises `UnsupportedError` if the driver is too old to report them.
        """
        function = int(params.func) or int(params.kern)
        if function not in self._layouts:
            self._layouts[function] = list(self._layout(params))
        return self._layouts[function]

    def _layout(self, params: Any) -> Iterator[tuple[int, int]]:
        """Yield offset and size of each parameter: the driver answers an error for the one after the last."""
        name, function = "cuFuncGetParamInfo", params.func
        if not int(function):
            name, function = "cuKernelGetParamInfo", params.kern
        for number in range(_MOST_PARAMETERS):
            answer = self.driver.answer(name, function, number)
            if int(answer[0]) == _INVALID_VALUE:
                return
            offset, size = self.driver.checked(name, answer)
            yield int(offset), int(size)


class Node:
    """A node of a kind of which nothing more is known."""

    call: ClassVar[str] = ""
    """The function of the driver that reports its parameters."""
    blocks: ClassVar[tuple[bytes, ...] | None] = None
    """Its `NodeParameters.blocks` if they are the same for all nodes of the kind."""
    can_be_disabled: ClassVar[bool] = True

    def __init__(self, reader: Reader, kind: str, handle: Any) -> None:
        self.reader = reader
        self.driver = reader.driver
        self.kind = kind
        self.handle = handle

    @cached_property
    def params(self) -> Any:
        """The driver's answer: its own struct, or a value."""
        return self.driver.call(self.call, self.handle)

    def listed(self, index: int) -> GraphNode:
        """Return the node for a list of nodes; without parameters where the driver does not report them."""
        plain = GraphNode(index, self.kind)
        try:
            node = self.describe(plain)
        except AcceleratorGraphError:
            return plain
        return node if self.reader.settable else node._replace(settable=())

    def describe(self, node: GraphNode) -> GraphNode:
        """Return a description with the parameters of this node filled in."""
        return node

    def parameters(self) -> NodeParameters:
        """Return the parameters as bytes."""
        return NodeParameters(self.kind, self.blocks)

    def setter(self, executable: Any, context: Any) -> NodeSetter | None:
        """Return what changes the node in an executable; None if nothing does."""
        return None

    def enabling(self, executable: Any, context: Any) -> Callable[[bool], None] | None:
        """Return what lets later runs do the node's work, or leave it out; None if they can't."""
        if not self.can_be_disabled:
            return None
        driver, handle = self.driver, self.handle
        return lambda wanted: driver.within(
            context, driver.call, "cuGraphNodeSetEnabled", executable, handle, wanted
        )

    def set_function(
        self, address: int, executable: Any, context: Any, *arguments: int
    ) -> SetFunction | None:
        """Return a function that sets the parameters, as it is called from C; None without a condition."""
        current = self.driver.current_address
        if not current:
            return None
        arguments = int(executable), int(self.handle), self.params.getPtr(), *arguments
        return SetFunction(address, arguments, SameContext(current, int(context)))

    def set_call(
        self, function: str, executable: Any, context: Any, *args: Any, keeps: object = None
    ) -> Callable[[], None]:
        """Return a call of a function of the driver that sets the parameters, which keeps an object alive.

        The node's context is current meanwhile: without any, driver 580 crashes in
        ``cuGraphExecKernelNodeSetParams``.
        """
        driver = self.driver
        api, success = getattr(driver.api, function), driver.success
        args = executable, self.handle, self.params, *args

        def call(_keeps: object = keeps) -> None:
            with driver.current(context):
                try:
                    (code,) = api(*args)
                except (RuntimeError, ValueError) as error:
                    driver.broke(function, error)
                if code is not success:
                    driver.failed(function, code)

        return call


class _WithoutMemory(Node):
    """A node that reads and writes no memory."""

    blocks = ()


class _Host(_WithoutMemory):
    call = "cuGraphHostNodeGetParams"

    def describe(self, node: GraphNode) -> GraphNode:
        return node._replace(target=int(self.params.fn))


class _Kernel(Node):
    call = "cuGraphKernelNodeGetParams"

    def describe(self, node: GraphNode) -> GraphNode:
        params, geometry = self.params, self._geometry
        try:
            arguments = tuple(size for _, size in self.reader.layout(params))
        except AcceleratorGraphError:
            arguments = None
        return node._replace(
            name=self.reader.name(params),
            arguments=arguments,
            settable=("arguments", "enabled") if arguments else ("enabled",),
            grid=geometry[:3],
            block=geometry[3:],
            shared_bytes=params.sharedMemBytes,
        )

    def parameters(self) -> NodeParameters:
        params = self.params
        function = int(params.func) or int(params.kern)
        rest = function, *self._geometry, params.sharedMemBytes
        return NodeParameters(self.kind, self._blocks(), rest)

    @property
    def _geometry(self) -> tuple[int, int, int, int, int, int]:
        params = self.params
        grid = params.gridDimX, params.gridDimY, params.gridDimZ
        return (*grid, params.blockDimX, params.blockDimY, params.blockDimZ)

    def _blocks(self) -> tuple[bytes, ...]:
        """Return the parameters in order, or the block that holds all."""
        params = self.params
        if int(params.kernelParams):
            found = self.reader.layout(params)
            where = (ctypes.c_void_p * len(found)).from_address(int(params.kernelParams))
            sizes = (size for _, size in found)
            return tuple(ctypes.string_at(at or 0, size) for at, size in zip(where, sizes, strict=True))
        return (ctypes.string_at(*_block(int(params.extra))),) if int(params.extra) else ()

    def _arguments(self) -> list[Argument]:
        """Return where each of the arguments lies among the blocks."""
        found = self.reader.layout(self.params)
        if int(self.params.kernelParams):
            return [Argument(block, 0, size) for block, (_, size) in enumerate(found)]
        return [Argument(0, offset, size) for offset, size in found]

    def setter(self, executable: Any, context: Any) -> NodeSetter:
        params = self.params
        blocks: tuple[bytes, ...] = ()
        arguments: list[Argument] | None = None
        try:
            blocks = self._blocks()
            arguments = self._arguments()
        except UnsupportedError:
            pass
        buffers = [ctypes.create_string_buffer(each, len(each)) for each in blocks]
        starts = [ctypes.addressof(each) for each in buffers]
        array: Any = None
        size = ctypes.c_size_t(len(blocks[0]) if blocks else 0)
        if blocks and int(params.kernelParams):
            array = (ctypes.c_void_p * len(starts))(*starts)
            params.kernelParams = ctypes.addressof(array)
        elif blocks:
            array = (ctypes.c_void_p * 5)(_BLOCK, starts[0], _BLOCK_SIZE, ctypes.addressof(size), None)
            params.extra = ctypes.addressof(array)
        where = executable, context
        return NodeSetter(
            "kernel",
            zip(starts, map(len, blocks), strict=True),
            self.set_call("cuGraphExecKernelNodeSetParams", *where, keeps=(buffers, array, size)),
            self.enabling(*where),
            arguments=arguments,
            function=self.set_function(calls_of(self.driver).set_kernel, *where),
        )


class _InMemory(Node):
    """A copy or a fill: what can be changed of it stands in the binding's struct."""

    def _setter(
        self,
        executable: Any,
        context: Any,
        fields: Sequence[tuple[int, int]],
        function: str,
        address: int,
        nbytes: int,
        check: Callable[[Sequence[bytes]], None],
    ) -> NodeSetter:
        start, where = self.params.getPtr(), (executable, context)
        return NodeSetter(
            self.kind,
            [(start + at, size) for at, size in fields],
            self.set_call(function, *where, context),
            self.enabling(*where),
            check,
            nbytes=nbytes,
            function=self.set_function(address, *where, int(context)),
        )

    def _refuse_other_memory(self, old: int, new: int, context: Any) -> None:
        """Raise ValueError for memory that the driver takes although it is of another kind or context."""
        if old == new:
            return
        with self.driver.current(context):
            (was, before), (now, its) = self._place(old), self._place(new)
        if was != now:
            raise ValueError(
                f"the memory at {new:#x} is not of the kind that was captured, of the device or of the host; "
                "pass memory of that kind, or capture again."
            )
        if before and its and before != its:
            raise ValueError(
                f"the memory at {new:#x} belongs to another context than the one that was captured; pass "
                "memory of that context, or capture again."
            )

    def _place(self, address: int) -> tuple[int, int]:
        """Return the type and the context of memory; 0 for what is not known."""
        kinds = self.driver.api.CUpointer_attribute
        wanted = [kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, kinds.CU_POINTER_ATTRIBUTE_CONTEXT]
        kind, context = self.driver.call("cuPointerGetAttributes", len(wanted), wanted, address)
        return int(kind), int(context)


class _Copy(_InMemory):
    call = "cuGraphMemcpyNodeGetParams"

    def describe(self, node: GraphNode) -> GraphNode:
        copy = self.params
        return node._replace(
            target=self._address("dst"),
            source=self._address("src"),
            settable=("source", "target", "enabled") if self._is_plain() else ("enabled",),
            nbytes=copy.WidthInBytes * max(copy.Height, 1) * max(copy.Depth, 1),
        )

    def is_from_pageable(self) -> bool:
        """Return True if it copies to the device what the driver does not know: memory that is not pinned."""
        target, source = self._address("dst"), self._address("src")
        if target is None or source is None:
            return False
        return (self._place(target)[0], self._place(source)[0]) == (_OF_DEVICE, 0)

    def parameters(self) -> NodeParameters:
        copy, target, source = self.params, self._address("dst"), self._address("src")
        if target is None or source is None:
            return NodeParameters(self.kind, None)
        names = ("XInBytes", "Y", "Z", "Pitch", "Height")
        offsets = [getattr(copy, side + name) for side in ("dst", "src") for name in names]
        kinds = copy.dstMemoryType.name, copy.srcMemoryType.name
        rest = (*kinds, copy.WidthInBytes, copy.Height, copy.Depth, *offsets)
        return NodeParameters(self.kind, (word(target), word(source)), rest)

    def setter(self, executable: Any, context: Any) -> NodeSetter:
        copy, sides = self.params, ("dst", "src") if self._is_plain() else ()

        def check(after: Sequence[bytes]) -> None:
            for side, new in zip(sides, after, strict=True):
                self._refuse_other_memory(self._address(side) or 0, int.from_bytes(new, "little"), context)

        fields = [(_ADDRESSES[str(self._field(side))], 8) for side in sides]
        copy.Height = copy.Depth = 1
        call, address = "cuGraphExecMemcpyNodeSetParams", calls_of(self.driver).set_memcpy
        return self._setter(executable, context, fields, call, address, copy.WidthInBytes, check)

    def _field(self, side: str) -> str | None:
        """Return the name of the field that has the address of one side; None for an array."""
        suffix = _ADDRESS_FIELDS.get(getattr(self.params, f"{side}MemoryType").name)
        return None if suffix is None else side + suffix

    def _address(self, side: str) -> int | None:
        """Return the address of one side; None for an array."""
        field = self._field(side)
        return None if field is None else int(getattr(self.params, field))

    def _is_plain(self) -> bool:
        """Return True for a copy of one row between memories that are not arrays."""
        one_row = self.params.Height <= 1 and self.params.Depth <= 1
        return one_row and None not in (self._field("dst"), self._field("src"))


class _Fill(_InMemory):
    call = "cuGraphMemsetNodeGetParams"
    can_be_disabled = False

    def describe(self, node: GraphNode) -> GraphNode:
        fill = self.params
        nbytes = fill.elementSize * fill.width * max(fill.height, 1)
        can = ("target", "value") if fill.height <= 1 else ()
        return node._replace(target=int(fill.dst), nbytes=nbytes, value=fill.value, settable=can)

    def parameters(self) -> NodeParameters:
        fill = self.params
        blocks = word(int(fill.dst)), int(fill.value).to_bytes(4, "little")
        return NodeParameters(self.kind, blocks, (fill.elementSize, fill.width, fill.height, fill.pitch))

    def setter(self, executable: Any, context: Any) -> NodeSetter | None:
        fill = self.params
        if fill.height > 1:
            return None

        def check(after: Sequence[bytes]) -> None:
            target, value = (int.from_bytes(each, "little") for each in after)
            if value >= 1 << 8 * fill.elementSize:
                raise ValueError(
                    f"the fill has elements of {fill.elementSize} bytes, and {value} does not fit into "
                    "them; pass a smaller value."
                )
            self._refuse_other_memory(int(fill.dst), target, context)

        call, address = "cuGraphExecMemsetNodeSetParams", calls_of(self.driver).set_memset
        nbytes = fill.elementSize * fill.width
        return self._setter(executable, context, [_TARGET, _VALUE], call, address, nbytes, check)


class _Allocation(Node):
    call = "cuGraphMemAllocNodeGetParams"

    def describe(self, node: GraphNode) -> GraphNode:
        return node._replace(target=int(self.params.dptr), nbytes=self.params.bytesize)

    def parameters(self) -> NodeParameters:
        return NodeParameters(self.kind, (word(int(self.params.dptr)),), self.params.bytesize)


class _Release(Node):
    call = "cuGraphMemFreeNodeGetParams"

    def describe(self, node: GraphNode) -> GraphNode:
        return node._replace(target=int(self.params))

    def parameters(self) -> NodeParameters:
        return NodeParameters(self.kind, (word(int(self.params)),))


class _ChildGraph(Node):
    call = "cuGraphChildGraphNodeGetGraph"

    def describe(self, node: GraphNode) -> GraphNode:
        return node._replace(bodies=(list_nodes(self.driver, self.params, settable=self.reader.settable),))

    def parameters(self) -> NodeParameters:
        return NodeParameters(self.kind, inside=tuple(self.reader.parameters(self.params)))

    def setter(self, executable: Any, context: Any) -> NodeSetter | None:
        """Return what changes all nodes inside; None if there is memory that can't be changed."""
        inside = self._setters(executable, context)
        return None if inside is None else NodeSetter.together(self.kind, inside)

    def _setters(self, executable: Any, context: Any) -> list[NodeSetter] | None:
        """Return what changes the nodes inside."""
        found: list[NodeSetter] = []
        for handle in node_handles(self.driver, self.params):
            node = self.reader(handle)
            if isinstance(node, _ChildGraph):
                inside = node._setters(executable, context)
                if inside is None:
                    return None
                found += inside
            elif isinstance(node, (_Kernel, _InMemory)):
                setter = node.setter(executable, context)
                if setter is None or (isinstance(node, _InMemory) and not setter.blocks):
                    return None
                found.append(setter)
            elif isinstance(node, (_Allocation, _Release, _Conditional)):
                return None
        return found


class _Conditional(Node):
    """Only drivers and bindings from CUDA 13.2 on report its bodies, unless the library has recorded them."""

    call = "cuGraphNodeGetParams"

    @cached_property
    def _bodies(self) -> tuple[str, Sequence[Any]]:
        """Its name, and its bodies as far as they are known."""
        own = self.driver.bodies.get(int(self.handle))
        if own is not None:
            return own.kind, own.bodies
        if not hasattr(self.driver.api, self.call):
            return "", ()
        try:
            params = self.params.conditional  # reads the memory of the whole, but does not keep it
            return params.type.name.removeprefix("CU_GRAPH_COND_TYPE_").lower(), params.phGraph_out
        except AcceleratorGraphError:
            return "", ()
        except ValueError:  # a driver that is newer than the binding
            return "", params.phGraph_out

    def describe(self, node: GraphNode) -> GraphNode:
        name, bodies = self._bodies
        contents = tuple(list_nodes(self.driver, body, settable=False) for body in bodies)
        return node._replace(name=name, bodies=contents)

    def parameters(self) -> NodeParameters:
        inside = (each for body in self._bodies[1] for each in self.reader.parameters(body))
        return NodeParameters(self.kind, None, inside=tuple(inside))


_KINDS: dict[str, type[Node]] = {
    "kernel": _Kernel,
    "memset": _Fill,
    "memcpy": _Copy,
    "mem_alloc": _Allocation,
    "mem_free": _Release,
    "host": _Host,
    "empty": _WithoutMemory,
    "wait_event": _WithoutMemory,
    "event_record": _WithoutMemory,
    "graph": _ChildGraph,
    "conditional": _Conditional,
}


def _block(extra: int) -> tuple[int, int]:
    """Return address and size of the block that holds all parameters of a launch."""
    entries = ctypes.cast(extra, ctypes.POINTER(ctypes.c_void_p))
    found = {_BLOCK: 0, _BLOCK_SIZE: 0}
    at = 0
    while entries[at]:
        found[entries[at]] = entries[at + 1] or 0
        at += 2
    size = ctypes.c_size_t.from_address(found[_BLOCK_SIZE]).value if found[_BLOCK_SIZE] else 0
    return found[_BLOCK], size


# ---- handles, kinds and dependencies -------------------------------------------------------------


def node_handles(driver: Driver, graph: Any) -> list[Any]:
    """Return the handles of a graph's nodes."""
    count = driver.node_count(graph)
    if count == 0:
        return []
    handles: list[Any] = driver.call("cuGraphGetNodes", graph, count)[0]
    return handles


def node_handle(driver: Driver, graph: Any, index: int) -> Any:
    """Return the handle of one node, without those of the nodes behind it."""
    return driver.call("cuGraphGetNodes", graph, index + 1)[0][index]


def kind_of(driver: Driver, node: Any) -> str:
    """Return the kind of a node: the driver's name for it in lower case."""
    try:
        kind = driver.call("cuGraphNodeGetType", node)
    except ValueError:  # a driver that is newer than the binding
        return "unknown"
    return _in_lower_case(kind)


def kind_name(driver: Driver, number: int) -> str:
    """Return the kind of the nodes that have this number as their type."""
    try:
        return _in_lower_case(driver.api.CUgraphNodeType(number))
    except ValueError:  # a driver that is newer than the binding
        return "unknown"


def _in_lower_case(kind: Any) -> str:
    name: str = kind.name
    return name.removeprefix("CU_GRAPH_NODE_TYPE_").lower()


# ---- dependencies --------------------------------------------------------------------------------
# Up to cuda-python 13.3.0 the binding's own function returns data whose memory it has released
# (cuda-python#1804), so the driver's is called.

_EDGES = "cuGraphGetEdges"
_WORD = 8
"""The size of a handle, and of a ``CUgraphEdgeData``."""
_TYPE = 2
"""The place of `type` in it."""


def dependencies(driver: Driver, graph: Any, handles: Sequence[Any]) -> list[tuple[int, int, bytes]]:
    """Return the dependencies between the nodes of a graph, whose handles these are.

    A dependency is the index of its source, that of its target, and its ``CUgraphEdgeData``.
    """
    *ends, data = raw_edges(driver, int(graph))
    index_of = {int(handle): index for index, handle in enumerate(handles)}
    sources, targets = (map(index_of.__getitem__, memoryview(each).cast("Q")) for each in ends)
    return list(
        zip(sources, targets, (data[at : at + _WORD] for at in range(0, len(data), _WORD)), strict=True)
    )


def is_programmatic(data: bytes) -> bool:
    """Return True if the target of a dependency with this data may begin before the source has ended."""
    return data[_TYPE] != 0


def raw_edges(driver: Driver, graph: int) -> tuple[bytes, bytes, bytes]:
    """Return the sources, the targets and the data of a graph's dependencies."""
    from .raw_calls import calls_of

    function, count = calls_of(driver).edges, array("Q", (0,))
    if function is None:
        driver.broke(_EDGES, RuntimeError(f"there is no {_EDGES} of CUDA 12.3"))
    place = count.buffer_info()[0]
    driver.check(_EDGES, function(graph, None, None, None, place))
    found = [array("Q", bytes(_WORD * count[0])) for _ in range(3)]
    if count[0]:
        driver.check(_EDGES, function(graph, *(each.buffer_info()[0] for each in found), place))
    sources, targets, data = (each.tobytes() for each in found)
    return sources, targets, data
