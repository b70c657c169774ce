"""What the driver tells of the memory that graphs take."""

from __future__ import annotations

from typing import Any

from ..base import DeviceMemory
from .driver import Driver


def device_memory(driver: Driver, context: Any) -> DeviceMemory:
    """Return what the driver tells of the memory of the device. These calls disturb no capture."""
    kinds = driver.api.CUgraphMem_attribute
    wanted = (kinds.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, kinds.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
    with driver.current(context):
        device = driver.call("cuCtxGetDevice")
        used, reserved = (int(driver.call("cuDeviceGetGraphMemAttribute", device, each)) for each in wanted)
        free, total = driver.call("cuMemGetInfo")
    return DeviceMemory(int(free), int(total), used, reserved)
