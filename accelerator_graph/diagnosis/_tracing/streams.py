"""The streams of a capture: which take part, where they joined, and work that went to others."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..._core import stream_stack
from ..._core.streams import Event, Stream
from ..._interpreter import outside
from ...backends.base import Capability, CaptureStatus
from ...errors import AcceleratorGraphError, EscapedWorkWarning, UnsupportedError
from ...interop.base import Inspectable, Undo
from .places import Place, stack_of, users

if TYPE_CHECKING:
    from ...backends.base import AnyBackend as Backend

_SHOWN = 5
_DEFAULT = 2
"""Handles up to this one mean default streams."""

_IN_PYTHON = frozenset(("wait_stream", "wait_event"))
"""Methods of frameworks' streams, written in Python."""
IN_C = frozenset(
    ("cuStreamWaitEvent", "cudaStreamWaitEvent", "hipStreamWaitEvent", "streamWaitEvent", "wait_event")
)
"""Functions whose first argument is the stream that waits."""
_OURS = Stream.wait.__code__
NAMES = _IN_PYTHON | {_OURS.co_name}
"""Names of the functions in Python among which are those that let a stream wait."""
WAITS = frozenset(
    each.__code__ for each in (Stream.synchronize, Stream.query, Event.synchronize, Event.query)
)
"""The library's own methods with which the host waits."""


class Streams:
    """The streams of a backend, by whatever stands for them, and those that join a capture."""

    def __init__(self, backend: Backend, captured: Any) -> None:
        self._backend = backend
        self._own = self._key(captured)
        self._forks: dict[int, list[Place]] = {}
        """Where each stream has joined the capture."""
        self._joined: set[int] = set()
        """The streams that the captured one has waited for since."""

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

    def is_captured(self, obj: Any) -> bool | None:
        """Return whether a stream takes part in a capture, broken or not; None if that is not known.

        That of a default stream is not asked for: a driver may refuse to answer.
        """
        native = None if any("Event" in each.__name__ for each in type(obj).__mro__) else self._native(obj)
        if native is None:
            return None
        with suppress(AcceleratorGraphError):
            if not 0 <= self._key(native) <= _DEFAULT:
                return self._backend.capture_status(native) is not CaptureStatus.NONE
        return None

    def forked(self) -> bool:
        """Return True if the captured stream has not waited for all that have joined."""
        return not self._joined.issuperset(self._forks)

    def unjoined(self) -> list[list[Place]]:
        """Return the stacks at the forks that may not have been joined."""
        unjoined = [stack for key, stack in self._forks.items() if key not in self._joined]
        return unjoined or list(self._forks.values())

    def after_python(self, frame: FrameType) -> None:
        """Note the wait, if the function that returns is one."""
        code = frame.f_code
        if code is not _OURS and code.co_name not in _IN_PYTHON:
            return
        values = [frame.f_locals.get(name) for name in code.co_varnames[:2]]
        if len(values) == 2:
            waiting, other = map(self._native, values)
            self._waits(waiting, frame)
            if waiting is not None and other is not None and self._key(waiting) == self._own:
                self._joined.add(self._key(other))

    def after_c(self, function: Any, first: Any, frame: FrameType) -> None:
        """Note the wait, if the function in C that a frame has called is one."""
        if getattr(function, "__name__", None) in IN_C:
            self._waits(self._native(first), frame)

    def _waits(self, native: Any, frame: FrameType) -> None:
        with suppress(Exception):
            key = self._own if native is None else self._key(native)
            if key in (self._own, *self._forks):
                self._joined.discard(key)
                return
            if self._backend.capture_status(native) is CaptureStatus.ACTIVE:
                self._forks[key] = stack_of(frame)


class Escapes:
    """Compares the streams that frameworks use with those of a capture."""

    def __init__(self, backend: Backend, captured: Any) -> None:
        self.asks: list[Inspectable] = []
        """The frameworks to ask after each call, since they do not report what they do."""
        self._backend = backend
        self._captured = captured
        self._handle = 0
        self._found: dict[Place, tuple[str, int, int]] = {}
        self._undos: list[Undo] = []

    def begin(self, device: int) -> None:
        """Compare what this thread does, from now on. The captured stream is of that device."""
        if Capability.HANDLES not in self._backend.capabilities(device):
            return
        self._handle = self._backend.handle_int(self._captured)
        for framework in stream_stack.taking_part(self._backend):
            if not isinstance(framework, Inspectable):
                continue
            undo = framework.operations(self._seen)
            if undo is not None:
                self._undos.append(undo)
            elif type(framework).enqueues is not Inspectable.enqueues:
                self.asks.append(framework)

    def after_call(self, function: Any, first: Any) -> None:
        """Ask where the work of a call went, if it was one of a framework's operations."""
        for framework in self.asks:
            try:  # asked after each call of any function: `suppress` would double the cost
                current = framework.current_stream() if framework.enqueues(function, first) else None
            except Exception:
                continue
            if current is not None:
                self._seen(str(getattr(function, "__name__", function)), *current)

    def _seen(self, name: str, handle: int, device: int) -> bool:
        """Note an operation whose stream is not captured; return True for the captured stream."""
        if handle == self._handle:
            return True
        place = users(stack_of(sys._getframe(1)))
        if place not in self._found:
            with suppress(Exception):
                native = self._backend.as_stream(handle)
                if self._backend.capture_status(native) is not CaptureStatus.ACTIVE:
                    self._found[place] = name, handle, device
        return False

    def stop(self) -> None:
        """Compare no more."""
        self.asks = []
        stream_stack.undo(self._undos)

    def warn(self, subject: str) -> None:
        """Warn of what was found."""
        for place, (name, handle, device) in list(self._found.items())[:_SHOWN]:
            where = f"{place.file}:{place.line} in {place.function}"
            warnings.warn(
                f"{subject} does not have {name} at {where}: its work went to stream {handle:#x} of device "
                f"{device}, which is not captured, so replays do not repeat it; enqueue it on the "
                "captured stream, or let that stream wait for the captured one before.",
                EscapedWorkWarning,
                stacklevel=outside()[0],
            )
