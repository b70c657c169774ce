"""Memory and work of the cuda backend, through cuda-python alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from ctypes import c_uint32, c_uint64
from functools import cache
from typing import Any

from cuda.bindings import driver

import accelerator_graph as ag

from .device import ARENA_BYTES, Arena, Counts, DeviceWork

KERNEL = b"""
.version 6.3
.target sm_75
.address_size 64

// *cell = *cell * a + b, with at least `pause` nanoseconds between the reading and the writing
.visible .entry step(.param .u64 cell, .param .u32 a, .param .u32 b, .param .u64 pause)
{
    .reg .pred %again;
    .reg .b32 %a, %b, %value;
    .reg .b64 %cell, %pause, %start, %now;

    ld.param.u64 %cell, [cell];
    ld.param.u32 %a, [a];
    ld.param.u32 %b, [b];
    ld.param.u64 %pause, [pause];
    cvta.to.global.u64 %cell, %cell;
    ld.volatile.global.u32 %value, [%cell];
    mov.u64 %start, %globaltimer;
wait:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %again, %now, %pause;
    @%again bra wait;
    mad.lo.u32 %value, %value, %a, %b;
    st.volatile.global.u32 [%cell], %value;
    ret;
}
\0"""


NAME_BYTES = 256

STEPS = {
    "cuStreamCreateWithPriority": ("streams", 1),
    "cuStreamDestroy": ("streams", -1),
    "cuEventCreate": ("events", 1),
    "cuEventDestroy": ("events", -1),
    "cuStreamEndCapture": ("graphs", 1),
    "cuGraphClone": ("graphs", 1),
    "cuGraphDestroy": ("graphs", -1),
    "cuGraphInstantiate": ("executables", 1),
    "cuGraphExecDestroy": ("executables", -1),
}
"""The functions that the backend makes and destroys objects with."""


class CudaWork(DeviceWork):
    """Cells in the memory of a device; a piece of work is a kernel, launched by the driver."""

    backend = "cuda"

    def __init__(self, number: int = 0) -> None:
        self.device: Device = device(number)
        self._counts = Counts(STEPS, made)

    def counting(self) -> AbstractContextManager[None]:
        """Count the backend's calls of cuda-python, since the driver reports no numbers of objects."""
        return self._counts.counting(driver)

    def live_objects(self) -> Mapping[str, int]:
        """Return what was made since the counting began and was not destroyed."""
        return self._counts.alive

    @contextmanager
    def own_stream(self) -> Iterator[Any]:
        """Make a stream, and have its handle."""
        with self.device.current():
            stream = call(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        try:
            yield int(stream)
        finally:
            call(driver.cuStreamDestroy, stream)

    def on(self, device: int) -> CudaWork:
        """Return the work for another device."""
        return CudaWork(device)

    def enqueue(self, stream: ag.Stream, cell: int, a: int, b: int, pause: int = 0) -> None:
        """Launch the kernel, which waits for `pause` nanoseconds between reading and writing the cell."""
        values = (cell, a, b, pause), (c_uint64, c_uint32, c_uint32, c_uint64)
        with self.device.current():
            call(driver.cuLaunchKernel, self.device.kernel, 1, 1, 1, 1, 1, 1, 0, stream.native, values, 0)


class Device(Arena):
    """A device: its primary context, the kernel, and its memory."""

    def __init__(self, number: int) -> None:
        call(driver.cuInit, 0)
        self.number: Any = call(driver.cuDeviceGet, number)
        self.context: Any = call(driver.cuDevicePrimaryCtxRetain, self.number)
        with self.current():
            self.module: Any = call(driver.cuModuleLoadData, KERNEL)
            self.kernel: Any = call(driver.cuModuleGetFunction, self.module, b"step")
            super().__init__(int(call(driver.cuMemAlloc, ARENA_BYTES)))
            call(driver.cuMemsetD8, self.free, 0, ARENA_BYTES)
            call(driver.cuFuncLoad, self.kernel)  # else the first launch does, perhaps during a capture
            call(driver.cuCtxSynchronize)

    def read(self, address: int, nbytes: int) -> bytes:
        """Copy from the device. The null stream, which does this, waits for none of the library's."""
        found = bytearray(nbytes)
        with self.current():
            call(driver.cuMemcpyDtoH, found, address, nbytes)
        return bytes(found)

    def name(self) -> str:
        """Return the driver's name of the device."""
        return bytes(call(driver.cuDeviceGetName, NAME_BYTES, self.number)).partition(b"\0")[0].decode()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current for a ``with`` block, then what was current before."""
        call(driver.cuCtxPushCurrent, self.context)
        try:
            yield
        finally:
            call(driver.cuCtxPopCurrent)


@cache
def device(number: int) -> Device:
    """Return a device; the same object each time, since its memory is never freed."""
    return Device(number)


def made(answer: tuple[Any, ...], arguments: tuple[Any, ...]) -> bool:
    """Return True if a call has succeeded, and has not answered the handle 0."""
    return answer[0] == driver.CUresult.CUDA_SUCCESS and all(map(int, answer[1:]))


def call(function: Any, *args: Any) -> Any:
    """Call a function of the driver and return what it answers beside the code."""
    code, *answer = function(*args)
    assert code == driver.CUresult.CUDA_SUCCESS, f"{function.__name__}: {code}"
    return answer[0] if answer else None
