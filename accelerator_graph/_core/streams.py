"""Streams, the work that goes through them, and events, which are marks in that work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from .._interpreter import boolean, integer
from .._interpreter.interruptions import if_skipped, sure_exit
from ..backends import registry
from ..backends.base import AnyBackend as Backend
from ..backends.base import Capability, CaptureInfo, CaptureStatus, unsupported
from ..errors import AcceleratorGraphError, DriverError, GraphStateError
from ..interop.base import Framework
from . import capture_table, ownership, stream_stack
from .ownership import Owned
from .stream_stack import find, placed

if TYPE_CHECKING:
    from .capture import Capture

_NAMED = "which was named; name a stream of that backend, or leave the backend out"
_WAIT_ON_HOST = "synchronize the other stream instead"


# ---- owners --------------------------------------------------------------------------------------


class OwnedStream(Owned):
    """A stream that this library made and has to destroy."""

    __slots__ = ()

    def act(self) -> None:
        """Destroy the stream."""
        self.backend.destroy_stream(self.value)


class Borrowed:
    """The owner of a stream that was made elsewhere: the object that stood for it, which is kept alive."""

    __slots__ = ("obj",)

    def __init__(self, obj: object) -> None:
        self.obj = obj


class FrameworkCurrent:
    """The owner of a stream that was a framework's current one. Nothing keeps such a stream alive."""

    __slots__ = ("framework",)

    def __init__(self, framework: Framework) -> None:
        self.framework = framework


Owner = OwnedStream | Borrowed | FrameworkCurrent


# ---- streams -------------------------------------------------------------------------------------


