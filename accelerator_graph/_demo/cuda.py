"""The demo on the ``"cuda"`` backend: device memory, and a kernel that is compiled at run time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from cuda.bindings import driver, nvrtc

import accelerator_graph as ag

from .gpu import SOURCE, GpuPlate, call_driver

call = partial(call_driver, "cuda")


class CudaPlate(GpuPlate):
    """The grids in memory that cuda-python allocates."""

    def __init__(self, stream: ag.Stream, initial: array[float], size: int) -> None:
        self.size = size
        self.nbytes = len(initial) * initial.itemsize
        self.device = call(driver.cuDeviceGet, stream.device)
        self.context = call(driver.cuDevicePrimaryCtxRetain, self.device)
        self.module: Any = None
        self.memory: list[Any] = []
        try:
            with self.current():
                self.module = call(driver.cuModuleLoadData, compiled(self.device))
                self.kernel = call(driver.cuModuleGetFunction, self.module, b"diffuse")
                for _ in range(3):
                    self.memory.append(call(driver.cuMemAlloc, self.nbytes))
                *self.grids, self.initial = self.memory
                call(driver.cuMemcpyHtoD, self.initial, initial, self.nbytes)
                call(driver.cuStreamSynchronize, driver.CUstream(0))  # other streams don't wait for the copy
        except BaseException:
            self.close()
            raise

    def read(self) -> bytes:
        """Return the first grid."""
        host = bytearray(self.nbytes)
        with self.current():
            call(driver.cuMemcpyDtoH, host, self.grids[0], self.nbytes)
        return bytes(host)

    def close(self) -> None:
        """Release the memory, the kernel and the device's context."""
        with self.current():
            for address in self.memory:
                call(driver.cuMemFree, address)
            if self.module is not None:
                call(driver.cuModuleUnload, self.module)
        call(driver.cuDevicePrimaryCtxRelease, self.device)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the device's context current for a ``with`` block, then the one from before."""
        call(driver.cuCtxPushCurrent, self.context)
        try:
            yield
        finally:
            call(driver.cuCtxPopCurrent)


def compiled(device: Any) -> bytes:
    """Return the kernel's binary for a device."""
    which = driver.CUdevice_attribute
    major = call(driver.cuDeviceGetAttribute, which.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
    minor = call(driver.cuDeviceGetAttribute, which.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
    options = [f"--gpu-architecture=sm_{major}{minor}".encode()]
    try:
        program = call(nvrtc.nvrtcCreateProgram, SOURCE, b"diffuse.cu", 0, [], [])
    except RuntimeError as error:  # the bindings raise this if they can't load the library
        if isinstance(error, ag.errors.DriverError):
            raise
        raise ag.errors.UnsupportedError(
            "the demo can't compile its kernel, because the library NVRTC was not found; install the CUDA "
            "Toolkit, or with pip nvidia-cuda-nvrtc (nvidia-cuda-nvrtc-cu12 for cuda-python 12)."
        ) from error
    try:
        call(nvrtc.nvrtcCompileProgram, program, len(options), options)
        binary = bytearray(call(nvrtc.nvrtcGetCUBINSize, program))
        call(nvrtc.nvrtcGetCUBIN, program, binary)
        return bytes(binary)
    finally:
        call(nvrtc.nvrtcDestroyProgram, program)
