"""What the runtime tells of the memory that graphs take, and what a copy of one takes."""

from __future__ import annotations

from collections.abc import Callable

from ..._interpreter.heap import heap_bytes
from ..base import DeviceMemory
from .driver import Driver, Graph


def device_memory(driver: Driver, device: int) -> DeviceMemory:
    """Return what the runtime tells of the memory of the device. These calls disturb no capture."""
    kinds = driver.api.hipGraphMemAttributeType
    wanted = (kinds.hipGraphMemAttrUsedMemCurrent, kinds.hipGraphMemAttrReservedMemCurrent)
    with driver.current(device):
        used, reserved = (driver.call("hipDeviceGetGraphMemAttribute", device, int(each)) for each in wanted)
        free, total = driver.call("hipMemGetInfo")
    return DeviceMemory(free, total, used, reserved)


def host_bytes(driver: Driver, graph: Graph, destroy: Callable[[Graph], object]) -> int | None:
    """Return by how much the heap of the C library grows with a copy; None where it does not tell.

    What the runtime keeps for later graphs is counted the first time, and what other threads take always.
    """
    with driver.relaxed(graph.device):
        before = heap_bytes()
        if before is None:
            return None
        copy = Graph(driver.call("hipGraphClone", graph.handle), graph.device)
        try:
            after = heap_bytes()
        finally:
            destroy(copy)
    return None if after is None or after < before else after - before
