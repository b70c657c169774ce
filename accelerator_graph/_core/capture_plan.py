"""How a capture is to be made: its plan, and the modes, which say what a driver refuses meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from ..backends.base import Backend
from ..backends.base import CaptureMode as CaptureMode
from ..errors import UnsupportedError
from ..interop.base import Framework
from .pools import AnyPool
from .streams import Stream

MODES: tuple[CaptureMode, ...] = get_args(CaptureMode)
"""The capture modes; only ``"default"`` is portable."""


def check_mode(mode: object) -> CaptureMode:
    """Return a capture mode. Raises TypeError or ValueError if it is none."""
    if not isinstance(mode, str):
        raise TypeError(f"capture_error_mode must be a string, one of {', '.join(MODES)}, not {mode!r}.")
    if mode not in MODES:
        raise ValueError(f"capture_error_mode must be one of {', '.join(MODES)}, not {mode!r}.")
    return mode


def native_mode(backend: Backend, mode: CaptureMode) -> CaptureMode:
    """Return the backend's name for a mode."""
    modes = backend.capture_modes
    if mode == "default":
        return modes[0]
    if mode not in modes:
        raise UnsupportedError(
            f"backend {backend.name!r} has no capture mode {mode!r}; use 'default'.",
            capability="capture_modes",
        )
    return mode


class CapturePlan:
    """How a capture is to be made. None leaves the choice to the graph."""

    stream: Stream | None = None
    """The stream to capture."""
    home: Stream | None = None
    """Where replays will go, if that is another stream."""
    default: Stream | None = None
    """A hold on `home` that nobody closes, if that is known to be a framework's default stream, which never
    captures."""
    frameworks: Sequence[Framework] | None = None
    """Those that take part. None if they were not looked for."""
    pool: AnyPool | None = None
    mode: CaptureMode | None = None
    """As in `Graph.capture_begin`."""
    prepare: bool = False
    """Wait for `home` first, unless that is being captured."""
    idle: bool = False
    """The device has been waited for already."""
    finds_inputs: bool | None = None
    """Watch the arrays that captured work uses."""
