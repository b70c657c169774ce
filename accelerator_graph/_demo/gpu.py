"""What the demo has in common on CUDA and HIP: the kernel, and how it works on the two grids.

The library captures streams. Memory and kernels are not its business, so `cuda` and `hip` call the vendor's
bindings for them. A program with a framework would use the framework's arrays and kernels instead.
"""

from __future__ import annotations

from ctypes import c_int
from typing import Any

import accelerator_graph as ag

SOURCE = rb"""
extern "C" __global__ void diffuse(const double *source, double *target, int size, int first, int last)
{
    int x = 1 + blockIdx.x * blockDim.x + threadIdx.x;
    int y = first + blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= size - 1 || y >= last) return;

    long long i = (long long)y * size + x;
    double here = source[i];
    double around = source[i - 1] + source[i + 1] + source[i - size] + source[i + size];
    target[i] = here + 0.2 * (around - 4.0 * here);
}
"""

BLOCK = (32, 8, 1)
"""Threads of a block."""


class GpuPlate:
    """Two grids, and the initial state, in the memory of a stream's device."""

    default_size = 512
    default_steps = 4000

    size: int
    nbytes: int
    kernel: Any
    grids: list[Any]
    initial: Any

    def restore(self, stream: ag.Stream) -> None:
        """Copy the initial state into both grids."""
        for grid in self.grids:
            stream.copy(grid, self.initial, self.nbytes)

    def diffuse(self, stream: ag.Stream, step: int, first: int, last: int) -> None:
        """Enqueue one step for some rows."""
        source, target = self.grids[step % 2], self.grids[(step + 1) % 2]
        arguments = (source, target, c_int(self.size), c_int(first), c_int(last))
        blocks = (-(-(self.size - 2) // BLOCK[0]), -(-(last - first) // BLOCK[1]), 1)
        stream.launch(self.kernel, *arguments, grid=blocks, block=BLOCK)


def call_driver(backend: str, function: Any, *arguments: Any) -> Any:
    """Call a function of a binding and return its results without the status; raise if it fails."""
    status, *answer = function(*arguments)
    if status:
        out_of_memory = "OUTOFMEMORY" in status.name.replace("_", "").upper()
        raise ag.errors.driver_error(
            backend=backend,
            call=function.__name__,
            code=int(status),
            code_name=status.name,
            reason="out_of_memory" if out_of_memory else "other",
        )
    return answer[0] if answer else None
