"""The backend and the device of a new stream, where the library itself has no current stream.

A framework's current stream chooses the backend, unless it is the default stream. That one still shows which
device the framework is on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .backends import registry
from .errors import BackendError
from .interop import registry as interop

if TYPE_CHECKING:
    from .backends.base import Backend


class _Current(NamedTuple):
    """A framework's current stream."""

    framework: str
    backend: str
    handle: int
    device: int


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
    streams = [] if named is not None and device is not None else _current_streams(named)
    runtime = _backend_of(streams) if named is None else None
    if runtime is None:
        runtime = registry.resolve(backend, cpu_fallback=True)
    return runtime, _device_of(runtime, streams) if device is None else device


def _current_streams(backend: str | None) -> list[_Current]:
    found: list[_Current] = []
    giving_way: list[_Current] = []
    for framework, name in interop.initialised():
        answer = interop.current_stream(framework) if backend in (None, name) else None
        if answer is not None:
            which = giving_way if framework.always_has_a_stream else found
            which.append(_Current(type(framework).__name__, name, *answer))
    return found or giving_way


def _backend_of(streams: list[_Current]) -> Backend | None:
    usable: list[tuple[_Current, Backend]] = []
    failure: BackendError | None = None
    for stream in streams:
        try:
            if stream.handle:
                usable.append((stream, registry.get(stream.backend)))
        except BackendError as error:
            failure = failure or error
    _agree([stream for stream, _ in usable], "backend")
    if failure is not None and not usable:
        raise failure
    return usable[0][1] if usable else None


def _device_of(runtime: Backend, streams: list[_Current]) -> int:
    native = runtime.current_stream()
    if native is not None:
        return runtime.device_of(native)
    here = [stream for stream in streams if stream.backend == runtime.name]
    here = [stream for stream in here if stream.handle] or here
    _agree(here, "device")
    return here[0].device if here else 0


def _agree(streams: list[_Current], on: str) -> None:
    for stream in streams:
        one, other = getattr(streams[0], on), getattr(stream, on)
        if one != other:
            raise ValueError(
                f"{streams[0].framework} and {stream.framework} have current streams on different {on}s, "
                f"{one!r} and {other!r}; name the {on} of the new stream."
            )
