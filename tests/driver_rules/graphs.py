"""Graphs of the CUDA driver from a line of text: captured or built, instantiated, updated and run.

A line is a list of steps. Captured on stream ``s``, or on ``a`` after ``a:``: ``fill VALUE [NBYTES]``,
``fill32 VALUE``, ``fill2d VALUE WIDTH HEIGHT``, ``copy TO FROM [NBYTES]``, ``pageable`` and ``pinned``
(copies from such memory of the host), ``kernel A B [BLOCKS]``,
``nothing`` (a kernel too), ``host``, ``yield`` (a host function too), ``alloc [MIB]``, ``into VALUE`` (a fill
of what was allocated, and a copy of it), ``free``, ``fork`` and ``join`` of the two streams, ``record`` and
``wait`` of an external event. ``elsewhere`` at the front: in a context of its own, with memory and kernels of
its own. Built: ``node [DEPENDENCY ...]``, an empty node, ``child STEP + STEP``, a graph of these steps, and
``conditional``, an empty one.
"""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from typing import Any

from cuda.bindings import driver

from accelerator_graph.testing.works.cuda import KERNEL, call, device
from backends.cuda.bench import add_conditional
from driver_rules.contexts import current, new_context

BYTES = 64
NOTHING = b"""
.version 6.3
.target sm_75
.address_size 64
.visible .entry nothing() { ret; }
\0"""
RESULTS = (
    *("success", "error", "topology", "type", "function", "parameters"),
    *("unsupported", "function", "attributes"),
)
_CHILD = int(driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH)
_RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED


class UpdateInfo(ctypes.Structure):
    """What cuGraphExecUpdate says about a refusal; cuda-python keeps it to itself then."""

    _fields_ = (("result", ctypes.c_int), ("node", ctypes.c_void_p), ("from_node", ctypes.c_void_p))


class Place:
    """A context, and in it two streams, two events, memory and kernels."""

    def __init__(self, stack: ExitStack, context: Any) -> None:
        self.context = context
        with current(context):
            self.streams = {name: call(driver.cuStreamCreate, 1) for name in ("s", "a")}
            self.event, self.external = (call(driver.cuEventCreate, 2) for _ in range(2))
            self.memory = int(call(driver.cuMemAlloc, BYTES))
            modules = [call(driver.cuModuleLoadData, text) for text in (KERNEL, NOTHING)]
            self.step = call(driver.cuModuleGetFunction, modules[0], b"step")
            self.nothing = call(driver.cuModuleGetFunction, modules[1], b"nothing")
        for release, handle in (
            *((driver.cuStreamDestroy, stream) for stream in self.streams.values()),
            (driver.cuEventDestroy, self.event),
            (driver.cuEventDestroy, self.external),
            (driver.cuMemFree, self.memory),
            *((driver.cuModuleUnload, module) for module in modules),
        ):
            stack.callback(release, handle)


