"""The frameworks' current streams, and the backend and device that they imply for a new stream.

A framework's current stream implies the backend, unless it is the default stream. The default stream still
shows which device the framework uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..backends import registry
from ..errors import BackendError
from ..interop import registry as interop

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..interop.base import Framework


class Current:
    """A framework's current stream on this thread."""

    __slots__ = ("backend", "device", "framework", "handle")

    def __init__(self, framework: Framework, backend: str, handle: int, device: int) -> None:
        self.framework = framework
        self.backend = backend
        self.handle = handle
        self.device = device

    @property
    def who(self) -> str:
        """The framework, in a message."""
        return type(self.framework).__name__

    def runtime(self) -> Backend:
        """Return the backend. Raises `BackendError` if it can't be used."""
        try:
            return registry.get(self.backend)
        except BackendError as error:
            error.add_note(f"It is the backend of the current stream of {self.who}.")
            raise


def current_streams(backend: str | None) -> list[Current]:
    """Return the current streams of the frameworks on a backend, or on any, the default streams included."""
    found: list[Current] = []
    giving_way: list[Current] = []
    for framework, name in interop.initialised():
        answer = interop.current_stream(framework) if backend in (None, name) else None
        if answer is not None:
            which = giving_way if framework.always_has_a_stream else found
            which.append(Current(framework, name, *answer))
    return found or giving_way


def placed(backend: str | None, device: int | None) -> tuple[Backend, int]:
    """Return the backend and the device for a new stream, of which None leaves the choice.

    Raises
    ------
    ValueError
        The current streams of two frameworks are on different backends or devices.
    BackendError
        A backend was named, or is that of the current stream, and can't be used.
    """
    named = registry.chosen() if backend is None else backend
    streams = [] if named is not None and device is not None else current_streams(named)
    runtime = _backend_of(streams) if named is None else None
    if runtime is None:
        runtime = registry.resolve(backend, cpu_fallback=True)
    return runtime, _device_of(runtime, streams) if device is None else device


def _backend_of(streams: list[Current]) -> Backend | None:
    usable: list[tuple[Current, Backend]] = []
    failure: BackendError | None = None
    for stream in streams:
        try:
            if stream.handle:
                usable.append((stream, stream.runtime()))
        except BackendError as error:
            failure = failure or error
    _agree([stream for stream, _ in usable], "backend")
    if failure is not None and not usable:
        raise failure
    return usable[0][1] if usable else None


def _device_of(runtime: Backend, streams: list[Current]) -> int:
    native = runtime.current_stream()
    if native is not None:
        return runtime.device_of(native)
    here = [stream for stream in streams if stream.backend == runtime.name]
    here = [stream for stream in here if stream.handle] or here
    _agree(here, "device")
    return here[0].device if here else 0


def _agree(streams: list[Current], on: str) -> None:
    for stream in streams:
        one, other = getattr(streams[0], on), getattr(stream, on)
        if one != other:
            raise ValueError(
                f"{streams[0].who} and {stream.who} have current streams on different {on}s, {one!r} and "
                f"{other!r}; name the {on} of the new stream."
            )
