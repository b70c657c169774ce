"""Streams in messages: which one it is, and who is capturing it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ..backends.base import Capability, CaptureStatus
from ..errors import AcceleratorGraphError
from . import capture_table

if TYPE_CHECKING:
    from .stream_stack import Entered


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
