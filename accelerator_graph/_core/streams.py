"""Streams: making one, recognising the streams of others, and which one is current on this thread.

This module itself knows only `Stream`, ``int`` and ``__cuda_stream__``; the runtimes' own objects
are recognised by their backends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from numbers import Integral
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from .._interpreter.integers import integer
from .._interpreter.sure_exit import if_skipped, sure_exit
from ..backends import registry
from ..backends.base import Capability, CaptureStatus
from ..errors import AcceleratorGraphError, BackendError, GraphStateError
from ..interop import registry as interop
from . import ownership
from .framework_streams import current_streams, placed

if TYPE_CHECKING:
    from typing import Self

    from ..backends.base import Backend
    from ..interop.base import Framework

T = TypeVar("T")

_NAMED = "which was named; name a stream of that backend, or leave the backend out"
_WAIT_ON_HOST = "synchronize the other stream instead"


class Event:
    """A mark in a stream's work, made by `Stream.record`; `Stream.wait` waits for it."""

    __slots__ = ("__weakref__", "_native")

    def __init__(self, backend: Backend, native: Any) -> None:
        self._native = ownership.Owned(backend, "destroy_event", native)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Event can't be pickled or copied: it belongs to its process; record another one.")


class Stream:
    """A queue of work on one device.

    Parameters
    ----------
    device : int, optional
        Ordinal of the device. By default that of `like`, else that of the current stream, else the one
        that a framework on this backend is on, else 0.
    backend : str, optional
        Name of the backend. By default that of `like`, else the one that was chosen by
        `use_backend` or ``ACCELERATOR_GRAPH_BACKEND``, else that of the current stream, else the
        first usable accelerator, else ``"cpu"``. An installed plug-in counts as an accelerator unless
        it asks to be named.
    like : stream, optional
        Any object that stands for a stream; the new one shares its device and context.
    priority : int
        Lower numbers first; clamped to what the device has.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or value, or frameworks are on different devices.
    BackendError
        The named backend is not known or can't run here.

    Notes
    -----
    The stream belongs to this object and is released with it. Graphs captured on it keep it alive.
    As a context manager it is the current stream of the thread, and waits first for the stream that
    was current before.
    """

    __slots__ = ("__weakref__", "_backend", "_closed", "_device", "_forks", "_native", "_owner")

    _backend: Backend
    _native: Any
    _device: int
    _owner: object
    _closed: bool
    _forks: int

    def __new__(
        cls, device: int | None = None, *, backend: str | None = None, like: object = None, priority: int = 0
    ) -> Self:
        """Make a stream; see the class."""
        ownership.drain()
        priority = integer(priority, "priority")
        if device is not None:
            device = integer(device, "device")
        model = _top() if like is None else as_stream(like, backend)
        if like is None and model is not None and (backend or registry.chosen()) not in (None, model.backend):
            model = None
        if model is None:
            runtime, device = placed(backend, device)
        else:
            runtime, device = model._backend, model._device if device is None else device
        _check_device(runtime, device)
        if like is not None and model is not None and device != model._device:
            raise ValueError(f"device {device}: `like` is a stream of device {model._device}.")
        native_like = model._native if model is not None and model._device == device else None
        native = runtime.create_stream(device, like=native_like, priority=priority)
        return cls._make(runtime, native, device, ownership.Owned(runtime, "destroy_stream", native))

    @classmethod
    def _make(cls, backend: Backend, native: Any, device: int, owner: object) -> Self:
        self = object.__new__(cls)
        self._backend = backend
        self._native = native
        self._device = device
        self._owner = owner
        self._closed = False
        self._forks = ownership.forks
        return self

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return self._backend.name

    @property
    def device(self) -> int:
        """Ordinal of the device."""
        return self._device

    @property
    def native(self) -> Any:
        """The backend's own stream object. It stays owned by this one."""
        self._check()
        return self._native

    @property
    def handle(self) -> int:
        """The vendor's handle, for other libraries; `UnsupportedError` where there is none."""
        self._check()
        return self._backend.handle_int(self._native)

    @property
    def __cuda_stream__(self) -> Callable[[], tuple[int, int]]:
        """The method of that name, which returns ``(0, handle)``; only where the backend is like CUDA."""
        if not self._backend.cuda_like:
            raise AttributeError(f"a stream of backend {self.backend!r} has no __cuda_stream__.")
        return lambda: (0, self.handle)

    def synchronize(self) -> None:
        """Wait until all work on the stream is done; raise `DriverError` if some of it failed."""
        held = self.held()  # another thread may close this one meanwhile
        ownership.drain()
        self._backend.synchronize(held._native)

    def query(self) -> bool:
        """Return True if all work on the stream is done; raise `DriverError` if some of it failed."""
        self._check()
        return self._backend.query(self._native)

    def record(self) -> Event:
        """Mark the present end of the stream's work."""
        self._check()
        ownership.drain()
        return Event(self._backend, self._backend.record_event(self._native))

    def wait(self, other: Event | Stream | Any) -> None:
        """Let later work on this stream wait for an event, or for all work so far on another stream.

        `other` may be anything that stands for a stream. If it is being captured, this stream takes part
        in that capture from now on, and has to be joined before it ends: the captured stream waits for
        this one.
        """
        self._check()
        if not isinstance(other, Event):
            other = as_stream(other, self.backend, f"as the stream that waits; {_WAIT_ON_HOST}")
        source = other._native.backend if isinstance(other, Event) else other._backend
        if source is not self._backend:
            which = "event" if isinstance(other, Event) else describe(other)
            fact = f"is of backend {source.name!r}"
            if source.name == self.backend:
                fact = f"was made before a fork, or before backend {source.name!r} was registered anew"
            raise ValueError(f"the {describe(self)} can't wait: the {which} {fact}; {_WAIT_ON_HOST}.")
        if isinstance(other, Event):
            source.wait_event(self._native, other._native.value)
            return
        event = source.record_event(other._native)
        try:
            source.wait_event(self._native, event)
        finally:
            source.destroy_event(event)

    def fill(self, dst: Any, value: int, nbytes: int | None = None) -> None:
        """Set bytes of memory.

        Parameters
        ----------
        dst : object
            The memory: an object that exposes it, or an address as ``int``.
        value : int
            What every byte is set to, 0 to 255.
        nbytes : int, optional
            How many bytes; by default all of `dst`. Needed for an address.

        Notes
        -----
        `fill`, `copy` and `launch` need the capability ``"enqueue"``. While the thread captures, the
        graph keeps what it is given here; otherwise the caller keeps it until the work is done.
        """
        self._check()
        value = integer(value, "fill: value")
        if not 0 <= value <= 255:
            raise ValueError(f"fill: value must be 0 to 255, the value of a byte, not {value}.")
        nbytes = _checked_nbytes(nbytes)
        self._backend.fill(self._native, dst, value, nbytes)
        self._retain(dst)

    def copy(self, dst: Any, src: Any, nbytes: int | None = None) -> None:
        """Copy bytes from `src` to `dst`, each as in `fill`; by default all of `src`."""
        self._check()
        nbytes = _checked_nbytes(nbytes)
        self._backend.copy(self._native, dst, src, nbytes)
        self._retain(dst, src)

    def launch(self, work: Any, /, *args: Any, **how: Any) -> None:
        """Enqueue `work(*args)`: a callable on cpu, a kernel elsewhere; `how` is the backend's."""
        self._check()
        self._backend.launch(self._native, work, *args, **how)
        self._retain(work, args, how)

    def held(self) -> Stream:
        """Return another hold on the same stream, which `close` of this one does not end."""
        self._check()
        return Stream._make(self._backend, self._native, self._device, self._owner)

    def close(self) -> None:
        """Release the stream as soon as nothing uses it any more. Work on it completes.

        Graphs that replay onto it go on using it; wait for them with ``graph.stream.synchronize()``.
        A stream that was made elsewhere is not touched. Closing twice does nothing.

        Raises
        ------
        GraphStateError
            The stream is being captured.
        """
        if self._dead:
            return
        if self._backend.capture_status(self._native) is CaptureStatus.ACTIVE:
            raise GraphStateError(f"Stream.close(): {captured_by(self)}.")
        self._closed = True
        self._owner = None
        ownership.drain()

    def __enter__(self) -> Self:
        self._check()
        before = _top()
        if before is not None:
            self._join(before)
        entry = Entry(self, self)
        entry.guard = if_skipped(self, partial(leave, entry))
        try:
            enter(entry)
            return self
        except BaseException:  # an interrupt
            leave(entry)
            raise

    @sure_exit
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Stream can't be pickled or copied: it belongs to its process and has one owner; make another "
            "with Stream(like=stream)."
        )

    def __repr__(self) -> str:
        return f"<{describe(self)}{', ' + self._dead if self._dead else ''}>"

    def _join(self, before: Stream) -> None:
        """Wait for the stream that was current before, unless a capture of this one would break."""
        if before is self or before._backend is not self._backend or before._device != self._device:
            return
        runtime = self._backend
        free = not self._is_capturing()
        if Capability.EVENTS in runtime.capabilities(self._device):
            mine, theirs = runtime.capture_id(self._native), runtime.capture_id(before._native)
            if free or (mine is not None and mine == theirs):
                self.wait(before)
        elif not before._is_capturing():
            before.synchronize()
        elif free:
            raise runtime.unsupported(Capability.EVENTS)  # what it gets would run uncaptured, silently

    def _is_capturing(self) -> bool:
        return self._backend.capture_status(self._native) is not CaptureStatus.NONE

    def _follow(self, before: Stream) -> None:
        """Wait for another stream of the device. Neither is being captured."""
        if Capability.EVENTS in self._backend.capabilities(self._device):
            self.wait(before)
        else:
            before.synchronize()

    def _retain(self, *objects: Any) -> None:
        for graph in ownership.thread.capturing:
            graph.retain(objects)

    def _check(self) -> None:
        if self._dead:
            raise GraphStateError(f"the stream {self._dead}; make another one.")

    @property
    def _dead(self) -> str:
        """Why it can't be used any more; empty as long as it can."""
        if self._closed:
            return "was closed"
        return "" if self._forks == ownership.forks else "was made before this process was forked"


