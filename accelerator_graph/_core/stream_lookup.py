"""Finding the backend and the stream that an object stands for.

This module itself knows only ``int`` and ``__cuda_stream__``. Frameworks and backends recognise the objects
of their runtimes.
"""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..interop import registry as interop

if TYPE_CHECKING:
    from ..backends.base import Backend


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
