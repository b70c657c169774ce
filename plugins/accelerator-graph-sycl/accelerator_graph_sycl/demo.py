"""The demo's memory and kernel on SYCL: ``accelerator-graph demo sycl``."""

from __future__ import annotations

from array import array
from ctypes import c_int
from typing import Any

from dpctl.memory import MemoryUSMDevice
from dpctl.program import create_program_from_source

from accelerator_graph import Stream

SOURCE = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

kernel void diffuse(global const double *source, global double *target, int size, int first)
{
    size_t x = 1 + get_global_id(0);
    size_t y = first + get_global_id(1);
    size_t i = y * size + x;
    double here = source[i];
    double around = source[i - 1] + source[i + 1] + source[i - size] + source[i + size];
    target[i] = here + 0.2 * (around - 4.0 * here);
}
"""


class SyclPlate:
    """Two grids, and the initial state, in the memory of a stream's device."""

    default_size = 512
    default_steps = 400

    def __init__(self, stream: Stream, initial: array[float], size: int) -> None:
        self.size = size
        self.kernel: Any = create_program_from_source(stream.native, SOURCE).get_sycl_kernel("diffuse")
        nbytes = len(initial) * initial.itemsize
        self.initial: Any = MemoryUSMDevice(nbytes, queue=stream.native)
        self.grids: list[Any] = [MemoryUSMDevice(nbytes, queue=stream.native) for _ in range(2)]
        self.initial.copy_from_host(initial.tobytes())

    def restore(self, stream: Stream) -> None:
        """Copy the initial state into both grids."""
        for grid in self.grids:
            stream.copy(grid, self.initial)

    def diffuse(self, stream: Stream, step: int, first: int, last: int) -> None:
        """Enqueue one step for some rows."""
        source, target = self.grids[step % 2], self.grids[(step + 1) % 2]
        stream.launch(
            self.kernel,
            source,
            target,
            c_int(self.size),
            c_int(first),
            global_size=(last - first, self.size - 2),  # the last one is dimension 0 of OpenCL C
        )

    def read(self) -> bytes:
        """Return the first grid."""
        return bytes(self.grids[0].copy_to_host())

    def close(self) -> None:
        """Do nothing: the memory goes with the last reference."""
