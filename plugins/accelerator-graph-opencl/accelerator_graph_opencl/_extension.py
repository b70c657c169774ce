"""The extension cl_khr_command_buffer of one device: its version, its functions, its conditions.

Two changes of the extension matter here. Since 0.9.5 the functions that record a copy or a fill take a list
of properties as their third argument. Since 0.9.8 a command buffer has no pending state: before, one that was
not made for simultaneous use can't be enqueued again until it has completed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_int32, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple

import pyopencl as cl

from ._driver import ARGUMENTS, Handle, Handles, device_number, function_address

NAME = "cl_khr_command_buffer"
SWITCH = "ACCELERATOR_GRAPH_OPENCL_COMMAND_BUFFERS"
"""The environment variable that turns command buffers off if it is ``"0"``."""

WITH_PROPERTIES = (0, 9, 5)
ASKED_BY_QUEUE = (0, 9, 6)
"""Since this version the properties that a queue may have are asked instead of a capability."""
ANY_QUEUE = (0, 9, 7)
"""Since this version a command buffer may be enqueued on a queue with other properties than the one it was
recorded with."""
WITHOUT_PENDING_STATE = (0, 9, 8)

_EXTENSIONS_WITH_VERSION = 0x1060
_CAPABILITIES = 0x12A9
_SUPPORTED_QUEUE_PROPERTIES = 0x129A
_REQUIRED_QUEUE_PROPERTIES = 0x12AA
_SIMULTANEOUS_USE = 1 << 2
_CAN_BE_OUT_OF_ORDER = 1 << 3
_OUT_OF_ORDER = 1

_Properties = POINTER(c_uint64)
_Points = POINTER(c_uint32)
RECORDING = {
    "kernel": "clCommandNDRangeKernelKHR",
    "memset": "clCommandFillBufferKHR",
    "memcpy": "clCommandCopyBufferKHR",
}
"""The functions that record, by the kinds of commands."""


class Extension(NamedTuple):
    """What a device can do with command buffers."""

    version: tuple[int, int, int]
    functions: dict[str, Callable[..., Any]]
    """The functions, by the kinds of commands or by the word in their names."""
    flags: int
    """The flags with which a command buffer can be enqueued again before it has completed."""
    out_of_order: bool
    """Whether a command buffer can be for a queue out of order. Only there its branches run side by side."""
    supported: int
    """The properties that a queue may have. Not asked before `ANY_QUEUE`."""
    required: int
    """The properties that a queue must have."""

    def accepts(self, properties: int) -> bool:
        """Return True if our command buffers can be enqueued on a queue with these properties."""
        if self.version < ANY_QUEUE:
            return properties == self.required == 0
        return not properties & ~self.supported and not self.required & ~properties


def extension_of(device: cl.Device) -> Extension | None:
    """Return the command buffers of a device; None if they can't be used.

    It has none, they are in no version that is known here, or they can't be enqueued again while they run.
    """
    version = _version(device)
    if version is None or not (0, 9, 0) <= version < (2, 0, 0) or os.environ.get(SWITCH) == "0":
        return None
    capabilities = device_number(device, _CAPABILITIES)
    supported = device_number(device, _SUPPORTED_QUEUE_PROPERTIES)
    pending = version < WITHOUT_PENDING_STATE
    functions = _functions(device.platform, version)
    if functions is None or (pending and not capabilities & _SIMULTANEOUS_USE):
        return None
    out_of_order = (
        supported & _OUT_OF_ORDER if version >= ASKED_BY_QUEUE else capabilities & _CAN_BE_OUT_OF_ORDER
    )
    required = device_number(device, _REQUIRED_QUEUE_PROPERTIES)
    return Extension(version, functions, int(pending), bool(out_of_order), supported, required)


def lists_properties(kind: str, version: tuple[int, int, int]) -> bool:
    """Return True if the third argument of the function that records a command is a list of properties."""
    return kind == "kernel" or version >= WITH_PROPERTIES


def _version(device: cl.Device) -> tuple[int, int, int] | None:
    try:
        found = device.get_info(_EXTENSIONS_WITH_VERSION)
    except cl.Error:  # a device of OpenCL 2 or older that does not say it
        return None
    for extension in found:
        if extension.name == NAME:
            number = extension.version
            return number >> 22, number >> 12 & 0x3FF, number & 0xFFF
    return None


def _functions(platform: cl.Platform, version: tuple[int, int, int]) -> dict[str, Callable[..., Any]] | None:
    types: dict[str, tuple[str, tuple[Any, ...]]] = {
        "create": ("clCreateCommandBufferKHR", (c_void_p, c_uint32, Handles, _Properties, POINTER(c_int32))),
        "release": ("clReleaseCommandBufferKHR", (c_int32, Handle)),
        "finalize": ("clFinalizeCommandBufferKHR", (c_int32, Handle)),
        "enqueue": (
            "clEnqueueCommandBufferKHR",
            (c_int32, c_uint32, Handles, Handle, c_uint32, Handles, Handles),
        ),
    }
    for kind, name in RECORDING.items():
        listed = (_Properties,) * lists_properties(kind, version)
        points = (c_uint32, _Points, _Points, Handles)  # to wait for, the new one, a handle to change it
        types[kind] = (name, (c_int32, Handle, Handle, *listed, *ARGUMENTS[kind], *points))
    made: dict[str, Callable[..., Any]] = {}
    for word, (name, (result, *arguments)) in types.items():
        address = function_address(platform.int_ptr, name.encode())
        if not address:
            return None
        made[word] = CFUNCTYPE(result, *arguments)(address)
    return made