class Graphs:
    """Make graphs in contexts that last as long as the block."""

    def __enter__(self) -> Graphs:
        self._stack = ExitStack()
        self.here = Place(self._stack, device(0).context)
        self._stack.enter_context(current(self.here.context))
        self._places = {"": self.here}
        self._graphs: dict[int, Any] = {}
        self.bodies: list[Any] = []
        self._executables: dict[int, Any] = {}
        self._buffer = ctypes.create_string_buffer(b"pageable", BYTES)
        self._pageable = ctypes.addressof(self._buffer)
        self._pinned = call(driver.cuMemHostAlloc, BYTES, 0)
        ctypes.memmove(int(self._pinned), b"pinned", 6)
        self._stack.callback(call, driver.cuMemFreeHost, self._pinned)
        self._hosts = [ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None) for _ in range(2)]
        return self

    def __exit__(self, *error: object) -> None:
        for handle in (*self._executables.values(), *self._graphs.values()):
            self.destroy(handle)
        self._stack.close()

    def make(self, line: str) -> Any:
        """Return a graph."""
        steps = [step.strip() for step in line.split(";") if step.strip()]
        where = "elsewhere" if steps[:1] == ["elsewhere"] else ""
        if where and where not in self._places:
            context = new_context()
            self._stack.callback(call, driver.cuCtxDestroy, context)
            self._places[where] = Place(self._stack, context)
        place = self._places[where]
        steps = steps[bool(where) :]
        with current(place.context):
            if steps and steps[0].startswith(("node", "child", "conditional")):
                graph = self._build(steps)
            else:
                call(driver.cuStreamBeginCapture, place.streams["s"], _RELAXED)
                for step in steps:
                    self._enqueue(place, step)
                graph = call(driver.cuStreamEndCapture, place.streams["s"])
        return self.keep(graph)

    def record_into(self, body: Any, line: str) -> None:
        """Capture steps into the body of a conditional node."""
        stream = self.here.streams["s"]
        call(driver.cuStreamBeginCaptureToGraph, stream, body, None, None, 0, _RELAXED)
        for step in line.split(";"):
            self._enqueue(self.here, step.strip())
        call(driver.cuStreamEndCapture, stream)

    def keep(self, graph: Any) -> Any:
        """Destroy a graph at the end of the block."""
        self._graphs[int(graph)] = graph
        return graph

    def instantiate(self, graph: Any) -> Any:
        executable = call(driver.cuGraphInstantiate, graph, 0)
        self._executables[int(executable)] = executable
        return executable

    def destroy(self, handle: Any) -> None:
        """Destroy a graph or an executable already now."""
        if self._graphs.pop(int(handle), None) is not None:
            call(driver.cuGraphDestroy, handle)
        else:
            call(driver.cuGraphExecDestroy, self._executables.pop(int(handle)))

    def run(self, executable: Any) -> bytes:
        """Launch, and return what the memory, which was all zero, holds then."""
        self.clear()
        self.launch(executable)
        return self.read()

    def clear(self) -> None:
        call(driver.cuMemsetD8Async, self.here.memory, 0, BYTES, self.here.streams["s"])

    def launch(self, executable: Any) -> None:
        call(driver.cuGraphLaunch, executable, self.here.streams["s"])

    def read(self) -> bytes:
        """Return what the memory holds once all is done."""
        call(driver.cuStreamSynchronize, self.here.streams["s"])
        found = bytearray(BYTES)
        call(driver.cuMemcpyDtoH, found, self.here.memory, BYTES)
        return bytes(found)

    def update(self, executable: Any, graph: Any) -> str:
        """Return the code, the result, and the nodes in question by their number in the graph."""
        info = UpdateInfo(-1, 1, 1)
        function = ctypes.CDLL("libcuda.so.1").cuGraphExecUpdate_v2
        function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(UpdateInfo))
        code = function(int(executable), int(graph), ctypes.byref(info))
        handles = [int(node) for node in self.nodes(graph)]
        found = [str(handles.index(node)) if node in handles else "inner"
                 for node in (info.node, info.from_node) if node]  # fmt: skip
        return " ".join([str(code), RESULTS[info.result], *found]) if code or info.result or found else "ok"

    def change(self, executable: Any, graph: Any, other: Any, how: str) -> int:
        """Change a child in the executable of a graph as it is in another graph: the code.

        Change all of it ``by_child``, or ``by_node`` the last node of the innermost child.
        """
        if how == "by_child":
            child = call(driver.cuGraphChildGraphNodeGetGraph, self.nodes(other)[0])
            return int(driver.cuGraphExecChildGraphNodeSetParams(executable, self.nodes(graph)[0], child)[0])
        node, new = self.inside(graph)[-1], self.inside(other)[-1]
        kind = {0: "Kernel", 1: "Memcpy", 2: "Memset"}[int(call(driver.cuGraphNodeGetType, node))]
        params = call(getattr(driver, f"cuGraph{kind}NodeGetParams"), new)
        where = () if kind == "Kernel" else (self.here.context,)
        return int(getattr(driver, f"cuGraphExec{kind}NodeSetParams")(executable, node, params, *where)[0])

    def inside(self, graph: Any) -> list[Any]:
        """Return the nodes of the innermost child."""
        nodes = self.nodes(graph)
        if int(call(driver.cuGraphNodeGetType, nodes[0])) != _CHILD:
            return nodes
        return self.inside(call(driver.cuGraphChildGraphNodeGetGraph, nodes[0]))

    def nodes(self, graph: Any) -> list[Any]:
        count = driver.cuGraphGetNodes(graph)[2]
        return list(driver.cuGraphGetNodes(graph, count)[1]) if count else []

    def edges(self, graph: Any) -> list[tuple[int, int]]:
        """Return the edges, as numbers of nodes."""
        numbers = {int(node): number for number, node in enumerate(self.nodes(graph))}
        count = driver.cuGraphGetEdges(graph)[-1]
        if not count:
            return []
        _, before, after, *_ = driver.cuGraphGetEdges(graph, count)
        return sorted((numbers[int(one)], numbers[int(two)]) for one, two in zip(before, after, strict=True))

    def kinds(self, graph: Any) -> list[int]:
        return [int(call(driver.cuGraphNodeGetType, node)) for node in self.nodes(graph)]

    def add(self, graph: Any, *after: Any) -> Any:
        """Add an empty node."""
        return call(driver.cuGraphAddEmptyNode, graph, list(after), len(after))

    # ---- steps ---------------------------------------------------------------------------------

    def _build(self, steps: list[str]) -> Any:
        graph = call(driver.cuGraphCreate, 0)
        nodes: list[Any] = []
        for step in steps:
            verb, _, rest = step.partition(" ")
            if verb == "node":
                nodes.append(self.add(graph, *(nodes[int(number)] for number in rest.split())))
            elif verb == "child":
                child = self.make(rest if rest.startswith("child") else rest.replace("+", ";"))
                nodes.append(call(driver.cuGraphAddChildGraphNode, graph, [], 0, child))
            else:
                node, self.bodies = add_conditional(graph)
                nodes.append(node)
        return graph

    def _enqueue(self, place: Place, text: str) -> None:
        name, colon, step = text.rpartition(":")
        stream = place.streams[name.strip() if colon else "s"]
        verb, *words = step.split()
        numbers = [int(word) for word in words]
        if verb == "fill":
            call(driver.cuMemsetD8Async, place.memory, numbers[0], *(numbers[1:] or [16]), stream)
        elif verb == "fill32":
            call(driver.cuMemsetD32Async, place.memory, numbers[0], 4, stream)
        elif verb == "fill2d":
            call(driver.cuMemsetD2D8Async, place.memory, 16, *numbers, stream)
        elif verb == "copy":
            to, source, nbytes = (*numbers, 8)[:3]
            call(driver.cuMemcpyAsync, place.memory + to, place.memory + source, nbytes, stream)
        elif verb in ("pageable", "pinned"):
            source = self._pageable if verb == "pageable" else self._pinned
            call(driver.cuMemcpyHtoDAsync, place.memory, int(source), BYTES, stream)
        elif verb == "kernel":
            a, b, blocks = (*numbers, 1)[:3]
            values = (place.memory, a, b, 0), (ctypes.c_uint64, *[ctypes.c_uint32] * 2, ctypes.c_uint64)
            call(driver.cuLaunchKernel, place.step, blocks, 1, 1, 1, 1, 1, 0, stream, values, 0)
        elif verb == "nothing":
            call(driver.cuLaunchKernel, place.nothing, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)
        elif verb in ("host", "yield"):
            # cuda-python's own call releases what it passes on after one run.
            launch = ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc
            assert launch(ctypes.c_void_p(int(stream)), self._hosts[verb == "yield"], None) == 0
        elif verb == "alloc":
            self.allocated = call(driver.cuMemAllocAsync, (*numbers, 1)[0] << 20, stream)
        elif verb == "into":
            call(driver.cuMemsetD8Async, self.allocated, numbers[0], 16, stream)
            call(driver.cuMemcpyAsync, place.memory, self.allocated, 16, stream)
        elif verb == "free":
            call(driver.cuMemFreeAsync, self.allocated, stream)
        elif verb == "record":
            call(driver.cuEventRecordWithFlags, place.external, stream, 1)
        elif verb == "wait":
            call(driver.cuStreamWaitEvent, stream, place.external, 1)
        else:
            ends = ("s", "a") if verb == "fork" else ("a", "s")
            call(driver.cuEventRecord, place.event, place.streams[ends[0]])
            call(driver.cuStreamWaitEvent, place.streams[ends[1]], place.event, 0)
