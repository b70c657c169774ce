"""The HIP runtime as the backend calls it: checked, on the right device, beside other captures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_int
from typing import Any, NoReturn

from ..errors import UnsupportedError
from ._hip_errors import call_failed
from ._hip_library import Library, import_hip, prepare

LEGACY_STREAMS = (0, 1)
PER_THREAD_STREAM = 2

SPECIAL_STREAMS = frozenset((*LEGACY_STREAMS, PER_THREAD_STREAM))
"""The null, legacy and per-thread streams: handles that mean whichever device is current."""

_RELAXED = 2
_NO_DEVICE = 100
_NO_STREAM = (400, 709)  # invalid handle; context is destroyed


class Handle:
    """A handle of the runtime, with the device that it belongs to."""

    __slots__ = ("device", "handle")

    def __init__(self, handle: int, device: int) -> None:
        self.handle = handle
        self.device = device


class Graph(Handle):
    """A recorded graph."""

    __slots__ = ()


class Driver:
    """The HIP runtime, initialised."""

    __slots__ = ("_library", "api", "device_count", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.api = import_hip()
        self._library = Library()
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
        arguments, places = prepare(function, args)
        code = self.function(function)(*arguments)
        return (code, *[place.value for place in places])

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

    @contextmanager
    def current(self, device: int) -> Iterator[None]:
        """Make a device current on this thread; afterwards the caller's is current as before."""
        make_current = self.function("hipSetDevice")
        before = self.call("hipGetDevice")
        try:
            self.checked("hipSetDevice", (make_current(device),))
            yield
        finally:
            make_current(before)

    @contextmanager
    def relaxed(self, device: int) -> Iterator[None]:
        """Like `current`, and what is called meanwhile disturbs no capture, not even this thread's."""
        exchange = self.function("hipThreadExchangeStreamCaptureMode")
        mode = c_int(_RELAXED)
        place = byref(mode)
        with self.current(device):
            try:
                self.checked("hipThreadExchangeStreamCaptureMode", (exchange(place),))
                yield
            finally:
                if mode.value != _RELAXED:  # else nothing was exchanged, or nothing has to be
                    exchange(place)
