"""The demo of accelerator_graph on OpenCL: ``accelerator-graph demo opencl``."""

from __future__ import annotations

from array import array

import numpy as np
import pyopencl as cl

import accelerator_graph as ag

from ._build import built_kernel

_SOURCE = """
kernel void diffuse(global const double *source, global double *target, int size)
{
    int x = get_global_id(0), y = get_global_id(1);
    size_t i = (size_t)y * size + x;
    double here = source[i];
    double around = source[i - 1] + source[i + 1] + source[i - size] + source[i + size];
    target[i] = here + 0.2 * (around - 4.0 * here);
}
"""


class OpenclPlate:
    """Two grids, and the initial state, in the memory of a stream's device."""

    default_size = 256
    default_steps = 1000

    def __init__(self, stream: ag.Stream, initial: array[float], size: int) -> None:
        self.queue: cl.CommandQueue = stream.native.queue
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffers = [cl.Buffer(self.queue.context, flags, hostbuf=np.array(initial)) for _ in range(3)]
        self.initial: cl.Buffer = buffers.pop()
        self.grids: list[cl.Buffer] = buffers
        self.kernel: cl.Kernel = built_kernel(self.queue.context, _SOURCE, "diffuse")
        self.size = size

    def restore(self, stream: ag.Stream) -> None:
        """Copy the initial state into both grids."""
        for grid in self.grids:
            stream.copy(grid, self.initial)

    def diffuse(self, stream: ag.Stream, step: int, first: int, last: int) -> None:
        """Enqueue one step for some rows."""
        source, target = self.grids[step % 2], self.grids[(step + 1) % 2]
        points = (self.size - 2, last - first)
        how = {"global_size": points, "global_offset": (1, first)}
        stream.launch(self.kernel, source, target, np.int32(self.size), **how)

    def read(self) -> bytes:
        """Return the first grid."""
        found = np.empty(self.grids[0].size, np.uint8)
        cl.enqueue_copy(self.queue, found, self.grids[0])
        return found.tobytes()

    def close(self) -> None:
        """Release the memory."""
        for memory in (self.initial, *self.grids):
            memory.release()