class Stream:
    """A queue of work on one device.

    Parameters
    ----------
    device : int, optional
        Ordinal of the device. By default that of `like`, or else that of the current stream, or the one
        that a framework on this backend is on, or else 0.
    backend : str, optional
        Name of the backend. By default that of `like`; without it, the one that was chosen by
        `use_backend` or ``ACCELERATOR_GRAPH_BACKEND``, or else that of the current stream, or the
        first usable accelerator, or else ``"cpu"``. An installed plug-in counts as an accelerator unless
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

    __slots__ = ("__weakref__", "_backend", "_closed", "_device", "_forks", "_hold", "_native", "_owner")

    _backend: Backend
    _native: Any
    _device: int
    _owner: Owner | None
    _hold: object
    """The `_hold` of the owner. In garbage with cycles the owner is due at once; this keeps it from acting
    before the last finalizer that uses the stream has acted."""
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
        model = innermost() if like is None else as_stream(like, backend)
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
        return cls._make(runtime, native, device, OwnedStream(runtime, runtime, native))

    @classmethod
    def _make(cls, backend: Backend, native: Any, device: int, owner: Owner | None) -> Self:
        self = object.__new__(cls)
        self._backend = backend
        self._native = native
        self._device = device
        self._owner = owner
        self._hold = owner._hold if isinstance(owner, OwnedStream) else None
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

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Stream can't be pickled or copied: it belongs to its process and has one owner; make another "
            "with Stream(like=stream)."
        )

    def __repr__(self) -> str:
        return f"<{describe(self)}{', ' + self._dead if self._dead else ''}>"

    def synchronize(self) -> None:
        """Wait until all work on the stream is done; raise `DriverError` if some of it failed."""
        held = self.held()  # another thread may close this one meanwhile
        ownership.drain()
        self._backend.synchronize(held._native)

    def query(self) -> bool:
        """Return True if all work on the stream is done; raise `DriverError` if some of it failed."""
        _held = self._in_use()
        return self._backend.query(self._native)

    def fill(self, dst: Any, value: int, nbytes: int | None = None) -> None:
        """Set bytes of memory.

        Parameters
        ----------
        dst : object
            The memory: an object that exposes it, or an address as ``int``.
        value : int
            The new value of every byte, 0 to 255.
        nbytes : int, optional
            How many bytes; by default all of `dst`. Required for an address, and for a `value` other than 0
            if `dst` is an array whose elements are larger than a byte: they would not become `value`.

        Raises
        ------
        TypeError
            `dst` has no memory that can be used, or `nbytes` is required.
        ValueError
            `value` does not fit into a byte, or the memory has gaps, is read-only or smaller than `nbytes`.

        Notes
        -----
        `fill`, `copy` and `launch` need the capability ``"enqueue"``. While the thread captures, the
        graph keeps these arguments alive; otherwise the caller has to, until the work is done.
        """
        _held = self._in_use()
        value = integer(value, "fill: value")
        if not 0 <= value <= 255:
            raise ValueError(f"fill: value must be 0 to 255, the value of a byte, not {value}.")
        nbytes = _checked_nbytes(nbytes)
        if nbytes is None and value:
            from ..backends.memory import elements_of  # imports ctypes

            elements = elements_of(dst)
            if elements is not None and elements[1] > 1:
                kind, size = elements
                raise TypeError(
                    f"fill: every byte would become {value}, and an element of dst, {kind!r}, has {size} "
                    "bytes; launch work that sets elements, or pass nbytes to set bytes."
                )
        self._backend.fill(self._native, dst, value, nbytes)
        self._retain(dst)

    def copy(self, dst: Any, src: Any, nbytes: int | None = None) -> None:
        """Copy bytes from `src` to `dst`, each as in `fill`; by default all of `src`.

        Raises `TypeError` for arrays with elements of different types, since a copy does not convert. Pass
        `nbytes` to copy the bytes as they are.
        """
        _held = self._in_use()
        nbytes = _checked_nbytes(nbytes)
        if nbytes is None:
            from ..backends.memory import elements_of  # imports ctypes

            target, source = elements_of(dst), elements_of(src)
            if target is not None and source is not None and target != source:
                raise TypeError(
                    f"copy: the elements of dst are {target[0]!r}, those of src {source[0]!r}, and copies "
                    "don't convert; convert src first, or pass nbytes to copy its bytes as they are."
                )
        self._backend.copy(self._native, dst, src, nbytes)
        self._retain(dst, src)

    def launch(self, work: Any, /, *args: Any, **how: Any) -> None:
        """Enqueue `work(*args)`: a callable on cpu, a kernel elsewhere.

        Parameters
        ----------
        work : callable or kernel
            What to run.
        *args
            Its arguments. Those of a kernel on CUDA and HIP are ctypes or NumPy scalars, the binding's own
            pointers, or arrays of the device; a Python number is refused, since its width is not known.
        **how
            How the backend launches it. On CUDA and HIP: ``grid`` and ``block``, each an int or a tuple of
            up to three, and ``shared_bytes``. On cpu: keyword arguments of the callable.

        Raises
        ------
        TypeError, ValueError
            The backend can't launch `work`, or an argument is of the wrong type or value.
        GraphStateError
            The stream was closed.
        """
        _held = self._owner  # as in `_in_use`
        if self._closed or self._forks != ownership.forks:
            self._check()
        self._backend.launch(self._native, work, *args, **how)
        for capture in [*capture_table.thread.unfinished.values()]:
            capture.retained.append((work, args, how))

    def _retain(self, *objects: Any) -> None:
        for capture in [*capture_table.thread.unfinished.values()]:
            capture.retained.append(objects)

    def record(self, *, timing: bool = False, external: bool | Event = False) -> Event:
        """Mark the present end of the stream's work.

        Parameters
        ----------
        timing : bool
            Let the event note the time, for `Event.elapsed_time`. Needs the capability ``"timing"``.
        external : bool or Event
            True: a new event that crosses the border of a capture. An event that was made so: record that one
            again, here. Recorded in a capture, each replay records it anew. `wait` for it is a part of a
            capture, too: each replay then waits for what the event marks when the replay is requested. Needs
            the capability ``"external_events"``.

        Raises
        ------
        TypeError, ValueError
            An argument is of the wrong type, or the event is of another backend.
        GraphStateError
            The stream was closed, or it is being captured, `timing` is True and `external` False: what is
            captured does not run, so it has no time.
        UnsupportedError
            The backend does not have the capability.
        """
        _held = self._in_use()
        ownership.drain()
        backend, captured = self._backend, self._is_capturing()
        if external is not False:
            return self._record_external(boolean(timing, "record: timing"), external)
        if boolean(timing, "record: timing") and captured:
            raise GraphStateError(
                "record(timing=True): the stream is being captured, and what is captured does not run; "
                "record events around replay() instead."
            )
        if timing and Capability.TIMING not in backend.capabilities(self._device):
            raise unsupported(backend, Capability.TIMING)
        native = backend.record_event(self._native, timed=timing)
        event = Event._make(backend, native, self._device, timed=timing, captured=captured)
        capture = capture_of(self) if captured else None
        if capture is not None:
            capture.note_event(event)
        return event

    def _record_external(self, timing: bool, given: object) -> Event:
        backend = self._backend
        if Capability.EXTERNAL_EVENTS not in backend.capabilities(self._device):
            raise unsupported(backend, Capability.EXTERNAL_EVENTS)
        if isinstance(given, Event) and given._external:
            self._check_same(given._native.backend, "event")
            self._keep(given)
            backend.record_external(self._native, given._native.value)
            return given
        if given is not True:
            raise TypeError(
                f"record: external must be True, False or an event of record(external=True), not {given!r}."
            )
        native = backend.record_external(self._native, timed=timing)
        event = Event._make(backend, native, self._device, timed=timing, captured=False)
        event._external = True
        self._keep(event)
        return event

    def _keep(self, event: Event) -> None:
        """Have the capture of the stream, if there is one, keep an external event as long as its graph."""
        capture = capture_of(self) if self._is_capturing() else None
        if capture is not None:
            capture.retained.append(event._native)

    def wait(self, other: Event | Stream | Any) -> None:
        """Let later work on this stream wait for an event, or for all work so far on another stream.

        `other` may be anything that stands for a stream. If it is being captured, this stream takes part
        in that capture from now on, and has to be joined before it ends: the captured stream waits for
        this one.

        Raises
        ------
        TypeError, ValueError
            `other` is neither an event nor a stream, or is of another backend.
        GraphStateError
            One of the streams was closed.
        DriverError
            The wait would join a capture with work from outside it, or with another capture.
        """
        _held = self._in_use()
        if isinstance(other, Event):
            self._check_same(other._native.backend, "event")
            other = other._run() or other
        if isinstance(other, Event):
            if other._external:
                self._keep(other)
            try:
                self._backend.wait_event(self._native, other._native.value)
            except DriverError as error:
                if other._captured and error.reason == "other":
                    raise _capture_is_over(error) from error
                raise
            return
        stream = as_stream(other, self.backend, f"as the stream that waits; {_WAIT_ON_HOST}")
        self._check_same(stream._backend, describe(stream))
        _other_held = stream._in_use()
        event = self._backend.record_event(stream._native)
        try:
            self._backend.wait_event(self._native, event)
        finally:
            self._backend.destroy_event(event)

    def _check_same(self, source: Backend, what: str) -> None:
        if source is not self._backend:
            fact = f"is of backend {source.name!r}"
            if source.name == self.backend:
                fact = f"was made before a fork, or before backend {source.name!r} was registered anew"
            raise ValueError(f"the {describe(self)} can't wait: the {what} {fact}; {_WAIT_ON_HOST}.")

    def held(self) -> Stream:
        """Return another hold on the same stream, which `close` of this one does not end."""
        owner, hold = self._owner, self._hold  # read first, as in `_in_use`
        if self._closed or self._forks != ownership.forks:
            self._check()
        other = object.__new__(Stream)  # as `_make`: each capture needs several
        other._backend, other._native, other._device = self._backend, self._native, self._device
        other._owner, other._hold = owner, hold
        other._closed, other._forks = False, ownership.forks
        return other

    def close(self) -> None:
        """Release the stream as soon as nothing uses it any more. Work on it completes.

        Graphs that replay onto it go on using it; wait for them with ``graph.stream.synchronize()``.
        A stream that was made elsewhere is not touched. Closing twice does nothing.

        Raises
        ------
        GraphStateError
            The stream is being captured.
        """
        _held = self._owner  # another thread may close the stream as well
        if self._dead:
            return
        if self._backend.capture_status(self._native) is CaptureStatus.ACTIVE:
            raise GraphStateError(f"Stream.close(): {captured_by(self)}.")
        self._closed = True
        self._owner = self._hold = _held = None
        ownership.drain()

    def __enter__(self) -> Self:
        self._check()
        before = innermost()
        if before is not None:
            self._join(before)
        entry = stream_stack.new_entry(self, self)
        entry.guard = if_skipped(self, partial(stream_stack.leave, entry))
        try:
            stream_stack.enter(entry)
            return self
        except BaseException:  # an interrupt
            stream_stack.leave(entry)
            raise

    @sure_exit
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        stream_stack.leave(self)

    def _join(self, before: Stream) -> None:
        """Wait for the stream that was current before, unless a capture of this one would break."""
        if before is self or before._backend is not self._backend or before._device != self._device:
            return
        runtime = self._backend
        free = not self._is_capturing()
        if Capability.EVENTS in runtime.capabilities(self._device):
            mine, theirs = self._capture_info(), before._capture_info()
            if free or (mine is not None and theirs is not None and mine.id == theirs.id):
                self.wait(before)
        elif not before._is_capturing():
            before.synchronize()
        elif free:
            raise unsupported(runtime, Capability.EVENTS)  # its work would run uncaptured, silently

    def _follow(self, before: Stream) -> None:
        """Wait for another stream of the device. Neither is being captured."""
        if Capability.EVENTS in self._backend.capabilities(self._device):
            self.wait(before)
        else:
            before.synchronize()

    def _is_capturing(self) -> bool:
        return self._backend.capture_status(self._native) is not CaptureStatus.NONE

    def _capture_info(self) -> CaptureInfo | None:
        return self._backend.capture_info(self._native)

    def _relaxed(self) -> AbstractContextManager[None]:
        return self._backend.relaxed(self._native)

    def _in_use(self) -> object:
        owner = self._owner  # read first: `close` in another thread marks the stream, then gives this up
        self._check()
        return owner

    def _check(self) -> None:
        if self._closed or self._forks != ownership.forks:
            raise GraphStateError(f"the stream {self._dead}; make another one.")

    @property
    def _dead(self) -> str:
        """Why it can't be used any more; empty while it can."""
        if self._closed:
            return "was closed"
        return "" if self._forks == ownership.forks else "was made before this process was forked"


