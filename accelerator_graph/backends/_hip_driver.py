"""The HIP runtime as the backend calls it: checked, on the right device, beside other captures."""

from __future__ import annotations

from contextlib import AbstractContextManager
from ctypes import byref, c_int, c_void_p
from functools import partial
from threading import RLock
from typing import Any, NoReturn

from .._sure_exit import Between
from ..errors import DriverError, UnsupportedError
from ._hip_errors import call_failed
from ._hip_library import Library, import_hip, prepare

PER_THREAD_STREAM = 2

SPECIAL_STREAMS = frozenset((0, 1, PER_THREAD_STREAM))
"""The null, legacy and per-thread streams: handles that mean whichever device is current."""

_moving = RLock()
_RELAXED = 2
_NO_DEVICE = 100
_NO_STREAM = (400, 709)  # invalid handle; context is destroyed


class Handle:
    """A handle of the runtime, with the device that it belongs to."""

    __slots__ = ("destroyed", "device", "handle")

    def __init__(self, handle: int, device: int) -> None:
        self.handle = handle
        self.device = device
        self.destroyed: int | None = None
        """What the runtime answered when it was destroyed."""


class Graph(Handle):
    """A recorded graph."""

    __slots__ = ()


class Executable(Handle):
    """An instantiated graph, and where its latest run ends: on a stream, else at an event, if it has run."""

    __slots__ = ("__weakref__", "event", "latest", "stream")

    def __init__(self, handle: int, device: int) -> None:
        super().__init__(handle, device)
        self.stream: int | None = None
        self.event = 0
        self.latest = c_void_p()
        """The same stream, for launches in C; none at times, but never another one."""

    def move(self, stream: int | None) -> None:
        """Note on which stream the latest run is."""
        with _moving:
            self.latest.value = None
            self.stream = stream
            self.latest.value = stream

    def leave(self, stream: int) -> None:
        """Note that a run on this stream need not be waited for, if the latest one is there."""
        with _moving:
            if self.stream == stream:
                self.move(None)


class Event(Handle):
    """An event."""

    __slots__ = ()


class Driver:
    """The HIP runtime, initialised."""

    __slots__ = ("_ending", "_library", "api", "device_count", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.api = import_hip()
        self._library = Library()
        self._ending: dict[int, Handle] = {}
        code, count = self.answer("hipGetDeviceCount")
        if code == _NO_DEVICE:
            self.clear()
        else:
            self.checked("hipGetDeviceCount", (code,))
        self.device_count: int = 0 if code else count

    # ---- calls ---------------------------------------------------------------------------------

    def function(self, name: str) -> Any:
        """Return a function of the runtime, which takes ctypes and ints, and answers a code.

        Raises
        ------
        UnsupportedError
            The installed runtime does not have it.
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
            It answered an error.
        UnsupportedError
            The installed runtime does not have it.
        """
        return self.checked(function, self.answer(function, *args))

    def answer(self, function: str, *args: Any) -> tuple[Any, ...]:
        """Call a function and return the code and what follows it, unchecked.

        After an error the runtime leaves rubbish in what it should have answered.
        """
        foreign = self.function(function)
        arguments, places = prepare(foreign, args)
        code = foreign(*arguments)
        return (code, *(place.value for place in places))

    def destroy(self, function: str, handle: Handle) -> None:
        """Destroy what a handle stands for, unless a call that was interrupted has done so."""
        keep = partial(setattr, handle, "destroyed")
        if handle.destroyed is None:
            with self.relaxed(handle.device):  # no line of ours comes between the call and the keeping
                any(map(keep, map(self.function(function), (handle.handle,))))
        self.checked(function, (handle.destroyed,))

    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream, as `destroy` does."""
        ending = self._ending.get(stream)
        if ending is None:
            ending = self._ending[stream] = Handle(stream, self.device_of(stream))
        try:
            self.destroy("hipStreamDestroy", ending)
        except DriverError:
            self._ending.pop(stream, None)
            raise
        self._ending.pop(stream, None)

    def checked(self, function: str, answer: tuple[Any, ...]) -> Any:
        """Return the values of an answer; raise the error that it is."""
        if answer[0]:
            self.failed(function, answer[0])
        values = answer[1:]
        return values[0] if len(values) == 1 else values or None

    def failed(self, function: str, code: int) -> NoReturn:
        """Raise the error for a code that is not success, and clear it in the runtime."""
        self.clear()
        raise call_failed(
            self.name, function, code, self.api.hipError_t, self.function("hipGetErrorString")(code)
        )

    def clear(self) -> None:
        """Have the runtime forget this thread's last error, which a framework would take for its own."""
        self.function("hipGetLastError")()

    def new_event(self, stream: int) -> int:
        """Return an event that marks the present end of a stream's work, and measures no time."""
        event: int = self.call("hipEventCreateWithFlags", int(self.api.hipEventDisableTiming))
        try:
            self.call("hipEventRecord", event, stream)
        except BaseException:
            self.answer("hipEventDestroy", event)
            raise
        return event

    # ---- devices -------------------------------------------------------------------------------

    def device_of(self, stream: Any) -> int:
        """Return the ordinal of a stream's device; it is the current one for the special streams."""
        handle = int(stream)
        if handle in SPECIAL_STREAMS:
            return int(self.call("hipGetDevice"))
        return int(self.call("hipStreamGetDevice", handle))

    def has_stream(self, handle: int) -> bool:
        """Say whether a handle is that of a stream. Most other calls crash if it is not."""
        answer = self.answer("hipStreamGetDevice", handle)
        if answer[0] in _NO_STREAM:
            self.clear()
            return False
        self.checked("hipStreamGetDevice", answer)
        return True

    def current(self, device: int) -> AbstractContextManager[None]:
        """Make a device current on this thread; afterwards the caller's is current as before."""
        set_device = self.function("hipSetDevice")
        before: int | None = None

        def begin() -> None:
            nonlocal before
            before = self.call("hipGetDevice")
            self.checked("hipSetDevice", (set_device(device),))

        def end() -> None:
            if before is not None:
                set_device(before)

        return Between(begin, end)

    def relaxed(self, device: int) -> AbstractContextManager[None]:
        """Like `current`, and what is called meanwhile disturbs no capture, not even this thread's."""
        set_device = self.function("hipSetDevice")
        exchange = self.function("hipThreadExchangeStreamCaptureMode")
        before: int | None = None
        mode = c_int(_RELAXED)
        place = byref(mode)

        def begin() -> None:
            nonlocal before
            before = self.call("hipGetDevice")
            self.checked("hipSetDevice", (set_device(device),))
            self.checked("hipThreadExchangeStreamCaptureMode", (exchange(place),))

        def end() -> None:
            if mode.value != _RELAXED:  # else nothing was exchanged, or nothing has to be
                exchange(place)
            if before is not None:
                set_device(before)

        return Between(begin, end)
