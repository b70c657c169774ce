"""What the suite has to know of HIP, which is AMD's own runtime, on the CPU, with a library before it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_ubyte, c_void_p
from functools import cache
from typing import Any

from accelerator_graph.backends import registry
from accelerator_graph.backends._hip import driver as _hip_driver
from accelerator_graph.backends.hip import HipBackend as Backend
from accelerator_graph.testing.works import hip as works
from simulators.amd.accounts import Accounts as BelowAccounts
from simulators.cuda.faults import Accounts as FaultAccounts

__all__ = ["Accounts", "Backend"]

LIBRARY = "libamdhip64.so"
MODES: dict[str, Any] = {"global": 0, "thread_local": 1, "relaxed": 2}
MODES_OF_THE_DEAD = ("thread_local", "relaxed")
"""In which a capture can be abandoned whose thread has ended: not a global one (rocm-systems#6097)."""

WATCHED = (ctypes.__file__,)
"""Files of the binding that are Python, in which an interrupt can strike too."""

NOT_COVERED = "\0"
"""No moment: the binding is C."""

runtime = ctypes.CDLL(LIBRARY)


class Accounts(FaultAccounts):
    """What lives in the runtime, and what the library below it was asked that it could not answer."""

    @property
    def unknown_calls(self) -> int:
        below = BelowAccounts()
        return below.unknown_calls + below.unknown_kernels


def call(function: str, *args: Any) -> None:
    """Call a function of the runtime, which succeeds."""
    code = getattr(runtime, function)(*args)
    assert code == 0, f"{function}: {code}"


def memory(nbytes: int) -> Any:
    """Return memory of the device, which is the host's too, below this runtime.

    Not of the host alone: HIP 6.4 fills that once, when the graph is instantiated, and never again.
    """
    return (c_ubyte * nbytes).from_address(works.device(0).take(nbytes))


MEMORY_IN_A_SCRIPT = """
import ctypes
place = ctypes.c_void_p()
assert ctypes.CDLL("libamdhip64.so").hipMalloc(ctypes.byref(place), ctypes.c_size_t(4)) == 0
memory = (ctypes.c_ubyte * 4).from_address(place.value)
"""


@cache
def kernel() -> Any:
    """Return the kernel `step`."""
    return works.device(0).kernel


def quiesce() -> None:
    """Wait until the device has done everything."""
    before = place()
    go_to(HOME)
    call("hipDeviceSynchronize")
    go_to(before)


def unsafe_call() -> None:
    """Make a call that is refused while any capture goes on that could be disturbed."""
    address = c_void_p()
    call("hipMalloc", byref(address), c_size_t(16))
    call("hipFree", address)


def no_last_error() -> bool:
    """Say whether the thread has no last error, and forget it."""
    last = runtime.faults_last_error()
    runtime.hipGetLastError()
    return last == 0


# ---- the thread ------------------------------------------------------------------------------------

PLACE = "current device"
HOME = 0


def place() -> int:
    """Return this thread's device."""
    device = c_int()
    call("hipGetDevice", byref(device))
    return device.value


def go_to(wanted: int) -> None:
    """Make a device this thread's."""
    call("hipSetDevice", wanted)


def elsewhere() -> int:
    """Return a device that no operation works on."""
    works.device(0)
    return 1


def enter_device() -> None:
    """Make the device of the operations current."""
    go_to(HOME)


def enter_another() -> None:
    """Make another device current."""
    go_to(elsewhere())


def exchange(mode: int) -> int:
    """Set this thread's capture mode and return the one it had."""
    both = c_int(mode)
    call("hipThreadExchangeStreamCaptureMode", byref(both))
    return both.value


# ---- somebody else's captures ----------------------------------------------------------------------


def new_stream() -> int:
    """Return a stream of device 0 that is not the library's."""
    stream = c_void_p()
    call("hipStreamCreateWithFlags", byref(stream), 1)
    assert stream.value
    return stream.value


def destroy_stream(stream: int) -> None:
    call("hipStreamDestroy", c_void_p(stream))


def begin(stream: int, mode: str) -> None:
    call("hipStreamBeginCapture", c_void_p(stream), MODES[mode])


def enqueue(stream: int) -> None:
    call("hipMemsetAsync", c_void_p(works.device(0).take(8)), 1, c_size_t(8), c_void_p(stream))


def is_capturing(stream: Any) -> bool:
    """Say whether a stream takes part in a capture that is valid."""
    status = c_int()
    call("hipStreamIsCapturing", c_void_p(int(stream)), byref(status))
    return status.value == 1


def end(stream: int) -> bool:
    """End a capture, if there is one, and destroy its graph; say whether there was one."""
    graph = c_void_p()
    if runtime.hipStreamEndCapture(c_void_p(stream), byref(graph)):
        runtime.hipGetLastError()
        return False
    call("hipGraphDestroy", graph)
    return True


def end_all(*_: Any) -> None:
    """End all captures that the backend could not end."""
    runtime.faults_end_captures()


def allocate(stream: Any) -> int:
    """Allocate memory in stream order."""
    address = c_void_p()
    call("hipMallocAsync", byref(address), c_size_t(16), c_void_p(int(stream)))
    assert address.value
    return address.value


def free(stream: Any, memory: int) -> None:
    """Free what `allocate` returned."""
    call("hipFreeAsync", c_void_p(memory), c_void_p(int(stream)))


def free_host(memory: int) -> None:
    """Free memory of the host, which the backend would keep for ever."""
    call("hipHostFree", c_void_p(memory))


# ---- the backend's calls ---------------------------------------------------------------------------

BEGIN, END, IS_CAPTURING = "hipStreamBeginCapture", "hipStreamEndCapture", "hipStreamIsCapturing"
INSTANTIATE, LAUNCH, ROOTS = "hipGraphInstantiateWithFlags", "hipGraphLaunch", "hipGraphGetRootNodes"
SET_PLACE, EXCHANGE = "hipSetDevice", "hipThreadExchangeStreamCaptureMode"
RELAXES = {"hipStreamGetDevice", "hipGetDevice", SET_PLACE, EXCHANGE}
"""What is called to relax a thread and to undo that."""
TELLING = frozenset(
    (*("hipGraphKernelNodeGetParams", "hipGraphMemsetNodeGetParams", "hipGraphMemcpyNodeGetParams"),)
)
"""Functions without which a kernel has no name, and that is all."""

KNOWING = TELLING | {"hipMemGetAddressRange"}
"""Functions without which it is not known where an address is, or a kernel has no name, and that is all."""

WAIT, DESTROY_NODE = "hipStreamWaitEvent", "hipGraphDestroyNode"
WAITS_FOR_LAST_RUN = True
"""Whether the backend has to keep the runs of an executable apart: the runtime lets them overlap."""

SETS_NODES = False
"""Whether the parameters of an executable's nodes can be changed."""

INSTANTIATES_ALLOCATIONS_AGAIN = False
"""Whether a graph that allocates can have another executable once the first is gone."""

VERSION = ""

DESTROYS = {
    "hipEventDestroy": "events",
    "hipGraphDestroy": "graphs",
    "hipGraphExecDestroy": "executables",
    "hipStreamDestroy": "streams",
}
ABANDON, OVER = Backend.capture_abandon.__code__, Backend.discard.__code__

_ANSWER, _CALL = _hip_driver.Driver.answer.__code__, _hip_driver.Driver.call.__code__


def unsaid(function: str, codes: list[Any]) -> bool:
    """Say whether the backend has no use for the code of a call that neither cleans up nor abandons.

    So it is with the last error, and with what is thrown away on the way: events and the added nodes.
    """
    if function in ("hipGetLastError", "hipGraphDestroyNode"):
        return True
    if any(code.co_name == "_launch_and_mark" for code in codes) and "hipEvent" in function:
        return True  # a run whose end can't be marked is waited for
    unchecked = _ANSWER in codes and codes[codes.index(_ANSWER) + 1] is not _CALL
    return unchecked and function == "hipEventDestroy"


def asks_whether_alive(function: str, codes: list[Any]) -> bool:
    """Say whether the call is there to find out whether a stream still is one."""
    return function == "hipStreamGetDevice" and any(code.co_name == "_end_of" for code in codes)


class _Function:
    """Stands for a function of the runtime and notes that it is called."""

    def __init__(self, foreign: Any, note: Callable[[str], None]) -> None:
        self.argtypes, self._foreign, self._note = foreign.argtypes, foreign, note

    def __call__(self, *args: Any) -> Any:
        self._note(self._foreign.__name__)
        return self._foreign(*args)


class _Library:
    """Stands for the backend's library."""

    def __init__(self, library: Any, note: Callable[[str], None]) -> None:
        self._library, self._note = library, note
        self.path = library.path

    def function(self, name: str) -> Any:
        foreign = self._library.function(name)
        return _Function(foreign, self._note) if foreign.restype is c_int else foreign

    def address(self, name: str) -> int:
        return 0  # what C calls is not noted


@contextmanager
def noting(note: Callable[[str], None]) -> Iterator[None]:
    """Let every call of the backend be noted."""
    driver = registry.get("hip").driver
    library = driver._library
    driver._library = _Library(library, note)
    try:
        yield
    finally:
        driver._library = library


FIRST_USE: Callable[[Any], None] | None = None
