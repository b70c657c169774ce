"""How the backend calls the CUDA driver: by which names, with which numbers, and in the right context."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakValueDictionary

import accelerator_graph._interpreter as interpreter

from ...errors import Reason
from ..base import LaunchFunction
from ..driver import CAPTURE_MODES, SPECIAL_STREAMS, Names
from ..driver import Driver as Base
from ..driver import Event as Event
from ..driver import Executable as BaseExecutable
from ..driver import Graph as Graph
from .hot_calls import HotCalls, hot_calls
from .probe import import_driver, version_text

if TYPE_CHECKING:
    from .._shared.nodes import Shape
    from .conditions import Condition, Tests
    from .raw_calls import Calls


_TWO_BODIES = 12080
"""The driver that has branches of two bodies."""


class CudaNames(Names, prefix="cu"):
    """The names that are not those of CUDA's runtime."""

    get_current = "CtxGetCurrent"
    set_current = "CtxSetCurrent"
    stream_place = "StreamGetCtx"
    priority_range = "CtxGetStreamPriorityRange"
    create_event = "EventCreate"
    fill = "MemsetD8Async"
    host_memory = "MemHostAlloc"
    instantiate = "GraphInstantiate"


class Executable(BaseExecutable):
    """An instantiated graph."""

    __slots__ = ("shape",)

    def __init__(self, handle: Any, place: Any) -> None:
        self.handle: Any = handle  # not by `super`: each capture makes one
        self.place: Any = place
        self.destroyed: list[Any] | None = None
        self.shape: Shape | None = None
        """The shape of its work, once it was updated: the graph's own may have changed since then."""


class Driver(Base):
    """``cuda.bindings.driver``, initialised. A place is a context."""

    __slots__ = (
        "_latest",
        "_primary",
        "ask_context",
        "bodies",
        "broken",
        "calls",
        "conditions_address",
        "current_address",
        "edges_address",
        "launch_found",
        "roots",
        "status_address",
        "tests",
    )

    names = CudaNames
    raises = (RuntimeError, ValueError)

    def __init__(self, name: str) -> None:
        super().__init__(name, import_driver())
        api = self.api
        self.stream_type, self.pointer_type = api.CUstream, api.CUdeviceptr
        self.graph_type, self.executable_type = api.CUgraph, api.CUgraphExec
        self.success = api.CUresult.CUDA_SUCCESS
        modes = api.CUstreamCaptureMode
        self.capture_modes = {
            mode: getattr(modes, f"CU_STREAM_CAPTURE_MODE_{mode.upper()}") for mode in CAPTURE_MODES
        }
        flags = api.CUgraphInstantiate_flags
        self.instantiate_flags = (
            flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
            | flags.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
        )
        """The flags that torch uses: each replay frees what the last one left."""
        kinds = api.CUgraphMem_attribute
        self.graph_memory = (
            kinds.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
            kinds.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
        )
        self.tests: dict[int, Tests] = {}
        """What tests flags, by context."""
        self.roots: dict[int, tuple[int, Any]] = {}
        """By the bodies that are being captured the graphs that they are in, and the streams of those."""
        self.broken: set[int] = set()
        """Graphs of which a body was broken."""
        self.bodies: WeakValueDictionary[int, Condition] = WeakValueDictionary()
        """The conditions of the library, by their nodes."""
        self._primary: dict[int, Any] = {}
        self._latest: tuple[Any, Any] = (None, None)
        """The stream whose context was asked for last, and that context: the binding's object, which stands
        for one stream as long as that exists."""
        self.call("cuInit", 0)
        self.device_count = self.call("cuDeviceGetCount")
        self.calls: Calls | None = None
        """Those of `raw_calls`, once they were asked for."""
        answered = partial(self.answered, "cuGraphLaunch")
        self.launch_found = LaunchFunction(self.address("cuGraphLaunch", 12000), answered)
        self.current_address = self.address("cuCtxGetCurrent", 12000)
        self.status_address = self.address("cuStreamIsCapturing", 12000)
        self.edges_address = self.address("cuGraphGetEdges", 12030)
        has_two_bodies = self.call("cuDriverGetVersion") >= _TWO_BODIES and hasattr(
            api, "cuStreamBeginCaptureToGraph"
        )
        self.conditions_address = (
            self.address("cuGraphConditionalHandleCreate", 12030) if has_two_bodies else 0
        )
        # For CUDA 12 the binding has two functions. The one without the suffix refuses edges that have data.
        if hasattr(api, "cuStreamGetCaptureInfo_v3") and self.address("cuStreamGetCaptureInfo", 12030):
            self.capture_function = "cuStreamGetCaptureInfo_v3"
        if not hasattr(api, "cuStreamGetCaptureInfo_v3"):  # CUDA 13: one function, with the data of edges
            self.edge_data = (None,)
        self.use(hot_calls(self, interpreter.in_c()))

    def use(self, hot: HotCalls) -> None:
        """Make calls in this way from now on."""
        self.ask_current, self.ask_context, self.ask_status = hot.current, hot.context, hot.status
        self.ask_capture, self.relaxed, self.wait = hot.capture, hot.relaxed, hot.wait

    # ---- calls ---------------------------------------------------------------------------------

    def explain(self, function: str, code: Any) -> tuple[str, str, Reason]:
        """Return the name of a code, the driver's explanation, and the neutral reason."""
        from .errors import explain

        return explain(code)

    def broke(self, function: str, error: Exception) -> NoReturn:
        """Raise the error for an exception that the binding raised."""
        from .errors import call_broke

        ours = call_broke(self.name, function, error, self._version())
        if ours is None:
            raise error
        raise ours from error

    def answered(self, function: str, number: int) -> NoReturn:
        """Raise the error for a code that is not 0, from a call that was made without the binding."""
        try:
            code = self.api.CUresult(number)
        except ValueError as error:
            self.broke(function, error)
        self.failed(function, code)

    def check(self, function: str, number: int) -> None:
        """Raise the error for the code of a call that was made without the binding, unless it is 0."""
        if number:
            self.answered(function, number)

    def address(self, function: str, version: int) -> int:
        """Return the address of a function as CUDA `version` has it; 0 if the driver does not report it."""
        code, *found = self.answer("cuGetProcAddress", function.encode(), version, 0)
        return int(found[0] or 0) if code is self.success and found else 0

    def _version(self) -> str:
        code, version = self.api.cuDriverGetVersion()
        return version_text(version) if code is self.success else "?"

    # ---- contexts ------------------------------------------------------------------------------

    def place(self, device: int) -> Any:
        """Return the primary context of a device, retained on first use and never released."""
        context = self._primary.get(device)
        if context is None:
            context = self.call("cuDevicePrimaryCtxRetain", self.call("cuDeviceGet", device))
            context = self._primary.setdefault(device, context)
        return context

    def place_of(self, stream: Any) -> Any:
        """Return a stream's own context."""
        if int(stream) not in SPECIAL_STREAMS:
            known, context = self._latest
            if known is not stream:
                context = self.call("cuStreamGetCtx", stream)
                self._latest = stream, context
            return context
        return self.ask_current() or self.place(0)

    def device_of(self, stream: Any) -> int:
        """Return the ordinal of a stream's device: the current one for the special streams.

        ``cuStreamGetDevice`` would answer 900 on a capturing stream and invalidate the capture (driver
        580); ``cuStreamGetCtx`` does not.
        """
        return int(self.within(self.place_of(stream), self.call, "cuCtxGetDevice"))

    def ask_device(self) -> int:
        """Return the ordinal of the current context's device."""
        return int(self.call("cuCtxGetDevice"))