def innermost() -> Stream | None:
    """Return the innermost stream that was entered on this thread and can still be used."""
    entries = stream_stack.thread.entries
    if not entries:
        return None
    stream = entries[-1].stream
    return None if stream._closed or stream._forks != ownership.forks else stream


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
        `obj` itself if it is a `Stream`; otherwise a new one that keeps `obj`, whose owner keeps the stream.

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
        if obj._closed or obj._forks != ownership.forks:
            obj._check()
        if backend is not None and obj.backend != backend:
            raise ValueError(f"the {describe(obj)} is not of backend {backend!r}, {why}.")
        return obj
    found, native = find(obj, backend, why)
    return Stream._make(found, native, found.device_of(native), Borrowed(obj))


def _check_device(backend: Backend, device: int) -> None:
    count = backend.device_count
    if not 0 <= device < count:
        found = f"{count} device{'s' if count != 1 else ''}"
        raise ValueError(f"device {device}: backend {backend.name!r} has {found}, counted from 0.")


def _checked_nbytes(nbytes: object) -> int | None:
    if nbytes is None:
        return None
    number = integer(nbytes, "nbytes")
    if number < 0:
        raise ValueError(f"nbytes must not be negative, but it is {number}.")
    return number


# ---- messages about streams ----------------------------------------------------------------------


