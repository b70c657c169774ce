"""Where the latest run of each executable is, since a run on another stream may have to wait for it."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_void_p
from threading import RLock
from weakref import WeakSet

from .driver import Handle

_moving = RLock()


class Executable(Handle):
    """An instantiated graph, and where its latest run ends: on a stream, else at an event, if it has run."""

    __slots__ = ("__weakref__", "event", "latest", "settling", "stream")

    def __init__(self, handle: int, device: int) -> None:
        super().__init__(handle, device)
        self.stream: int | None = None
        self.event = 0
        self.settling: object = None
        """Not None: the next launch has to be noted, although it may be on the same stream."""
        self.latest = c_void_p()
        """The same stream, for launches in C; none where the next one has to be noted."""

    def move(self, stream: int | None) -> None:
        """Note on which stream the latest run is; None: there is none that would have to be waited for."""
        with _moving:
            self.latest.value = None
            if self.stream is not None:
                _leave(self, self.stream)
            self.stream = stream
            self.settling = None
            if stream is not None:
                _on_stream.setdefault(stream, WeakSet()).add(self)
            self.latest.value = stream


_on_stream: dict[int, WeakSet[Executable]] = {}
"""The executables by the stream of their latest run. `_moving` guards it, and what they note."""


def _leave(executable: Executable, stream: int) -> None:
    others = _on_stream.get(stream)
    if others is not None:
        others.discard(executable)
        if not others:
            del _on_stream[stream]


def has_runs(stream: int) -> bool:
    """Return True if the latest run of an executable is on the stream, and may not be over."""
    return bool(_on_stream.get(stream))


def settle(stream: int, is_done: Callable[[], bool]) -> None:
    """Note that the runs on a stream are over, if `is_done` says so; not those that come meanwhile."""
    mark = object()
    with _moving:
        ran = list(_on_stream.get(stream, ()))
        for executable in ran:
            executable.latest.value = None
            executable.settling = mark
    if is_done():
        with _moving:
            for executable in ran:
                if executable.settling is mark:
                    executable.move(None)
