"""The parts of a stream, its owners, the work that is enqueued through it, and its name in messages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, Self

from .._interpreter.integers import integer
from ..backends.base import Backend, Capability, CaptureInfo, CaptureStatus
from ..errors import AcceleratorGraphError, GraphStateError
from ..interop.base import Framework
from . import capture_table, ownership
from .ownership import Owned

if TYPE_CHECKING:
    from .stream_stack import Entered


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


class StreamWork:
    """The methods of a stream that enqueue work."""

    __slots__ = ()

    _backend: Backend
    _native: Any

    def _in_use(self) -> object:
        """Return what keeps the stream alive during a call, whatever other threads do.

        Raises `GraphStateError` if the stream can't be used any more.
        """
        raise NotImplementedError

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
        graph keeps these arguments alive; otherwise the caller has to, until the work is done.
        """
        _held = self._in_use()
        value = integer(value, "fill: value")
        if not 0 <= value <= 255:
            raise ValueError(f"fill: value must be 0 to 255, the value of a byte, not {value}.")
        nbytes = _checked_nbytes(nbytes)
        self._backend.fill(self._native, dst, value, nbytes)
        self._retain(dst)

    def copy(self, dst: Any, src: Any, nbytes: int | None = None) -> None:
        """Copy bytes from `src` to `dst`, each as in `fill`; by default all of `src`."""
        _held = self._in_use()
        nbytes = _checked_nbytes(nbytes)
        self._backend.copy(self._native, dst, src, nbytes)
        self._retain(dst, src)

    def launch(self, work: Any, /, *args: Any, **how: Any) -> None:
        """Enqueue `work(*args)`: a callable on cpu, a kernel elsewhere; `how` is the backend's."""
        _held = self._in_use()
        self._backend.launch(self._native, work, *args, **how)
        self._retain(work, args, how)

    def _retain(self, *objects: Any) -> None:
        for graph in capture_table.thread.graphs:
            graph.retain(objects)


def _checked_nbytes(nbytes: object) -> int | None:
    if nbytes is None:
        return None
    number = integer(nbytes, "nbytes")
    if number < 0:
        raise ValueError(f"nbytes must not be negative, but it is {number}.")
    return number


class StreamBase(StreamWork):
    """A hold on a stream of a backend: the part of `Stream` that orders no work."""

    __slots__ = ("__weakref__", "_backend", "_closed", "_device", "_forks", "_hold", "_native", "_owner")

    _backend: Backend
    _native: Any
    _device: int
    _owner: Owner | None
    _hold: object
    """That of the owner: in garbage with cycles the owner is due at once, and must not act before the last
    finalizer has acted that uses the stream."""
    _closed: bool
    _forks: int

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


def captured_by(stream: Entered) -> str:
    """Return who is capturing a stream, and the way out: a clause for a message."""
    backend, native = stream._backend, stream._native
    for capture in list(capture_table.live.values()):
        if capture.backend is backend:
            with suppress(AcceleratorGraphError):
                if capture.native is native:
                    return capture.who()
                ours, theirs = backend.capture_info(capture.native), backend.capture_info(native)
                if ours is not None and theirs is not None and ours.id == theirs.id:
                    return capture.who()
    if backend.capture_status(stream._native) is CaptureStatus.INVALIDATED:
        return (
            "an earlier capture of the stream failed and was not ended; end that one first, or use another "
            "stream"
        )
    return "another library is capturing the stream; end that capture first, or use another stream"


def describe(stream: Entered) -> str:
    """Name a stream in a message: by its handle, or by the place of its object where there is none."""
    backend, which = stream._backend, f"at {id(stream._native):#x}"
    if not stream._dead and Capability.HANDLES in backend.capabilities(stream._device):
        which = f"{backend.handle_int(stream._native):#x}"
    return f"stream {which} of {backend.name!r}, device {stream._device}"
