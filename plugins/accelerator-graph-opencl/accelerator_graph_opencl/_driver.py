"""OpenCL's functions that enqueue, or that pyopencl does not wrap, through ctypes; and its errors.

The functions come from the loader that pyopencl itself is linked with, so both see the same devices.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

import pyopencl as cl
from pyopencl import _cl

from accelerator_graph.errors import DriverError, Reason, driver_error

Handle = c_void_p
Handles = POINTER(c_void_p)
Sizes = POINTER(c_size_t)

_INVALID_VALUE = -30

_EXTENSION_CODES = {
    -1001: "CL_PLATFORM_NOT_FOUND_KHR",
    -1138: "CL_INVALID_COMMAND_BUFFER_KHR",
    -1139: "CL_INVALID_SYNC_POINT_WAIT_LIST_KHR",
    -1140: "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR",
}
_REASONS: dict[int, Reason] = {
    -4: "out_of_memory",  # CL_MEM_OBJECT_ALLOCATION_FAILURE
    -6: "out_of_memory",  # CL_OUT_OF_HOST_MEMORY
}

_LIBRARY = ctypes.CDLL(_cl.__file__)


def _function(name: str, *arguments: Any, result: Any = c_int32) -> Callable[..., Any]:
    return ctypes.CFUNCTYPE(result, *arguments)((name, _LIBRARY))


get_device_info = _function("clGetDeviceInfo", Handle, c_uint32, c_size_t, c_void_p, Sizes)
function_address = _function("clGetExtensionFunctionAddressForPlatform", Handle, c_char_p, result=c_void_p)
flush = _function("clFlush", Handle)
release_event = _function("clReleaseEvent", Handle)
enqueue_barrier = _function("clEnqueueBarrierWithWaitList", Handle, c_uint32, Handles, Handles)

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "kernel": (Handle, c_uint32, Sizes, Sizes, Sizes),
    "memset": (Handle, c_char_p, c_size_t, c_size_t, c_size_t),
    "memcpy": (Handle, Handle, c_size_t, c_size_t, c_size_t),
}
"""The types of a command's arguments, by its kind: the same to enqueue it and to record it."""

NAMES = {
    "kernel": "clEnqueueNDRangeKernel",
    "memset": "clEnqueueFillBuffer",
    "memcpy": "clEnqueueCopyBuffer",
}
enqueue: dict[str, Callable[..., int]] = {
    kind: _function(name, Handle, *ARGUMENTS[kind], c_uint32, Handles, Handles)
    for kind, name in NAMES.items()
}


def failure(call: str, code: int) -> DriverError:
    """Make the error for a function that has returned an error code."""
    return driver_error(
        backend="opencl", call=call, code=code, code_name=name_of(code), reason=_REASONS.get(code, "other")
    )


def name_of(code: int) -> str:
    """Return OpenCL's name of an error code."""
    try:
        return _EXTENSION_CODES.get(code) or f"CL_{cl.status_code.to_string(code)}"
    except ValueError:
        return "an unknown code"


def check(call: str, code: int) -> None:
    """Raise the `DriverError` of a code that is not CL_SUCCESS."""
    if code:
        raise failure(call, code)


@contextmanager
def translated(call: str) -> Iterator[None]:
    """Turn an error of pyopencl into a `DriverError`."""
    try:
        yield
    except cl.Error as error:
        raise failure(call, error.code) from error


def other_context(call: str, detail: str) -> DriverError:
    """Make the error for streams that can't be used together."""
    return driver_error(backend="opencl", call=call, code=None, code_name="CL_INVALID_CONTEXT", detail=detail)


def device_number(device: cl.Device, parameter: int) -> int:
    """Return a number of up to 64 bits that a device reports, or 0 if it does not know it."""
    number = c_uint64()  # 0, so that a number of 32 bits fits as well
    code = get_device_info(device.int_ptr, parameter, 8, ctypes.byref(number), None)
    if code != _INVALID_VALUE:
        check("clGetDeviceInfo", code)
    return number.value