class Entry:
    """A stream that is current on a thread from `enter` to `leave`.

    Parameters
    ----------
    stream : Stream
        The stream.
    entrant : object
        On whose behalf: a name for `leave`, beside the entry itself.
    """

    __slots__ = ("entrant", "guard", "stream", "undos")

    def __init__(self, stream: Stream, entrant: object) -> None:
        self.stream = stream
        self.entrant = entrant
        self.undos: list[Callable[[], object]] = []
        self.guard: object = None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.stack: list[Entry] = []


_thread = _Thread()


def current_stream() -> Stream | None:
    """Return this thread's current stream; None if there is none.

    It is the stream of the innermost ``with``, or of the capture that this thread has under way.
    """
    return current()


def is_current_stream_capturing() -> bool:
    """Return True if this thread's current stream is capturing, no matter which library began the capture."""
    stream = current()
    return stream is not None and stream._is_capturing()


def _top() -> Stream | None:
    """Return the innermost stream that was entered on this thread and can still be used."""
    stack = _thread.stack
    return stack[-1].stream if stack and not stack[-1].stream._dead else None


def current(backend: str | None = None, *, or_default: bool = False) -> Stream | None:
    """Return this thread's current stream on a backend, or on whichever there is one.

    If there is none: the default stream on request, if a framework takes part which is on that.

    Raises
    ------
    ValueError
        The current stream belongs to another backend than the named one.
    """
    stream = _top()
    if stream is not None:
        if backend is not None and stream.backend != backend:
            raise ValueError(
                f"the current stream, the {describe(stream)}, is not of backend {backend!r}; name a stream "
                "of that backend, or enter one first."
            )
        return stream
    backend = backend or registry.chosen()
    if backend is not None:
        runtime = registry.get(backend)
        native = runtime.current_stream()
        if native is not None:
            return _wrap(runtime, native, None)
    return _of_frameworks(backend, or_default)


