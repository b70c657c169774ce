"""Where the latest run of each executable is, since a run on another stream may have to wait for it.

The book is kept by stream: all runs on a stream are over once the stream was seen to be idle.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_void_p
from threading import RLock
from weakref import WeakSet

from .driver import Handle

_lock = RLock()
_running: dict[int, WeakSet[Executable]] = {}
"""The executables whose latest run may be going on, by its stream. Guarded by `_lock`, as what they note."""


_NONE: WeakSet[Executable] = WeakSet()


class Executable(Handle):
    """An instantiated graph, and where its latest run ends: on a stream, else at an event, if it has run."""

    __slots__ = ("__weakref__", "event", "latest", "settling", "stream")

    def __init__(self, handle: int, device: int) -> None:
        super().__init__(handle, device)
        self.stream: int | None = None
        """The stream of the latest run; None if no stream has to be waited for."""
        self.event: int = 0
        """An event at the end of the latest run, which was on the per-thread stream; 0 if there is none."""
        self.settling: object = None
        """Not None while `settle` asks about the stream. The next run has to be noted then."""
        self.latest: c_void_p = c_void_p()
        """The same as `stream`, for launches in C; null if the next run has to be noted."""

    def move(self, stream: int | None) -> None:
        """Note on which stream the latest run is; None if no stream has to be waited for."""
        with _lock:
            self.latest.value = None
            runs = _NONE if self.stream is None else _running.get(self.stream, _NONE)
            runs.discard(self)
            if self.stream is not None and not runs:  # a signal handler may have done the same meanwhile
                _running.pop(self.stream, None)
            self.stream = stream
            self.settling = None
            if stream is not None:
                _running.setdefault(stream, WeakSet()).add(self)
            self.latest.value = stream


def has_runs(stream: int) -> bool:
    """Return True if the latest run of an executable is on the stream and may be going on."""
    return bool(_running.get(stream))


def settle(stream: int, is_done: Callable[[], bool]) -> None:
    """Note that the runs on a stream are over if `is_done` says so. Runs that begin meanwhile are not."""
    mark = object()
    with _lock:
        ran = list(_running.get(stream, ()))
        for executable in ran:
            executable.latest.value = None
            executable.settling = mark
    if is_done():
        with _lock:
            for executable in ran:
                if executable.settling is mark:
                    executable.move(None)
