"""The demo on the ``"hip"`` backend: device memory, and a kernel that is compiled at run time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from hip import hip, hiprtc

import accelerator_graph as ag

from .gpu import SOURCE, GpuPlate, call_driver

call = partial(call_driver, "hip")


class HipPlate(GpuPlate):
    """The grids in memory that hip-python allocates."""

    def __init__(self, stream: ag.Stream, initial: array[float], size: int) -> None:
        self.size = size
        self.nbytes = len(initial) * initial.itemsize
        self.device = stream.device
        self.module: Any = None
        self.memory: list[Any] = []
        try:
            with self.current():
                self.module = call(hip.hipModuleLoadData, compiled())
                self.kernel = call(hip.hipModuleGetFunction, self.module, b"diffuse")
                for _ in range(3):
                    self.memory.append(call(hip.hipMalloc, self.nbytes))
                *self.grids, self.initial = self.memory
                call(
                    hip.hipMemcpy, self.initial, initial, self.nbytes, hip.hipMemcpyKind.hipMemcpyHostToDevice
                )
                call(hip.hipStreamSynchronize, None)  # other streams don't wait for the copy
        except BaseException:
            self.close()
            raise

    def read(self) -> bytes:
        """Return the first grid."""
        host = bytearray(self.nbytes)
        with self.current():
            call(hip.hipMemcpy, host, self.grids[0], self.nbytes, hip.hipMemcpyKind.hipMemcpyDeviceToHost)
        return bytes(host)

    def close(self) -> None:
        """Release the memory and the kernel."""
        with self.current():
            for address in self.memory:
                call(hip.hipFree, address)
            if self.module is not None:
                call(hip.hipModuleUnload, self.module)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the device current for a ``with`` block, then the one from before."""
        before = call(hip.hipGetDevice)
        call(hip.hipSetDevice, self.device)
        try:
            yield
        finally:
            call(hip.hipSetDevice, before)


def compiled() -> bytes:
    """Return the kernel's code object for the current device."""
    try:
        program = call(hiprtc.hiprtcCreateProgram, SOURCE, b"diffuse.hip", 0, None, None)
    except RuntimeError as error:  # the binding raises this if it can't load the library
        if isinstance(error, ag.errors.DriverError):
            raise
        raise ag.errors.UnsupportedError(
            "the demo can't compile its kernel, because the library hiprtc was not found; install ROCm's "
            "package of it, such as hiprtc or hip-runtime-amd."
        ) from error
    try:
        call(hiprtc.hiprtcCompileProgram, program, 0, None)
        binary = bytearray(call(hiprtc.hiprtcGetCodeSize, program))
        call(hiprtc.hiprtcGetCode, program, binary)
        return bytes(binary)
    finally:
        call(hiprtc.hiprtcDestroyProgram, program.createRef())
