"""What the suite has to know of CUDA, which is the software driver's."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_ubyte
from typing import Any

from cuda.bindings import driver

from accelerator_graph.backends import registry
from accelerator_graph.backends._cuda import raw_calls, update
from accelerator_graph.backends._cuda.hot_calls import HotCalls, hot_calls
from accelerator_graph.backends.cuda import CudaBackend as Backend
from accelerator_graph.testing.works.cuda import call, device
from simulators.cuda.faults import Accounts

__all__ = ["Accounts", "Backend"]

LIBRARY = "libcuda.so.1"
MODES: dict[str, Any] = {
    mode: getattr(driver.CUstreamCaptureMode, f"CU_STREAM_CAPTURE_MODE_{mode.upper()}")
    for mode in ("global", "thread_local", "relaxed")
}
MODES_OF_THE_DEAD = tuple(MODES)
"""In which a capture can be abandoned whose thread has ended."""

WATCHED = (inspect.getfile(type(driver.CUresult)),)
"""Files of the binding that are Python, in which an interrupt can strike too."""

NOT_COVERED = (
    "answers.extend(chain(before, map(getattr(self.api, function), (arg,)))) > __new__: the capture mode"
)
"""An interrupt in the binding's own Python, which loses the former capture mode where there is no extension
(docs/decisions/backends.md)."""


def memory(nbytes: int) -> Any:
    """Return memory of the host, which is the software driver's too."""
    return (c_ubyte * nbytes)()


MEMORY_IN_A_SCRIPT = "import ctypes; memory = (ctypes.c_ubyte * 4)()"


def kernel() -> Any:
    """Return the kernel `step`."""
    return device(0).kernel


def quiesce() -> None:
    """Wait until the device has done everything."""
    with device(0).current():
        call(driver.cuCtxSynchronize)


def unsafe_call() -> None:
    """Make a call that is refused while any capture goes on that could be disturbed."""
    with device(0).current():
        call(driver.cuMemFree, call(driver.cuMemAlloc, 16))


def no_last_error() -> bool:
    """Say whether the thread has no last error: the driver knows none."""
    return True


# ---- the thread ------------------------------------------------------------------------------------

PLACE = "contexts"
HOME: list[int] = []


def place() -> list[int]:
    """Return this thread's stack of contexts, the current one last."""
    found: list[Any] = []
    while int(call(driver.cuCtxGetCurrent)):
        found.insert(0, call(driver.cuCtxPopCurrent))
    for context in found:
        call(driver.cuCtxPushCurrent, context)
    return [int(context) for context in found]


def go_to(wanted: list[int]) -> None:
    """Make this the thread's stack of contexts."""
    while int(call(driver.cuCtxGetCurrent)):
        call(driver.cuCtxPopCurrent)
    for context in wanted:
        call(driver.cuCtxPushCurrent, driver.CUcontext(context))


def elsewhere() -> list[int]:
    """Return a stack with a context that no operation works in: that of device 1."""
    device(0)  # initialises the driver
    return [int(call(driver.cuDevicePrimaryCtxRetain, call(driver.cuDeviceGet, 1)))]


def enter_device() -> None:
    """Make the device of the operations current on top of what is."""
    call(driver.cuCtxPushCurrent, device(0).context)


def enter_another() -> None:
    """Make another device current on top of what is."""
    call(driver.cuCtxPushCurrent, driver.CUcontext(elsewhere()[0]))


def exchange(mode: Any) -> Any:
    """Set this thread's capture mode and return the one it had."""
    return call(driver.cuThreadExchangeStreamCaptureMode, mode)


# ---- somebody else's captures ----------------------------------------------------------------------


def new_stream() -> Any:
    """Return a stream of device 0 that is not the library's."""
    with device(0).current():
        return call(driver.cuStreamCreate, 1)


def destroy_stream(stream: Any) -> None:
    call(driver.cuStreamDestroy, stream)


def begin(stream: Any, mode: str) -> None:
    call(driver.cuStreamBeginCapture, stream, MODES[mode])


def enqueue(stream: Any) -> None:
    with device(0).current():
        call(driver.cuMemsetD8Async, int(device(0).take(8)), 1, 8, stream)


def is_capturing(stream: Any) -> bool:
    """Say whether a stream takes part in a capture that is valid."""
    status = call(driver.cuStreamIsCapturing, stream)
    return bool(status == driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE)


def end(stream: Any) -> bool:
    """End a capture, if there is one, and destroy its graph; say whether there was one."""
    with device(0).current():
        _, graph = driver.cuStreamEndCapture(driver.CUstream(int(stream)))
        if graph is None or not int(graph):
            return False
        call(driver.cuGraphDestroy, graph)
        return True


def end_all(*streams: Any) -> None:
    """End what captures of these streams and of the thread's own one the backend could not end."""
    for stream in (*streams, 2):
        end(stream)


def allocate(stream: Any) -> int:
    """Allocate memory in stream order."""
    with device(0).current():
        return int(call(driver.cuMemAllocAsync, 16, stream))


def free(stream: Any, memory: int) -> None:
    """Free what `allocate` returned."""
    with device(0).current():
        call(driver.cuMemFreeAsync, memory, stream)


def free_host(memory: int) -> None:
    """Free memory of the host, which the backend would keep for ever."""
    with device(0).current():
        call(driver.cuMemFreeHost, memory)