def _of_frameworks(backend: str | None, or_default: bool) -> Stream | None:
    """Return the stream that the frameworks which are there agree on, the default stream aside.

    Raises
    ------
    ValueError
        Two of them have different ones.
    BackendError
        The only ones that have a current stream have it on a backend that can't be used.
    """
    found: Stream | None = None
    fallback: Stream | None = None
    failure: BackendError | None = None
    who = ""
    for current in current_streams(backend):
        try:
            runtime = current.runtime()
        except BackendError as error:
            failure = failure or error
            continue
        native = runtime.as_stream(current.handle)
        if native is None:
            fact = f"{current.handle:#x}, not a stream of backend {current.backend!r}"
            interop.complain(current.framework, "current_stream", f"answered {fact}")
            continue
        stream = Stream._make(runtime, native, current.device, current.framework)
        if stream.handle == 0:
            fallback = fallback or stream
            continue
        if found is not None and (found.backend, found.handle) != (stream.backend, stream.handle):
            raise ValueError(
                f"{who} and {current.who} have different current streams, the {describe(found)} and the "
                f"{describe(stream)}; name the stream that is meant."
            )
        found, who = stream, current.who
    if failure is not None and found is None and fallback is None:
        raise failure
    return found or (fallback if or_default else None)


def enter(entry: Entry, frameworks: Sequence[Framework] | None = None) -> None:
    """Make a stream the current one of this thread, and of every framework that takes part.

    Those are found here if they are not given. After an error `leave` takes back what was done.
    """
    _thread.stack.append(entry)
    stream = entry.stream
    backend = stream._backend
    if Capability.HANDLES in backend.capabilities(stream._device):
        handle = backend.handle_int(stream._native)
        for framework in interop.active(backend.name) if frameworks is None else frameworks:
            entry.undos.extend(filter(None, (framework.use_stream(handle, stream._device),)))


