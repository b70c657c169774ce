"""Memory and work of the hip backend, through hip-python alone."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from ctypes import c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any

from hip import hip, hiprtc

import accelerator_graph as ag

from .device import ARENA_BYTES, Arena, Counts, DeviceWork

SOURCE = rb"""
// *cell = *cell * a + b, with at least `pause` nanoseconds between the reading and the writing
extern "C" __global__ void step(unsigned *cell, unsigned a, unsigned b, unsigned long long pause)
{
    volatile unsigned *place = cell;
    unsigned value = *place;
    unsigned long long start = wall_clock64();
    while ((wall_clock64() - start) * 10 < pause) {
    }
    *place = value * a + b;
}
"""


NAME_BYTES = 256

STEPS = {
    "hipStreamCreateWithPriority": ("streams", 1),
    "hipStreamDestroy": ("streams", -1),
    "hipEventCreateWithFlags": ("events", 1),
    "hipEventDestroy": ("events", -1),
    "hipStreamEndCapture": ("graphs", 1),
    "hipGraphClone": ("graphs", 1),
    "hipGraphDestroy": ("graphs", -1),
    "hipGraphInstantiateWithFlags": ("executables", 1),
    "hipGraphExecDestroy": ("executables", -1),
}
"""The functions that the backend makes and destroys objects with."""


class HipWork(DeviceWork):
    """Cells in the memory of a device; a piece of work is a kernel, launched by the runtime."""

    backend = "hip"

    def __init__(self, number: int = 0) -> None:
        self.device: Device = device(number)
        self._counts = Counts(STEPS, made)

    def counting(self) -> AbstractContextManager[None]:
        """Count the backend's calls of the runtime, which reports no numbers of objects."""
        backend: Any = ag.backends.get(self.backend)
        functions = backend.driver._library
        for name in STEPS:
            functions.function(name)  # which says what types it takes
        return self._counts.counting(functions._handle)

    def live_objects(self) -> Mapping[str, int]:
        """Return what was made since the counting began and was not destroyed."""
        return self._counts.alive

    @contextmanager
    def own_stream(self) -> Iterator[Any]:
        """Make a stream, and have its handle."""
        with self.device.current():
            stream = call(hip.hipStreamCreateWithFlags, hip.hipStreamNonBlocking)
        try:
            yield int(stream)
        finally:
            call(hip.hipStreamDestroy, stream)

    def on(self, device: int) -> HipWork:
        """Return the work for another device."""
        return HipWork(device)

    def enqueue(self, stream: ag.Stream, cell: int, a: int, b: int, pause: int = 0) -> None:
        """Launch the kernel, which waits for `pause` nanoseconds between reading and writing the cell."""
        values = c_void_p(cell), c_uint32(a), c_uint32(b), c_uint64(pause)
        with self.device.current():
            where = (*[1] * 6, 0, stream.native, None, values)
            call(hip.hipModuleLaunchKernel, self.device.kernel, *where)


class Device(Arena):
    """A device: the kernel, and its memory."""

    def __init__(self, number: int) -> None:
        self.number = number
        with self.current():
            self.module: Any = call(hip.hipModuleLoadData, compiled())
            self.kernel: Any = call(hip.hipModuleGetFunction, self.module, b"step")
            super().__init__(int(call(hip.hipMalloc, ARENA_BYTES)))
            call(hip.hipMemset, self.free, 0, ARENA_BYTES)
            call(hip.hipDeviceSynchronize)
            # of high priority: AMD's runtime puts the streams of one priority on four queues in order
            self.reading: Any = call(hip.hipStreamCreateWithPriority, hip.hipStreamNonBlocking, -1)

    def read(self, address: int, nbytes: int) -> bytes:
        """Copy from the device, on a stream that waits for none of the library's, even during a capture.

        Not synchronously: that breaks captures in every mode.
        """
        found = bytearray(nbytes)
        kind = hip.hipMemcpyKind.hipMemcpyDeviceToHost
        with self.current(), relaxed():
            call(hip.hipMemcpyAsync, found, address, nbytes, kind, self.reading)
            call(hip.hipStreamSynchronize, self.reading)
        return bytes(found)

    def name(self) -> str:
        """Return the runtime's name of the device. The wrapper's arguments differ between versions."""
        name = ctypes.create_string_buffer(NAME_BYTES)
        code = library().hipDeviceGetName(name, NAME_BYTES, self.number)
        assert code == 0, f"hipDeviceGetName: {code}"
        return name.value.decode()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the device current for a ``with`` block, then what was current before."""
        before = call(hip.hipGetDevice)
        call(hip.hipSetDevice, self.number)
        try:
            yield
        finally:
            call(hip.hipSetDevice, before)


@cache
def library() -> ctypes.CDLL:
    """The runtime that hip-python has loaded: its own wrapper of the exchange takes no mode."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        files = {line.split()[-1] for line in maps if "/libamdhip64" in line}
    (file,) = files
    return ctypes.CDLL(file)


@contextmanager
def relaxed() -> Iterator[None]:
    """Let this thread disturb no capture meanwhile."""
    mode = ctypes.c_int(2)
    library().hipThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        yield
    finally:
        library().hipThreadExchangeStreamCaptureMode(ctypes.byref(mode))


@cache
def device(number: int) -> Device:
    """Return a device; the same object each time, since its memory is never freed."""
    return Device(number)


def compiled() -> bytes:
    """Return the kernel's binary for the current device."""
    program = call(hiprtc.hiprtcCreateProgram, SOURCE, b"step.hip", 0, None, None)
    call(hiprtc.hiprtcCompileProgram, program, 0, None)
    binary = bytearray(call(hiprtc.hiprtcGetCodeSize, program))
    call(hiprtc.hiprtcGetCode, program, binary)
    return bytes(binary)


def made(code: int, arguments: tuple[Any, ...]) -> bool:
    """Return True if a call has succeeded, and has not written the handle 0."""
    places = (getattr(each, "_obj", None) for each in arguments)
    return code == 0 and all(place.value for place in places if isinstance(place, c_void_p))


def call(function: Any, *args: Any) -> Any:
    """Call a function of hip-python and return what it answers beside the code."""
    code, *answer = function(*args)
    assert int(code) == 0, f"{function.__name__}: {code}"
    return answer[0] if answer else None
