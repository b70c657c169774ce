"""Which streams are current: those that a thread has entered, and those of the frameworks.

To enter a stream makes it current here and in every framework. This module also finds what an object stands
for; of the objects themselves it knows only ``int`` and ``__cuda_stream__``. Frameworks and backends
recognise those of their runtimes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

from ..backends import registry
from ..backends.base import Capability
from ..errors import BackendError
from ..interop import registry as interop

if TYPE_CHECKING:
    from ..backends.base import AnyBackend as Backend
    from ..interop.base import Framework
    from .streams import Stream

T = TypeVar("T")


class Entry:
    """A stream that is current on a thread from `enter` to `leave`."""

    __slots__ = ("entrant", "guard", "stream", "undos")

    stream: Stream
    entrant: object
    """Another name for the entry, which `leave` takes as well."""
    undos: list[Callable[[], object]]
    guard: object


def new_entry(stream: Stream, entrant: object = None, guard: object = None) -> Entry:
    """Return an entry for a stream."""
    entry = Entry()
    entry.stream, entry.entrant, entry.undos, entry.guard = stream, entrant, [], guard
    return entry


class _Thread(threading.local):
    def __init__(self) -> None:
        self.entries: list[Entry] = []


thread = _Thread()
"""`thread.entries`: the streams that this thread has entered, the innermost last."""


def taking_part(backend: Backend) -> Sequence[Framework]:
    """Return the frameworks that take part in what happens on a backend's streams."""
    return () if backend.recording == "explicit" else interop.taking_part(backend.name)


def enter(entry: Entry) -> None:
    """Make a stream the current one of this thread, and of every framework that takes part.

    After an error, `leave` undoes whatever was done.
    """
    thread.entries.append(entry)
    frameworks = taking_part(entry.stream._backend)
    if frameworks:
        make_current(entry, frameworks)


def make_current(entry: Entry, frameworks: Sequence[Framework]) -> int | None:
    """Make a stream the current one of these frameworks; return the handle that they know it by, if any."""
    stream = entry.stream
    backend = stream._backend
    if Capability.HANDLES not in backend.capabilities(stream._device):
        return None
    handle = backend.handle_int(stream._native)
    for framework in frameworks:
        undo = framework.use_stream(handle, stream._device)
        if undo is not None:
            entry.undos.append(undo)
    return handle


def leave(who: object) -> None:
    """Undo an entry, or the last one of this entrant, on this thread; do nothing if there is none.

    If another stream was entered since, that one stays current, and its end undoes both.
    """
    entries = thread.entries
    for i in range(len(entries) - 1, -1, -1):
        entry = entries[i]
        if entry is who or entry.entrant is who:
            if i + 1 < len(entries):
                later = entries[i + 1]
                later.undos, entry.undos = entry.undos + later.undos, []
            try:
                if entry.undos:
                    undo(entry.undos)
            except Exception:
                del entries[i]
                raise
            del entries[i]
            entry.guard = None
            return


def within(stream: Stream, work: Callable[..., T], *args: Any) -> T:
    """Return ``work(*args)``, done while a stream is the current one."""
    entry = new_entry(stream)
    try:
        try:
            enter(entry)
            return work(*args)
        finally:
            leave(entry)
    finally:
        leave(entry)  # an interrupt may have come before the first


def undo(undos: list[Callable[[], object]]) -> None:
    """Call all, the last first, even if one of them raises."""
    try:
        while undos:
            undos[-1]()
            undos.pop()
    except Exception:
        undos.pop()
        undo(undos)
        raise
    except BaseException:  # an interrupt, which may have come before the undo was done
        undo(undos)
        raise


# ---- what an object stands for -------------------------------------------------------------------


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
    for framework, name, stream in interop.current_streams(backend):
        if stream is not None:
            which = giving_way if framework.always_has_a_stream else found
            which.append(Current(framework, name, *stream))
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