def leave(who: object) -> None:
    """Undo an entry, or the last one of this entrant, on this thread; do nothing if there is none."""
    stack = _thread.stack
    for i in range(len(stack) - 1, -1, -1):
        if stack[i] is who or stack[i].entrant is who:
            entry = stack[i]
            try:
                undo(entry.undos)
            except Exception:
                del stack[i]
                raise
            del stack[i]
            entry.guard = None
            return


def within(stream: Stream, work: Callable[..., T], *args: Any) -> T:
    """Return ``work(*args)``, done while a stream is the current one."""
    entry = Entry(stream, None)
    try:
        try:
            enter(entry)
            return work(*args)
        finally:
            leave(entry)
    finally:
        leave(entry)  # an interrupt may have been ahead of the first


def undo(undos: list[Callable[[], object]]) -> None:
    """Take back all, the last first, also if something raises in between."""
    try:
        while undos:
            undos[-1]()
            undos.pop()
    except Exception:
        undos.pop()
        undo(undos)
        raise
    except BaseException:  # an interrupt, which may have been ahead of the taking back
        undo(undos)
        raise


def as_stream(obj: object, backend: str | None = None, why: str = _NAMED) -> Stream:
    """Return the `Stream` for anything that stands for one.

    Parameters
    ----------
    obj : object
        A `Stream`; an ``int`` or an object with ``__cuda_stream__``, which mean the backend that is
        named or resolved; or a runtime's own stream object.
    backend : str, optional
        The backend that it has to belong to.
    why : str
        Why it has to, and the way out: the end of the message if it belongs to another one.

    Returns
    -------
    Stream
        The same if it is one, else a new one that keeps `obj` and leaves the stream its owner's.

    Raises
    ------
    TypeError
        It is not a stream.
    ValueError
        It belongs to another backend, or the handle is negative.
    GraphStateError
        It was closed.
    BackendError
        Its backend can't be used.
    """
    if isinstance(obj, Stream):
        obj._check()
        if backend is not None and obj.backend != backend:
            raise ValueError(f"the {describe(obj)} is not of backend {backend!r}, {why}.")
        return obj
    reasons: dict[str, str] = {}
    found = None if isinstance(obj, Integral) else _of_framework(obj, backend, why)
    if found is None:
        found = _of_handle(obj, backend) or _of_runtime(obj, backend, reasons)
    if found is None:
        which, make = "", ""
        if backend is not None:
            which, make = f" of backend {backend!r}", f"backend={backend!r}"
        error = TypeError(f"{obj!r} is not a stream{which}; make one with accelerator_graph.Stream({make}).")
        for name, reason in reasons.items():
            error.add_note(f"Backend {name!r} could not be asked: {reason}.")
        raise error
    return _wrap(*found, obj)


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
                raise TypeError(f"{obj!r}: __cuda_stream__ must give (0, handle), not {answer!r}.")
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
    if backend is None:
        return registry.claim(obj, reasons)
    runtime = registry.get(backend)
    native = runtime.as_stream(obj)
    return None if native is None else (runtime, native)


def captured_by(stream: Stream) -> str:
    """Return who is capturing a stream, and the way out: a clause for a message."""
    backend = stream._backend
    for capture in list(ownership.captures.values()):
        if capture.stream._backend is backend:
            with suppress(AcceleratorGraphError):
                ours = backend.capture_id(capture.stream._native)
                if capture.stream._native is stream._native or (
                    ours is not None and ours == backend.capture_id(stream._native)
                ):
                    return capture.who()
    if backend.capture_status(stream._native) is CaptureStatus.INVALIDATED:
        return (
            "an earlier capture of the stream failed and was not ended; end that one first, or use another "
            "stream"
        )
    return "another library is capturing the stream; end that capture first, or use another stream"


def describe(stream: Stream) -> str:
    """Name a stream in a message: by its handle, or by the place of its object where there is none."""
    backend, which = stream._backend, f"at {id(stream._native):#x}"
    if not stream._dead and Capability.HANDLES in backend.capabilities(stream._device):
        which = f"{backend.handle_int(stream._native):#x}"
    return f"stream {which} of {backend.name!r}, device {stream._device}"


def _wrap(backend: Backend, native: Any, owner: object) -> Stream:
    return Stream._make(backend, native, backend.device_of(native), owner)


def _checked_nbytes(nbytes: object) -> int | None:
    if nbytes is None:
        return None
    number = integer(nbytes, "nbytes")
    if number < 0:
        raise ValueError(f"nbytes must not be negative, but it is {number}.")
    return number


def _check_device(backend: Backend, device: int) -> None:
    count = backend.device_count()
    if not 0 <= device < count:
        raise ValueError(f"device {device}: backend {backend.name!r} has {count}, counted from 0.")