def capture_of(stream: Stream) -> Capture | None:
    """Return the library's capture that a stream takes part in; None if there is none."""
    backend, native = stream._backend, stream._native
    for capture in list(capture_table.live.values()):
        if capture.backend is backend:
            with suppress(AcceleratorGraphError):
                if capture.native is native:
                    return capture
                ours, theirs = backend.capture_info(capture.native), backend.capture_info(native)
                if ours is not None and theirs is not None and ours.id == theirs.id:
                    return capture
    return None


def captured_by(stream: Stream) -> str:
    """Return who is capturing a stream, and the way out: a clause for a message."""
    backend, capture = stream._backend, capture_of(stream)
    if capture is not None:
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


# ---- events --------------------------------------------------------------------------------------


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

    __slots__ = ("__weakref__", "_captured", "_device", "_external", "_forks", "_native", "_run", "_timed")

    _native: OwnedEvent
    _external: bool
    _device: int
    _timed: bool
    _captured: bool
    _forks: int
    _run: Callable[[], Stream | None]
    """Returns the stream of the latest run of the segment that it was recorded in, once that is over."""

    def __init__(self) -> None:
        raise TypeError("an Event is made by Stream.record(); call that on the stream to be marked.")

    @classmethod
    def _make(cls, backend: Backend, native: Any, device: int, *, timed: bool, captured: bool) -> Event:
        self = cls.__new__(cls)
        self._native = OwnedEvent(backend, backend, native)
        self._device = device
        self._timed = timed
        self._captured = captured
        self._external = False
        self._forks = ownership.forks
        self._run = _no_run
        return self

    def __repr__(self) -> str:
        return f"<event of {self._native.backend.name!r}, device {self._device}>"

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
        return native.backend.query(native.value)

    def synchronize(self) -> None:
        """Wait until all work before the event is done; other threads go on. Raises like `query`."""
        native = self._checked("synchronize")
        native.backend.synchronize(native.value)

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
        if Capability.TIMING not in self._native.backend.capabilities(self._device):
            raise unsupported(self._native.backend, Capability.TIMING)
        return self._native


def _no_run() -> None:
    """Return what takes the place of an event that was not recorded in the segment of a graph: nothing."""


def _capture_is_over(error: DriverError) -> DriverError:
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