# ---- the backend's calls ---------------------------------------------------------------------------

BEGIN, END, IS_CAPTURING = "cuStreamBeginCapture", "cuStreamEndCapture", "cuStreamIsCapturing"
INSTANTIATE, LAUNCH, ROOTS = "cuGraphInstantiate", "cuGraphLaunch", "cuGraphGetRootNodes"
SET_PLACE, EXCHANGE = "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode"
RELAXES = {"cuStreamGetCtx", "cuCtxGetCurrent", SET_PLACE, EXCHANGE}
"""What is called to relax a thread and to undo that."""
TELLING = frozenset(
    (
        *("cuGraphKernelNodeGetParams", "cuGraphMemsetNodeGetParams", "cuGraphMemcpyNodeGetParams"),
        *("cuFuncGetName", "cuKernelGetName", "cuFuncGetParamInfo", "cuKernelGetParamInfo"),
    )
)
"""Functions without which a node has no name or no parameters, and that is all."""

KNOWING = frozenset(("cuPointerGetAttributes",))
"""Functions without which it is not known where an address is, or a kernel has no name, and that is all."""

WAIT, DESTROY_NODE = "cuStreamWaitEvent", ""
WAITS_FOR_LAST_RUN = False
"""Whether the backend has to keep the runs of an executable apart: the driver does."""

SETS_NODES = True
"""Whether the parameters of an executable's nodes can be changed."""

INSTANTIATES_ALLOCATIONS_AGAIN = True
"""Whether a graph that allocates can have another executable once the first is gone."""

VERSION = "cuDriverGetVersion"

DESTROYS = {
    "cuEventDestroy": "events",
    "cuGraphDestroy": "graphs",
    "cuGraphExecDestroy": "executables",
    "cuStreamDestroy": "streams",
}
ABANDON, OVER = Backend.capture_abandon.__code__, Backend.discard.__code__


def unsaid(function: str, codes: list[Any]) -> bool:
    """Say whether the backend has no use for the code of a call that neither cleans up nor abandons."""
    return False


def asks_whether_alive(function: str, codes: list[Any]) -> bool:
    """Say whether the call is there to find out whether a stream still is one."""
    return False


class _Api:
    """Stands for ``cuda.bindings.driver`` and notes what is called."""

    def __init__(self, api: Any, note: Callable[[str], None]) -> None:
        self._api, self._note = api, note

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._api, name)
        if not re.match(r"cu[A-Z]", name):
            return found
        function = re.sub(r"_v\d+$", "", name)

        def call(*args: Any) -> Any:
            self._note(function)
            return found(*args)

        setattr(self, name, call)
        return call


NAMES = {
    "kind": "cuGraphNodeGetType",
    "kernel": "cuGraphKernelNodeGetParams",
    "attribute": "cuGraphKernelNodeGetAttribute",
    "nodes": "cuGraphGetNodes",
    "update": "cuGraphExecUpdate",
    "edges": "cuGraphGetEdges",
    "set_kernel": "cuGraphExecKernelNodeSetParams",
    "set_memcpy": "cuGraphExecMemcpyNodeSetParams",
    "set_memset": "cuGraphExecMemsetNodeSetParams",
}
"""What is called without the binding, by the fields of `raw_calls.Calls`."""


@contextmanager
def noting(note: Callable[[str], None]) -> Iterator[None]:
    """Let every call of the backend be noted."""
    driver = registry.get("cuda").driver
    api = driver.api
    launch = driver.launch_found
    driver.launch_found = type(launch)(0, launch.failed)  # what C calls is not noted
    driver.api = _Api(api, note)
    asking = driver.ask_current, driver.ask_context, driver.ask_status, driver.ask_capture
    hot = HotCalls(*asking, driver.relaxed, driver.wait)
    driver.use(hot_calls(driver, None))  # in Python, which does the same
    calls, call_each = raw_calls.calls_of(driver), update.call_each

    def noted(name: str, function: Any) -> Any:
        def call(*args: Any) -> int:
            note(name)
            return int(function(*args))

        return call if callable(function) else function

    def noted_each(objects: bytes, questions: tuple[Any, ...], other: int = 0) -> tuple[int, int, bytes]:
        kept, nothing = b"", bytes(8 * sum(len(words) for _, words, _ in questions))
        for at in range(0, len(objects), 8):
            row = b""
            for number, question in enumerate(questions):
                note(NAMES[raw_calls.Calls._fields[calls.index(question[0])]])
                code, _, answer = call_each(objects[at : at + 8], (question,))
                if code and (number or code != other):
                    return code, number, kept
                if code:
                    row = nothing
                    break
                row += answer
            kept += row
        return 0, 0, kept

    driver.calls = raw_calls.Calls(*(noted(NAMES[field], each) for field, each in calls._asdict().items()))
    update.call_each = noted_each  # type: ignore[assignment]
    try:
        yield
    finally:
        update.call_each = call_each
        driver.launch_found = launch
        driver.api = api
        driver.calls = calls
        driver.use(hot)


def forget_contexts(_: object) -> None:
    """Let the backend be as it was before its first use of a device."""
    registry.get("cuda").driver._primary.clear()


FIRST_USE: Callable[[Any], None] | None = forget_contexts
