"""The HIP runtime as the backend calls it: checked, on the right device, beside other captures."""

from __future__ import annotations

from contextlib import AbstractContextManager
from ctypes import byref, c_int
from functools import partial
from itertools import chain
from typing import Any, NoReturn

from ..._interpreter.sure_exit import Between
from ...errors import DriverError, UnsupportedError
from .errors import call_failed
from .library import Library, import_hip, prepare

LEGACY_STREAMS = (0, 1)
PER_THREAD_STREAM = 2

SPECIAL_STREAMS = frozenset((*LEGACY_STREAMS, PER_THREAD_STREAM))
"""The null, legacy and per-thread streams: handles that mean whichever device is current."""

_RELAXED = 2
_NO_DEVICE = 100
_NO_STREAM = (400, 709)  # invalid handle; context is destroyed
_ASKED = object()
"""The answer to a destruction that was interrupted inside of the call."""


class Handle:
    """A handle of the runtime, with the device that it belongs to."""

    __slots__ = ("destroyed", "device", "handle")

    def __init__(self, handle: int, device: int) -> None:
        self.handle = handle
        self.device = device
        self.destroyed: Any = None
        """What the runtime answered when it was asked to destroy it; None as long as it was not."""


class Graph(Handle):
    """A recorded graph."""

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
        arguments, places = prepare(function, args)
        code = self.function(function)(*arguments)
        return (code, *[place.value for place in places])

    def destroy(self, function: str, handle: Handle) -> None:
        """Destroy what a handle stands for, unless a call that was interrupted has done so."""
        if handle.destroyed is None:
            keep = partial(setattr, handle, "destroyed")
            with self.relaxed(handle.device):
                answers = map(self.function(function), (handle.handle,))
                any(map(keep, chain((_ASKED,), answers)))  # no line of ours comes between
        if handle.destroyed is not _ASKED:
            self.checked(function, (handle.destroyed,))

    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream, as `destroy` does."""
        ending = self._ending.get(stream)
        if ending is None:
            ending = self._ending[stream] = Handle(stream, self.device_of(stream))
        try:
            self.destroy("hipStreamDestroy", ending)
        except DriverError:
            del self._ending[stream]
            raise
        del self._ending[stream]  # no call: a signal handled after this would have the stream destroyed again

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
