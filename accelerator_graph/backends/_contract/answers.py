"""What a backend answers about itself and about captures."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class CaptureStatus(StrEnum):
    """Whether a stream is capturing."""

    NONE = "none"
    ACTIVE = "active"
    INVALIDATED = "invalidated"  # never, on a backend where no call breaks a capture


class Availability(NamedTuple):
    """What `Backend.probe` found out without initialising anything."""

    usable: bool
    reason: str = ""
    """Why it is not usable and how to fix that: a clause that follows "backend 'x' is not available: "."""
    versions: Mapping[str, str] = MappingProxyType({})
    """Versions by component, for example ``{"driver": "13.0"}``."""
    devices: int | None = None
    """The number of devices; None if that can't be known without initialising."""
    warning: str = ""
    """A known defect of the installed versions and how to fix it, in sentences. The backend is usable."""


class CaptureInfo(NamedTuple):
    """What a backend knows about a capture in progress."""

    id: int
    """A number shared by all streams of one capture, and by no other capture in progress."""
