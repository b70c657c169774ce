"""Capture modes: what a driver refuses while a capture is under way."""

from __future__ import annotations

from typing import get_args

from ..backends.base import Backend
from ..backends.base import CaptureMode as CaptureMode
from ..errors import UnsupportedError

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
