"""How the backend calls the HIP runtime: checked, on the right device, without disturbing captures."""

from __future__ import annotations

from contextlib import AbstractContextManager
from ctypes import ArgumentError, byref, c_int
from functools import partial
from typing import Any, NoReturn

from ..._interpreter.interruptions import Between
from ...errors import DriverError, UnsupportedError
from .._shared import ASKED, NOT_READY, SPECIAL_STREAMS, keep, no_memory
from .library import Library, import_hip, prepare

_RELAXED = 2
_NO_DEVICE = 100
_NO_STREAM = (400, 709)  # invalid handle; context is destroyed


class Handle:
    """A handle of the runtime, with the device that it belongs to."""

    __slots__ = ("destroyed", "device", "handle")

    def __init__(self, handle: int, device: int) -> None:
        self.handle: int = handle
        self.device: int = device
        self.destroyed: list[Any] | None = None
        """`ASKED` and what the runtime answered, once it was asked to destroy this."""


class Graph(Handle):
    """A recorded graph."""

    __slots__ = ()


class Driver:
    """The HIP runtime, initialised."""

    __slots__ = (
        "_ending",
        "_library",
        "api",
        "device_count",
        "name",
        "pointer_type",
        "stream_type",
        "version",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.api = import_hip()
        self.stream_type = self.api.ihipStream_t
        self.pointer_type = self.stream_type.__mro__[-2]
        self._library = Library()
        self._ending: dict[int, tuple[Any, Handle]] = {}
        code, count = self.answer("hipGetDeviceCount")
        if code == _NO_DEVICE:
            self.clear()
        else:
            self.checked("hipGetDeviceCount", (code,))
        self.device_count: int = 0 if code else count
        self.version: int = self.call("hipRuntimeGetVersion")
        """The runtime's version: 10,000,000 for the first number, 100,000 for the second, then the build."""

    # ---- calls ---------------------------------------------------------------------------------

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
        arguments, places = prepare(function, args)
        try:
            code = self.function(function)(*arguments)
        except ArgumentError as error:
            raise no_memory(error) from error
        return (code, *[place.value for place in places])

    def is_done(self, function: str, handle: int) -> bool:
        """Return the answer of a query; raise its error."""
        answer = self.answer(function, handle)
        if answer[0] == NOT_READY:
            return False
        self.checked(function, answer)
        return True

    def destroy(self, function: str, handle: Handle) -> None:
        """Destroy what a handle stands for, unless a call that was interrupted has done so."""
        answers = handle.destroyed = handle.destroyed or []
        if not answers:
            call = partial(keep, answers, self.function(function), handle.handle, before=(ASKED,))
            self.relaxed(handle.device).run(call)
        if answers[-1] is not ASKED:
            self.checked(function, (answers[-1],))

    def destroy_stream(self, stream: Any) -> None:
        """Destroy a stream, unless a call that was interrupted has done so."""
        key = id(stream)  # its handle may be another thread's new stream as soon as this one is destroyed
        _, ending = self._ending.get(key, (None, None))
        if ending is None:
            ending = Handle(int(stream), self.device_of(stream))
            self._ending[key] = stream, ending
        try:
            self.destroy("hipStreamDestroy", ending)
        except DriverError:
            del self._ending[key]
            raise
        del self._ending[key]  # no call after it: an interrupt there would destroy the stream again

    def checked(self, function: str, answer: tuple[Any, ...]) -> Any:
        """Return the values of an answer, or raise its error."""
        if answer[0]:
            self.failed(function, answer[0])
        values = answer[1:]
        return values[0] if len(values) == 1 else values or None

    def failed(self, function: str, code: int) -> NoReturn:
        """Raise the error for a code that is not success, and clear it in the runtime."""
        from .errors import call_failed

        self.clear()
        raise call_failed(
            self.name, function, code, self.api.hipError_t, self.function("hipGetErrorString")(code)
        )

    def clear(self) -> None:
        """Clear this thread's last error in the runtime, since a framework would take it for its own."""
        self.function("hipGetLastError")()

    def new_event(self, stream: int, *, timed: bool = False) -> int:
        """Return a new event that marks the present end of a stream's work."""
        flags = self.api.hipEventDefault if timed else self.api.hipEventDisableTiming
        event: int = self.call("hipEventCreateWithFlags", int(flags))
        try:
            self.call("hipEventRecord", event, stream)
        except BaseException:
            self.answer("hipEventDestroy", event)
            raise
        return event

    # ---- devices -------------------------------------------------------------------------------

    def device_of(self, stream: Any) -> int:
        """Return the ordinal of a stream's device: the current one for the special streams."""
        handle = int(stream)
        if handle in SPECIAL_STREAMS:
            return int(self.call("hipGetDevice"))
        return int(self.call("hipStreamGetDevice", handle))

    def has_stream(self, handle: int) -> bool:
        """Return True if there is a stream with this handle. Most other calls crash if there is none."""
        answer = self.answer("hipStreamGetDevice", handle)
        if answer[0] in _NO_STREAM:
            self.clear()
            return False
        self.checked("hipStreamGetDevice", answer)
        return True

    def current(self, device: int) -> AbstractContextManager[None]:
        """Make a device current on this thread; afterwards the caller's is current as before."""
        before: int | None = None

        def begin() -> None:
            nonlocal before
            before = self.call("hipGetDevice")
            self.call("hipSetDevice", device)

        def end() -> None:
            if before is not None:
                self.answer("hipSetDevice", before)

        return Between(begin, end)

    def current_for(self, stream: Any) -> AbstractContextManager[None]:
        """Make the device of a stream current."""
        return self.current(self.device_of(stream))

    def relaxed(self, device: int) -> Between:
        """Like `current`; calls made meanwhile disturb no capture, not even this thread's."""
        exchange, before = "hipThreadExchangeStreamCaptureMode", None
        mode = c_int(_RELAXED)
        place = byref(mode)

        def begin() -> None:
            nonlocal before
            before = self.call("hipGetDevice")
            self.call("hipSetDevice", device)
            self.call(exchange, place)

        def end() -> None:
            if mode.value != _RELAXED:  # else it was not exchanged, or was relaxed before
                self.answer(exchange, place)
            if before is not None:
                self.answer("hipSetDevice", before)

        return Between(begin, end)

    def relaxed_for(self, stream: Any) -> Between:
        """Like `current_for`, and like `relaxed`."""
        return self.relaxed(self.device_of(stream))


# ---- arrays of hip-python ------------------------------------------------------------------------


def plain(obj: Any, pointer_type: type) -> Any:
    """Return the address of a pointer, or device memory for an array; any other object as it is."""
    if not isinstance(obj, pointer_type):
        return obj
    pointer: Any = obj
    if hasattr(pointer, "itemsize"):  # an array, whose own interface has no valid type string
        return _DeviceMemory(int(pointer), pointer.size * pointer.itemsize, pointer.is_read_only)
    return int(pointer)


class _DeviceMemory:
    def __init__(self, address: int, nbytes: int, read_only: bool) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, read_only),
            "version": 3,
        }
