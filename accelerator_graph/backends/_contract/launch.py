"""Functions of a vendor's library that the library calls itself."""

from __future__ import annotations

from collections.abc import Callable

from ..._interpreter.record import Record


class SameStream(Record):
    """A condition of a `LaunchFunction`: the executable's latest run was on this same stream.

    Parameters
    ----------
    address : int
        Address of a ``void *`` in which the backend notes the stream of the latest run. It lives as long as
        the executable.
    """

    __slots__ = ("address",)

    def __init__(self, address: int) -> None:
        self.address: int = address


class SameContext(Record):
    """A condition of a `LaunchFunction`: the calling thread's current context is the right one.

    Parameters
    ----------
    address : int
        Address of an ``int current(void **context)``, which returns 0 on success.
    context : int
        The context that it has to store.
    """

    __slots__ = ("address", "context")

    def __init__(self, address: int, context: int) -> None:
        self.address: int = address
        self.context: int = context


class LaunchFunction(Record):
    """A function ``int launch(void *executable, void *stream)`` of the vendor's library.

    Parameters
    ----------
    address : int
        Called with the handles of executable and stream, as `handle_int` returns them, on any thread and
        without the GIL. Returns 0 on success.
    failed : callable
        Raises the `DriverError` for another return code. Called right afterwards, on the same thread.
    guard : SameStream or SameContext, optional
        While this is not met, the library calls `replay`, or what `bind` returned, instead. `SameStream`
        needs a backend whose `serialises_replays` is False.
    capturing : int
        Address of an ``int capturing(void *stream, int *status)``; 0 if there is none. The library calls it
        before every launch. Unless it returns 0 and the status is 0, the library calls `replay`, or what
        `bind` returned, instead. Required if `Backend.replay_ignores_captures` is True.
    """

    __slots__ = ("address", "failed", "guard", "capturing")  # noqa: RUF023 (the order is shown)

    def __init__(
        self,
        address: int,
        failed: Callable[[int], object],
        guard: SameStream | SameContext | None = None,
        capturing: int = 0,
    ) -> None:
        self.address: int = address
        self.failed: Callable[[int], object] = failed
        self.guard: SameStream | SameContext | None = guard
        self.capturing: int = capturing


class SetFunction(Record):
    """A function ``int set(void *executable, void *node, void *parameters)`` of the vendor's library.

    It may have a fourth argument, ``void *context``.

    Parameters
    ----------
    address : int
        Called on any thread and without the GIL, while the executable is not launched. Returns 0 on success;
        otherwise it has changed nothing.
    arguments : tuple of int
        What it is called with, three or four numbers. Later runs use what the parameters hold at the call.
    guard : SameContext, optional
        While this is not met, the library calls the `NodeSetter` instead.
    """

    __slots__ = ("address", "arguments", "guard")

    def __init__(self, address: int, arguments: tuple[int, ...], guard: SameContext | None = None) -> None:
        self.address: int = address
        self.arguments: tuple[int, ...] = arguments
        self.guard: SameContext | None = guard


class StatusFunction(Record):
    """A function ``int status(void *stream, int *status)`` of the vendor's library.

    Parameters
    ----------
    address : int
        Called with the handle of a stream, as `handle_int` returns it, on any thread and with the GIL.
        Returns 0 on success. It must not wait for work.
    active : int
        The status of a stream whose `capture_status` is ``"active"``; 0 is that of one with ``"none"``. For
        any other, and after a code that is not 0, the library calls `capture_status` instead.
    alive : int
        Address of a function of the same kind, called first; 0 if there is none. It returns 0 unless
        `address` must not be called, since the stream has been destroyed.
    """

    __slots__ = ("address", "active", "alive")  # noqa: RUF023

    def __init__(self, address: int, active: int, alive: int = 0) -> None:
        self.address: int = address
        self.active: int = active
        self.alive: int = alive
