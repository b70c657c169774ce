"""Where streams were taken into a capture, for a capture that one of them was not joined to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from ..._core.streams import Stream
from ...backends.base import Backend, CaptureStatus
from .places import Place, stack_of

_IN_PYTHON = frozenset(("wait_stream", "wait_event"))
"""Methods of frameworks' streams, written in Python."""
_IN_C = frozenset(
    ("cuStreamWaitEvent", "cudaStreamWaitEvent", "hipStreamWaitEvent", "streamWaitEvent", "wait_event")
)
"""Functions whose first argument is the stream that waits."""
_OURS = Stream.wait.__code__


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
        self._captured = captured
        self._status: Callable[[Any], CaptureStatus] = backend.capture_status
        self._all: list[tuple[Any, list[Place]]] = []
        self._joined: list[Any] = []

    def unjoined(self) -> list[list[Place]]:
        """Return the stacks at the forks that may not have been joined."""
        open_ones = [stack for native, stack in self._all if native not in self._joined]
        return open_ones or [stack for _, stack in self._all]

    def after_python(self, frame: FrameType) -> None:
        """Note the wait, if the function that returns is one."""
        code = frame.f_code
        if code is not _OURS and code.co_name not in _IN_PYTHON:
            return
        values = [frame.f_locals.get(name) for name in code.co_varnames[:2]]
        if len(values) == 2:
            self._waits(values[0], frame)
            if self._native(values[0]) == self._captured:
                other = self._native(values[1])
                if other is not None:
                    self._joined.append(other)

    def after_c(self, function: Any, first: Any, frame: FrameType) -> None:
        """Note the wait, if the function in C is one."""
        if getattr(function, "__name__", None) in _IN_C:
            self._waits(first, frame)

    def _waits(self, waiting: Any, frame: FrameType) -> None:
        native = self._native(waiting)
        if native is None or native == self._captured or any(native == known for known, _ in self._all):
            return
        with suppress(Exception):
            if self._status(native) is CaptureStatus.ACTIVE:
                self._all.append((native, stack_of(frame)))

    def _native(self, obj: Any) -> Any:
        """Return a stream as the backend knows it; None if that is not possible."""
        if isinstance(obj, Stream):
            return obj._native
        for attribute in ("cuda_stream", "ptr"):  # torch's, CuPy's
            obj = getattr(obj, attribute, obj)
        with suppress(Exception):
            return self._backend.as_stream(obj)
        return None
