"""Events: marks in a stream's work."""

from __future__ import annotations

from typing import Any, NoReturn

from ..backends.base import Backend
from ..errors import DriverError, GraphStateError
from . import ownership
from .ownership import Owned


class OwnedEvent(Owned):
    """An event of a backend."""

    __slots__ = ()

    def act(self) -> None:
        """Destroy the event."""
        self.backend.destroy_event(self.value)


class Event:
    """A mark in a stream's work, made by `Stream.record`; `Stream.wait` waits for it.

    `query`, `synchronize` and `elapsed_time` need the capability ``"timing"``. During a capture, the first
    two are not permitted where `Stream.synchronize` is not.
    """

    __slots__ = ("__weakref__", "_captured", "_device", "_forks", "_native", "_timed")

    def __init__(self, backend: Backend, native: Any, device: int, *, timed: bool, captured: bool) -> None:
        self._native = OwnedEvent(backend, backend, native)
        self._device = device
        self._timed = timed
        self._captured = captured
        self._forks = ownership.forks

    def query(self) -> bool:
        """Return True if all work before the event is done. Waits for nothing.

        Raises
        ------
        GraphStateError
            The event was recorded in a capture, where nothing runs, or before a fork.
        DriverError
            Work on the device has failed, or a capture forbids the call.
        UnsupportedError
            The backend can't answer that.
        """
        native = self._checked("query")
        return native.backend.query_event(native.value)

    def synchronize(self) -> None:
        """Wait until all work before the event is done; other threads go on. Raises like `query`."""
        native = self._checked("synchronize")
        native.backend.synchronize_event(native.value)

    def elapsed_time(self, end: Event) -> float:
        """Return the time from this event to a later one, in milliseconds.

        Parameters
        ----------
        end : Event
            An event of the same backend and device. Both were recorded with ``timing=True``.

        Raises
        ------
        TypeError, ValueError
            `end` is not an event, or is of another backend or device, or one of the two has no time.
        GraphStateError
            The work before one of them is not done, or it was recorded before a fork.
        """
        if not isinstance(end, Event):
            raise TypeError(f"elapsed_time: end must be an Event, not {end!r}.")
        ours, theirs = self._checked("elapsed_time"), end._checked("elapsed_time")
        backend = ours.backend
        if theirs.backend is not backend or end._device != self._device:
            raise ValueError(
                f"elapsed_time: the events are of backend {backend.name!r}, device {self._device}, and of "
                f"backend {theirs.backend.name!r}, device {end._device}; record both on one device."
            )
        for name, event in (("start", self), ("end", end)):
            if not event._timed:
                raise ValueError(
                    f"elapsed_time: the {name} event was recorded without a time; record it with "
                    "record(timing=True)."
                )
        passed = backend.elapsed_time(ours.value, theirs.value)
        if passed is None:
            raise GraphStateError(
                "elapsed_time: the work before one of the events is not done; call its synchronize() first."
            )
        return passed

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Event can't be pickled or copied: it belongs to its process; record another one.")

    def _checked(self, method: str) -> OwnedEvent:
        """Return the backend's event, if the host can ask about it."""
        if self._forks != ownership.forks:
            raise GraphStateError(
                f"Event.{method}(): the event was recorded before this process was forked; record another."
            )
        if self._captured:
            raise GraphStateError(
                f"Event.{method}(): the event was recorded in a capture, where nothing runs; record one on "
                "the stream of a replay."
            )
        return self._native


def capture_is_over(error: DriverError) -> DriverError:
    """Return the error of a wait for an event whose capture has ended, which CUDA calls an invalid value."""
    said = f" returned {error.code_name} ({error.code})" if error.code_name else ""
    return DriverError(
        f"backend {error.backend!r}: {error.call}{said}: the capture that the event was recorded in is over; "
        "wait for a replay of its graph instead.",
        backend=error.backend,
        call=error.call,
        code=error.code,
        code_name=error.code_name,
        reason="foreign_capture",
        detail=error.detail,
    )
