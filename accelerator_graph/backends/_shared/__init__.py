"""What the backends of CUDA and of HIP have in common, and every capture needs.

That is the numbers and what they mean, calls whose answers no interrupt can lose, and opening the backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ctypes import ArgumentError
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from ...errors import BackendUnavailableError, DriverError, Reason, capture_error, driver_error
from ..base import Availability, CaptureMode, CaptureStatus

if TYPE_CHECKING:
    from typing import Protocol

    class _Driver(Protocol):
        device_count: int


Driver = TypeVar("Driver", bound="_Driver")

CAPTURE_MODES: tuple[CaptureMode, ...] = ("thread_local", "global", "relaxed")
CAPTURE_STATUSES = (CaptureStatus.NONE, CaptureStatus.ACTIVE, CaptureStatus.INVALIDATED)

ACTIVE = CAPTURE_STATUSES.index(CaptureStatus.ACTIVE)

LEGACY_STREAMS = (0, 1)
PER_THREAD_STREAM = 2
SPECIAL_STREAMS = frozenset((*LEGACY_STREAMS, PER_THREAD_STREAM))
"""Handles that mean a stream of whichever context or device is current."""

ILLEGAL_STATE = 401
NOT_READY = 600
INVALIDATED = 901

ASKED = object()
"""Stands for the answer to a destruction that was interrupted inside of the call."""


def reasons(device_lost: Iterable[int]) -> dict[int, Reason]:
    """Return the neutral reason for each error code.

    Parameters
    ----------
    device_lost : iterable
        The codes after which every further call answers the same, or has no context to run in.
    """
    return {
        2: "out_of_memory",
        900: "illegal_call",  # StreamCaptureUnsupported
        INVALIDATED: "invalidated",
        902: "foreign_capture",  # StreamCaptureMerge: two captures would have become one
        903: "foreign_capture",  # StreamCaptureUnmatched: begun on another stream
        904: "unjoined",
        905: "foreign_capture",  # StreamCaptureIsolation: waiting for what was recorded outside
        906: "default_stream",  # StreamCaptureImplicit
        907: "illegal_call",  # CapturedEvent
        908: "wrong_thread",
        **dict.fromkeys(device_lost, "device_lost"),
    }


def is_handle(obj: object) -> TypeGuard[int]:
    """Return True if an object is an `int` that could be a handle."""
    return isinstance(obj, int) and not isinstance(obj, bool) and 0 <= obj < 1 << 64


def clamped(priority: int, least_and_greatest: tuple[int, int]) -> int:
    """Return the nearest priority that a device has. The greatest priority is the lowest number."""
    least, greatest = least_and_greatest
    return min(max(priority, greatest), least)


def refuse_legacy(stream: Any) -> None:
    """Raise the error for a capture that is to begin on the legacy stream."""
    if int(stream) in LEGACY_STREAMS:
        raise capture_error("a capture on the legacy stream can't begin", reason="default_stream")


def no_graph(backend: str, call: str) -> DriverError:
    """Make the error for a capture that ended with success but without a graph."""
    return driver_error(backend=backend, call=call, code=None, code_name="no graph", reason="invalidated")


def keep(answers: list[Any], function: Callable[..., Any], *args: Any, before: Iterable[Any] = ()) -> None:
    """Append `before` to a list, call a function, and append its answer.

    All of it happens in C: an interrupt can't come between the call and the keeping. If there is no memory
    for the arguments, the list is as it was.
    """
    count = len(answers)
    try:
        answers.extend(chain(before, map(function, *zip(args))))
    except ArgumentError as error:
        del answers[count:]
        raise no_memory(error) from error


def no_memory(error: ArgumentError) -> MemoryError:
    """Return the error for arguments that ctypes could not convert although their types are right."""
    return MemoryError(f"there was no memory for the arguments of a call ({error}).")


def open_driver(
    name: str, found: Availability, make: Callable[[str], Driver], library: str, variable: str
) -> Driver:
    """Return what `make` initialises for the backend `name`, or raise `BackendUnavailableError`.

    `found` is what the backend's probe answered, `library` the vendor's word for it, and `variable` the one
    of the environment that hides devices.
    """
    reason, cause = found.reason, None
    if not reason:
        try:
            driver = make(name)
            if driver.device_count:
                return driver
            reason = f"the {library} finds no device. Attach one, or correct {variable}"
        except Exception as error:
            reason, cause = f"the {library} can't be initialised: {str(error).rstrip('.')}", error
    raise BackendUnavailableError(
        f"backend {name!r} is not available: {reason}.", reasons={name: reason}
    ) from cause
