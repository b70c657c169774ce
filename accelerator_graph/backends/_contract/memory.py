"""What a driver tells of a device's memory."""

from __future__ import annotations

from typing import NamedTuple


class DeviceMemory(NamedTuple):
    """The memory of a device at one moment, in bytes. All programs that use the device share it."""

    free: int
    total: int
    graphs_used: int | None = None
    graphs_reserved: int | None = None
    """What nodes that allocate have taken from the driver, and what the driver keeps for such nodes. Both are
    of all graphs of this process on the device; None if the driver does not tell."""
