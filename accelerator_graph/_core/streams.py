"""The class `Stream`."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Any, Self

from .. import _core
from .._interpreter.integers import boolean, integer
from .._interpreter.sure_exit import if_skipped, sure_exit
from ..backends import registry
from ..backends.base import Backend, Capability, CaptureStatus, unsupported
from ..errors import DriverError, GraphStateError
from . import ownership, stream_stack
from .framework_streams import placed
from .stream_base import Borrowed, OwnedStream, StreamBase, captured_by, describe

_NAMED = "which was named; name a stream of that backend, or leave the backend out"
_WAIT_ON_HOST = "synchronize the other stream instead"


class Stream(StreamBase):
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

    __slots__ = ()

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

    def synchronize(self) -> None:
        """Wait until all work on the stream is done; raise `DriverError` if some of it failed."""
        held = self.held()  # another thread may close this one meanwhile
        ownership.drain()
        self._backend.synchronize(held._native)

    def query(self) -> bool:
        """Return True if all work on the stream is done; raise `DriverError` if some of it failed."""
        _held = self._in_use()
        return self._backend.query(self._native)

    def record(self, *, timing: bool = False) -> _core.Event:
        """Mark the present end of the stream's work.

        Parameters
        ----------
        timing : bool
            Let the event note the time, for `Event.elapsed_time`. Needs the capability ``"timing"``.

        Raises
        ------
        GraphStateError
            The stream was closed, or it is being captured and `timing` is True: what is captured does not
            run, so it has no time.
        """
        _held = self._in_use()
        ownership.drain()
        backend, captured = self._backend, self._is_capturing()
        if boolean(timing, "record: timing") and captured:
            raise GraphStateError(
                "record(timing=True): the stream is being captured, and what is captured does not run; "
                "record events around replay() instead."
            )
        native = (backend.record_timed_event if timing else backend.record_event)(self._native)
        return _core.Event(backend, native, self._device, timed=timing, captured=captured)

    def wait(self, other: _core.Event | Stream | Any) -> None:
        """Let later work on this stream wait for an event, or for all work so far on another stream.

        `other` may be anything that stands for a stream. If it is being captured, this stream takes part
        in that capture from now on, and has to be joined before it ends: the captured stream waits for
        this one.
        """
        _held = self._in_use()
        if not isinstance(other, Stream) and isinstance(other, _core.Event):
            self._check_same(other._native.backend, "event")
            try:
                self._backend.wait_event(self._native, other._native.value)
            except DriverError as error:
                if other._captured and error.reason == "other":
                    from .events import capture_is_over

                    raise capture_is_over(error) from error
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
        entry = stream_stack.Entry(self, self)
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


def innermost() -> Stream | None:
    """Return the innermost stream that was entered on this thread and can still be used."""
    entries = stream_stack.thread.entries
    if not entries:
        return None
    stream = entries[-1].stream
    assert isinstance(stream, Stream)
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
    from .stream_lookup import find

    found, native = find(obj, backend, why)
    return Stream._make(found, native, found.device_of(native), Borrowed(obj))


def _check_device(backend: Backend, device: int) -> None:
    count = backend.device_count()
    if not 0 <= device < count:
        raise ValueError(f"device {device}: backend {backend.name!r} has {count}, counted from 0.")
