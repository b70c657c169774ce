"""The parts of a stream, and whether it can still be used."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Self

from ..backends.base import Backend, CaptureInfo, CaptureStatus
from ..errors import GraphStateError
from . import ownership
from .stream_messages import describe
from .stream_owners import OwnedStream, Owner
from .stream_work import StreamWork


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
