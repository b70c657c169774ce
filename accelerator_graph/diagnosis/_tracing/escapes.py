"""Work that frameworks enqueued on streams that the capture does not take in."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from typing import Any

from ..._core import stream_stack
from ..._core.call_site import outside
from ...backends.base import Backend, Capability, CaptureStatus
from ...errors import EscapedWorkWarning
from ...interop.base import Inspectable, Undo
from .places import Place, stack_of, users

_SHOWN = 5


class Escapes:
    """Compares the streams that frameworks use with those of a capture.

    Parameters
    ----------
    backend : Backend
        The backend of the capture.
    captured : object
        The captured stream, as the backend knows it.
    device : int
        Its device.
    """

    def __init__(self, backend: Backend, captured: Any, device: int) -> None:
        self.asks: list[Inspectable] = []
        """Those that are asked after each call, since they do not report what they do."""
        self._backend = backend
        self._captured = captured
        self._device = device
        self._handle = 0
        self._found: dict[Place, tuple[str, int, int]] = {}
        self._undos: list[Undo] = []

    def begin(self) -> None:
        """Compare what this thread does, from now on."""
        if Capability.HANDLES not in self._backend.capabilities(self._device):
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
        while self._undos:
            self._undos.pop()()

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
