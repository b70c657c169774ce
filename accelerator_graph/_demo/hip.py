"""The demo on the ``"hip"`` backend: device memory, and a kernel that is compiled at run time.

The library captures streams. Memory and kernels are not its business, so everything here calls
hip-python. A program with a framework would use the framework's arrays and kernels instead.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_int
from typing import Any

from hip import hip, hiprtc

import accelerator_graph as ag

from ._kernel import BLOCK, SOURCE, blocks


class HipPlate:
    """Two grids, and the initial state, in the memory of a stream's device."""

    default_size = 512
    default_steps = 4000

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

    def restore(self, stream: ag.Stream) -> None:
        """Copy the initial state into both grids."""
        for grid in self.grids:
            stream.copy(grid, self.initial, self.nbytes)

    def diffuse(self, stream: ag.Stream, step: int, first: int, last: int) -> None:
        """Enqueue one step for some rows."""
        source, target = self.grids[step % 2], self.grids[(step + 1) % 2]
        arguments = (source, target, c_int(self.size), c_int(first), c_int(last))
        stream.launch(self.kernel, *arguments, grid=blocks(self.size, first, last), block=BLOCK)

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


def call(function: Any, *arguments: Any) -> Any:
    """Call a function of hip-python and return its results without the status; raise if it fails."""
    status, *answer = function(*arguments)
    if status:
        reason: ag.errors.Reason = "out_of_memory" if "OutOfMemory" in status.name else "other"
        raise ag.errors.driver_error(
            backend="hip", call=function.__name__, code=int(status), code_name=status.name, reason=reason
        )
    return answer[0] if answer else None
