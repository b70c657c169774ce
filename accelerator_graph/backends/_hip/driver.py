"""How the backend calls the HIP runtime: by which names, with which numbers, and by ctypes."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import ArgumentError, byref, c_size_t, c_void_p
from itertools import chain
from typing import Any

from ...errors import Reason, UnsupportedError
from .._shared import no_memory
from ..driver import INVALIDATED, PER_THREAD_STREAM, Names
from ..driver import Driver as Base
from ..driver import Graph as Graph
from ..driver import Handle as Handle
from .library import Library, import_hip, prepare

_PORTABLE_AND_COHERENT = 0x4000_0001
_NO_DEVICE = 100
_NO_STREAM = (400, 709)  # invalid handle; context is destroyed


class HipNames(Names, prefix="hip"):
    """The names that are not those of CUDA's runtime."""

    launch_kernel = "ModuleLaunchKernel"
    host_memory = "HostMalloc"
    capture_info = "StreamGetCaptureInfo_v2"


class Driver(Base):
    """The HIP runtime, initialised. A place is a device."""

    __slots__ = ("_library", "version")

    names = HipNames

    def __init__(self, name: str) -> None:
        super().__init__(name, import_hip())
        api = self.api
        self.stream_type = api.ihipStream_t
        self.pointer_type = self.stream_type.__mro__[-2]
        self.instantiate_flags = int(api.hipGraphInstantiateFlags.hipGraphInstantiateFlagAutoFreeOnLaunch)
        """Each replay frees what the last one left. CUDA's flag for the priorities of nodes is left out: the
        runtime refuses both flags together."""
        self.ask_status = self._status
        self.host_flags = _PORTABLE_AND_COHERENT
        self.copy_kind = (int(api.hipMemcpyKind.hipMemcpyDefault),)
        self._library = Library()
        code, count = self.answer("hipGetDeviceCount")
        if code == _NO_DEVICE:
            self.clear()
        else:
            self.checked("hipGetDeviceCount", (code,))
        self.device_count = 0 if code else count
        self.version: int = self.call("hipRuntimeGetVersion")
        """The runtime's version: 10,000,000 for the first number, 100,000 for the second, then the build."""

    # ---- calls ---------------------------------------------------------------------------------

    def explain(self, function: str, code: Any) -> tuple[str, str, Reason]:
        """Return the name of a code, an explanation, and the neutral reason."""
        from .errors import explain

        return explain(function, code, self.api.hipError_t, self.function("hipGetErrorString")(code))

    def clear(self) -> None:
        """Clear this thread's last error in the runtime."""
        self.function("hipGetLastError")()

    def function(self, name: str) -> Any:
        """Return a function of the runtime. It takes ints and objects of ctypes, and answers a code.

        Raises
        ------
        UnsupportedError
            The installed runtime does not have the function.
        """
        try:
            return self._library.function(name)
        except AttributeError:
            raise UnsupportedError(
                f"the HIP runtime ({self._library.path}) does not have {name}; install a newer ROCm."
            ) from None

    def address(self, name: str) -> int:
        """Return the address of a function that the runtime has."""
        return self._library.address(name)

    def call(self, function: str, *args: Any) -> Any:
        """Call a function and return what it answers: nothing, one value, or a tuple of several.

        Raises
        ------
        DriverError
            The runtime answered an error.
        UnsupportedError
            The installed runtime does not have the function.
        """
        return self.checked(function, self.answer(function, *args))

    def answer(self, function: str, *args: Any) -> tuple[Any, ...]:
        """Call a function and return its code and values, unchecked.

        After an error the values are garbage.
        """
        arguments, places = prepare(function, args, self.stream_type)
        try:
            code = self.function(function)(*arguments)
        except ArgumentError as error:
            raise no_memory(error) from error
        return (code, *[place.value for place in places])

    def keep(self, answers: list[Any], function: str, arg: Any, *before: Any) -> None:
        """Like `answer`, but append `before` and the answer to a list, where no interrupt can lose them.

        The values are the objects that the runtime has written to.
        """
        arguments, places = prepare(function, (arg,), self.stream_type)
        codes = map(self.function(function), *zip(arguments))
        count = len(answers)
        try:
            answers.extend(chain(before, zip(codes, *zip(places), strict=True)))
        except ArgumentError as error:
            del answers[count:]
            raise no_memory(error) from error

    def undo(self, function: str, arg: Any) -> None:
        """Call a function that sets something back, whatever it answers."""
        self.answer(function, arg)

    def memory(self, obj: Any) -> Any:
        """Return the address of a pointer, or device memory for an array; any other object as it is."""
        if not isinstance(obj, self.pointer_type):
            return obj
        pointer: Any = obj
        if hasattr(pointer, "itemsize"):  # an array, whose own interface has no valid type string
            return _DeviceMemory(int(pointer), pointer.size * pointer.itemsize, pointer.is_read_only)
        return int(pointer)

    def node_count(self, graph: Any) -> int:
        """Return the number of a graph's nodes."""
        count = c_size_t()
        self.call("hipGraphGetNodes", graph, None, byref(count))
        return count.value

    def listed(self, nodes: Any, count: int) -> Sequence[Any]:
        """Return the nodes of an answer, which has the address of the first one."""
        return tuple((c_void_p * count).from_address(nodes)) if count and nodes else ()

    def array(self, nodes: Sequence[Any]) -> Any:
        """Return nodes as the runtime's functions take them."""
        return (c_void_p * len(nodes))(*nodes) if nodes else None

    # ---- streams -------------------------------------------------------------------------------

    def _status(self, stream: Any) -> int:
        """Return the capture status of a stream. For one that has been destroyed it would be garbage."""
        if int(stream) != PER_THREAD_STREAM:
            code, _ = self.answer("hipStreamGetDevice", stream)
            if code not in (0, INVALIDATED):  # 901: a HIP on top of CUDA answers any call so
                self.failed("hipStreamGetDevice", code)
        status: int = self.call("hipStreamIsCapturing", stream)
        return status

    def has_stream(self, handle: int) -> bool:
        """Return True if there is a stream with this handle. Most other calls crash if there is none."""
        answer = self.answer("hipStreamGetDevice", handle)
        if answer[0] in _NO_STREAM:
            self.clear()
            return False
        self.checked("hipStreamGetDevice", answer)
        return True


class _DeviceMemory:
    """An array of hip-python."""

    def __init__(self, address: int, nbytes: int, read_only: bool) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, read_only),
            "version": 3,
        }
