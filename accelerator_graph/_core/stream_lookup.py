"""Finding streams: what an object stands for, and what the frameworks' current streams imply for a new one.

This module itself knows only ``int`` and ``__cuda_stream__``. Frameworks and backends recognise the objects
of their runtimes.
"""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..errors import BackendError
from ..interop import registry as interop

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..interop.base import Framework


def find(obj: object, backend: str | None, why: str) -> tuple[Backend, Any]:
    """Return the backend and the stream that an object stands for, on a backend or on any.

    `why` ends the message for an object of another backend. See `streams.as_stream` for the errors.
    """
    reasons: dict[str, str] = {}
    found = None if isinstance(obj, Integral) else _of_framework(obj, backend, why)
    found = found or _of_handle(obj, backend) or _of_runtime(obj, backend, reasons)
    if found is not None:
        return found
    which, make = "", ""
    if backend is not None:
        which, make = f" of backend {backend!r}", f"backend={backend!r}"
    error = TypeError(f"{obj!r} is not a stream{which}; make one with accelerator_graph.Stream({make}).")
    for name, reason in reasons.items():
        error.add_note(f"Backend {name!r} could not be asked: {reason}.")
    raise error


def is_constant(obj: object) -> bool:
    """Return True if an object is a framework's stream, which no call closes: it never stands for another."""
    return not hasattr(obj, "close") and any(
        interop.as_stream(framework, obj) is not None for framework, _ in interop.initialised()
    )


def _of_framework(obj: object, backend: str | None, why: str) -> tuple[Backend, Any] | None:
    """Return the backend and the stream that a framework's own object stands for."""
    for framework, name in interop.initialised():
        handle = interop.as_stream(framework, obj)
        if handle is None:
            continue
        if backend not in (None, name):
            raise ValueError(f"{obj!r} is a stream of backend {name!r}, not of {backend!r}, {why}.")
        runtime = registry.get(name)
        native = runtime.as_stream(handle)
        if native is not None:
            return runtime, native
        interop.complain(framework, "as_stream", f"answered {handle:#x}, not a stream of backend {name!r}")
    return None


def _of_handle(obj: Any, backend: str | None) -> tuple[Backend, Any] | None:
    """Return the backend and the stream that a handle stands for, or an object that gives one."""
    handle = obj
    if hasattr(obj, "__cuda_stream__"):
        answer = obj.__cuda_stream__() if callable(obj.__cuda_stream__) else obj.__cuda_stream__
        match answer:
            case (0, Integral() as handle):
                pass
            case _:
                raise TypeError(f"{obj!r}: __cuda_stream__ must return (0, handle), not {answer!r}.")
    if handle is True or handle is False or not isinstance(handle, Integral):
        return None
    number = int(handle)
    if number < 0:
        raise ValueError(f"{obj!r} is not a stream: a handle is never negative.")
    runtime = registry.resolve(backend)
    native = runtime.as_stream(number)
    if native is None:
        fact = f"{obj!r} is not the handle of a stream of backend {runtime.name!r}"
        raise TypeError(f"{fact}; pass a stream of that backend, or name the backend of this one.")
    return runtime, native


def _of_runtime(obj: object, backend: str | None, reasons: dict[str, str]) -> tuple[Backend, Any] | None:
    """Return the backend and the stream that a runtime's own object stands for."""
    if isinstance(obj, bool):  # an int, but no handle
        return None
    if backend is None:
        return registry.claim(obj, reasons)
    runtime = registry.get(backend)
    native = runtime.as_stream(obj)
    return None if native is None else (runtime, native)


# ---- the frameworks' current streams -------------------------------------------------------------
# One that is not the default stream implies the backend. The default stream still shows which device the
# framework uses.


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
