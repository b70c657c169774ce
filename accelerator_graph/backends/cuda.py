"""CUDA, through ``cuda.bindings`` of cuda-python.

A stream is any ``CUstream``, ours or a framework's. Graphs, executables, events and captures remember the
context that they belong to, so that any thread can use and release them.

This module and `hip` mirror each other: `driver` has what they share, and what each adds comes in the same
order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, ClassVar, Literal

from ..errors import DriverError
from . import base
from ._cuda.driver import Driver, Executable, Graph
from ._cuda.probe import probe
from .base import (
    Availability,
    Capability,
    LaunchFunction,
    NativeCalls,
    SameContext,
    StatusFunction,
)
from .driver import ACTIVE, SPECIAL_STREAMS, Capture, DriverGraphs, DriverNodeCalls, DriverNodes, Event
from .mixins import ChangesGraphs, Conditions, ProfilesGraphs, TimesGraphs, UpdatesGraphs


class CudaBackend(
    DriverGraphs,
    DriverNodes,
    Conditions,
    TimesGraphs,
    ProfilesGraphs,
    ChangesGraphs,
    UpdatesGraphs,
):
    """NVIDIA GPUs.

    ``launch(kernel, *args, grid, block, shared_bytes=0)`` takes a ``CUfunction``, a ``CUkernel``, a handle
    as `int` or an object that has one as `handle`. Arguments are ctypes scalars and structures, NumPy
    scalars, ``CUdeviceptr`` and objects with ``__cuda_array_interface__``, for which their pointer is passed.
    """

    __slots__ = ()

    driver: Any

    api_version: ClassVar[int] = 1
    stream_modules: ClassVar[frozenset[str]] = frozenset(("cuda",))
    cuda_like: ClassVar[bool] = True
    serialises_replays: ClassVar[bool] = True

    # ---- being there -----------------------------------------------------------------------------

    driver_type: ClassVar[type[Any]] = Driver
    executable_type: ClassVar[type[Executable]] = Executable
    library: ClassVar[str] = "driver"
    hiding: ClassVar[str] = "CUDA_VISIBLE_DEVICES"

    @classmethod
    def look(cls) -> Availability:
        """Look for cuda-python, the driver and a device."""
        return probe()

    def capabilities(self, device: int) -> Set[str]:
        """Return all capabilities, but for updates before CUDA 12.3, and conditions before 12.8."""
        driver: Driver = self.driver
        if driver.edges_address and driver.conditions_address:
            return self.inherited
        since = {Capability.UPDATE: driver.edges_address, Capability.CONDITIONS: driver.conditions_address}
        return self.inherited - {capability for capability, address in since.items() if not address}

    # ---- streams ---------------------------------------------------------------------------------

    def context_id(self, stream: Any) -> int:
        """Return the driver's number for the stream's context."""
        driver: Driver = self.driver
        current = int(stream) in SPECIAL_STREAMS and driver.ask_current()
        return driver.ask_context(current or driver.place_of(stream))

    # ---- capture ---------------------------------------------------------------------------------

    def native_calls(self, stream: Any) -> NativeCalls:
        """Return calls of the driver itself."""
        return _CudaCalls(self, stream)

    # ---- graphs and executables ------------------------------------------------------------------

    def node_setter(
        self, graph: Graph, executable: Executable, node: int, *inside: int
    ) -> base.NodeSetter | None:
        """Return a callable that changes parameters of a kernel, a copy, a fill or a child graph."""
        from ._cuda.node import node_setter

        with self.driver.current(graph.place):
            return node_setter(self.driver, graph, executable, node, *inside)

    def update(self, executable: Executable, former: Graph, graph: Graph) -> base.Misfit | None:
        """Update the executable in place, unless kernels differ or run in clusters."""
        if not self.driver.edges_address:
            raise base.unsupported(self, Capability.UPDATE)
        from ._cuda.update import update

        return update(self.driver, executable, former, graph)

    def destroy_graph(self, graph: Graph) -> None:
        """Release a graph, which needs no context and disturbs no capture."""
        self.driver.destroy("cuGraphDestroy", graph, disturbs=False)

    def discard(self, capture: Capture, answer: tuple[Any, ...]) -> None:
        """Destroy what a capture has left, but for a graph of which a body was broken."""
        driver: Driver = self.driver
        graph = int(answer[1] or 0) if len(answer) > 1 else 0
        is_broken = graph in driver.broken
        driver.broken.discard(graph)
        super().discard(capture, answer[:1] if is_broken else answer)

    # ---- loops and branches ----------------------------------------------------------------------

    def condition(
        self,
        stream: Any,
        kind: Literal["while", "if"],
        bodies: int,
        flag: int,
        nbytes: int,
        limit: int | None,
    ) -> Any:
        """Record a conditional node behind the kernel that tests the flag."""
        from ._cuda.conditions import begin_condition

        return begin_condition(self, stream, kind, bodies, flag, nbytes, limit)

    def body_begin(self, condition: Any, number: int, stream: Any) -> Any:
        """Begin to capture a stream into a body."""
        from ._cuda.conditions import begin_body

        return begin_body(self, condition, number, stream)

    def body_end(self, body: Any) -> Graph:
        """End the capture, behind one more test if the body is a loop's."""
        from ._cuda.conditions import end_body

        return end_body(self, body)

    def body_abandon(self, body: Any) -> None:
        """End the capture; the body belongs to its node."""
        from ._cuda.conditions import abandon_body

        abandon_body(self, body)

    def runs(self, condition: Any, stream: Any) -> int:
        """Read what the kernel has counted."""
        return int.from_bytes(self.read(stream, condition.count, 8), "little")

    flag_test: ClassVar[str] = "accelerator_graph_test_flag"
    """As `_cuda.conditions` has it, which only captures with conditions import."""

    def misplaced(self, body: Graph) -> tuple[int, str] | None:
        """Return the first node for which the driver would refuse the whole graph."""
        from ._cuda.conditions import misplaced

        return misplaced(self.driver, body)

    # ---- looking into a graph --------------------------------------------------------------------

    def nodes(self, graph: Graph, executable: Executable | None = None) -> base.GraphContents:
        """List the nodes, with their parameters, and the dependencies.

        CUPTI's numbers are known from CUDA 13.1 on; before, there is no asking.
        """
        from ._cuda.node import list_nodes, profiler_ids

        with self.driver.current(graph.place):
            nodes, edges = list_nodes(self.driver, graph.handle)
            ids = profiler_ids(self.driver, graph.handle, executable.handle) if executable else ()
        if ids:
            nodes = [node._replace(profiler_id=each) for node, each in zip(nodes, ids, strict=True)]
        return nodes, edges

    def single_executable(self, graph: Graph) -> bool:
        """Return True if the graph has nodes with which the driver allows it one executable at a time."""
        from ._cuda.update import single_executable

        return single_executable(self.driver, int(graph.handle))

    def instantiate_timed(
        self, graph: Graph, before: Sequence[int], after: Sequence[int]
    ) -> tuple[Executable, Sequence[Event]]:
        """Make an executable of a copy that has nodes which record events."""
        from ._cuda.timing import instantiate_timed

        return instantiate_timed(self, self.driver, graph, before, after)

    def time_nodes(self, graph: Graph, stream: Any, runs: int) -> Sequence[Mapping[int, tuple[float, float]]]:
        """Run a copy under CUPTI, which ``cupti-python`` binds."""
        from ._cuda.profiler import time_nodes

        return time_nodes(self, graph, stream, runs)

    def parameters(self, graph: Graph) -> Sequence[base.NodeParameters]:
        """Return the parameters of the nodes."""
        from ._cuda.node import parameters

        with self.driver.current(graph.place):
            return parameters(self.driver, graph.handle)

    def memory_at(self, graph: Graph, addresses: Sequence[int]) -> Sequence[base.MemoryState | None]:
        """Return what the driver knows of the memory at these addresses; not all host memory is known.

        The driver tells an address that it does not know by a memory type of 0, and by no error.
        """
        from .memory import is_readable

        driver, kinds = self.driver, self.driver.api.CUpointer_attribute
        wanted = [kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE]
        found: list[base.MemoryState | None] = []
        with driver.relaxed(graph.place):
            for address in addresses:
                try:
                    (kind,) = driver.call("cuPointerGetAttributes", 1, wanted, address)
                except DriverError:  # a code that the binding does not know is raised, too
                    found.append(None)
                    continue
                is_unknown = not int(kind) and is_readable(address) is False
                found.append("there" if int(kind) else "gone" if is_unknown else None)
        return found


class _CudaCalls(DriverNodeCalls):
    """Calls of the driver for one stream."""

    __slots__ = ()

    def launch_function(self, executable: Executable) -> LaunchFunction | None:
        """Return ``cuGraphLaunch``; for a special stream, on condition that the right context is current."""
        driver = self.driver
        found: LaunchFunction = driver.launch_found
        if int(self._stream) in SPECIAL_STREAMS:
            if not driver.current_address or not found.address:
                return None
            return _in_context(found.address, found.failed, driver.current_address, int(executable.place))
        return found if found.address else None

    def status_function(self) -> StatusFunction | None:
        """Return ``cuStreamIsCapturing``, for streams that have their own context."""
        address = 0 if int(self._stream) in SPECIAL_STREAMS else self.driver.status_address
        return StatusFunction(address, ACTIVE) if address else None


@lru_cache(maxsize=16)
def _in_context(address: int, failed: Callable[[int], object], current: int, context: int) -> LaunchFunction:
    """Return the launch on condition that a context is current: one object for all executables."""
    return LaunchFunction(address, failed, SameContext(current, context))
