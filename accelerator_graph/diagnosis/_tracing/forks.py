"""Where streams were taken into a capture, for a capture that one of them was not joined to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from ..._core.streams import Stream
from ...backends.base import Backend, CaptureStatus
from ...errors import UnsupportedError
from .places import Place, stack_of

_IN_PYTHON = frozenset(("wait_stream", "wait_event"))
"""Methods of frameworks' streams, written in Python."""
IN_C = frozenset(
    ("cuStreamWaitEvent", "cudaStreamWaitEvent", "hipStreamWaitEvent", "streamWaitEvent", "wait_event")
)
"""Functions whose first argument is the stream that waits."""
_OURS = Stream.wait.__code__
NAMES = _IN_PYTHON | {_OURS.co_name}
"""Names of the functions in Python among which are those that let a stream wait."""


class Forks:
    """The streams that joined a capture while it was watched, and have not been waited for since.

    Parameters
    ----------
    backend : Backend
        The backend of the capture.
    captured : object
        The captured stream, as the backend knows it.
    """

    def __init__(self, backend: Backend, captured: Any) -> None:
        self._backend = backend
        self._captured = self._key(captured)
        self._status: Callable[[Any], CaptureStatus] = backend.capture_status
        self._all: dict[int, list[Place]] = {}
        self._joined: set[int] = set()

    def unjoined(self) -> list[list[Place]]:
        """Return the stacks at the forks that may not have been joined."""
        unjoined = [stack for key, stack in self._all.items() if key not in self._joined]
        return unjoined or list(self._all.values())

    def after_python(self, frame: FrameType) -> None:
        """Note the wait, if the function that returns is one."""
        code = frame.f_code
        if code is not _OURS and code.co_name not in _IN_PYTHON:
            return
        values = [frame.f_locals.get(name) for name in code.co_varnames[:2]]
        if len(values) == 2:
            waiting, other = map(self._native, values)
            self._waits(waiting, frame)
            if waiting is not None and other is not None and self._key(waiting) == self._captured:
                self._joined.add(self._key(other))

    def after_c(self, function: Any, first: Any, frame_at: Callable[[int], FrameType]) -> None:
        """Note the wait, if the function in C is one. `frame_at` returns the frame so many levels above."""
        if getattr(function, "__name__", None) in IN_C:
            self._waits(self._native(first), frame_at(2))

    def _waits(self, native: Any, frame: FrameType) -> None:
        if native is None:
            return
        with suppress(Exception):
            key = self._key(native)
            if key not in (self._captured, *self._all) and self._status(native) is CaptureStatus.ACTIVE:
                self._all[key] = stack_of(frame)

    def _key(self, native: Any) -> int:
        """Return a number that is the same for all objects that mean one stream."""
        try:
            return self._backend.handle_int(native)
        except UnsupportedError:
            return id(native)

    def _native(self, obj: Any) -> Any:
        """Return a stream as the backend knows it; None if that is not possible."""
        if isinstance(obj, Stream):
            return obj._native
        for attribute in ("cuda_stream", "ptr"):  # torch's, CuPy's
            obj = getattr(obj, attribute, obj)
        with suppress(Exception):
            return self._backend.as_stream(obj)
        return None
