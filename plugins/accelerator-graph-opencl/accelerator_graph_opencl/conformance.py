"""What the conformance kit needs of OpenCL: memory of a device, and work on it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array

from accelerator_graph import Stream
from accelerator_graph.backends.recording import Capture
from accelerator_graph.testing import Work, live_instances

from ._build import built_kernel

_SOURCE = """
kernel void work(global volatile uint *cell, uint a, uint b, uint turns) {
    uint value = cell[0], noise = value | 1;
    for (uint turn = 0; turn < turns; turn++) {
        noise = noise * 1664525 + 1013904223;
    }
    cell[0] = value * a + b + (noise == 0 && turns == 0);
}
"""
_SLOW_SECONDS = 2e-3


class OpenclWork(Work):
    """Cells in buffers of a device, in the context in which the backend makes its streams."""

    backend = "opencl"
    kernel_name = "work"

    def __init__(self, device: int = 0) -> None:
        self.place: Place = _place_of(device)

    def on(self, device: int) -> OpenclWork:
        """Return the work for another device."""
        return OpenclWork(device)

    def device_name(self) -> str:
        """Return the names of the platform, with its version, and of the device."""
        device = self.place.queue.device
        return f"{device.name} on {device.platform.name}, {device.platform.version}"

    def new(self) -> cl.Buffer:
        """Return four bytes."""
        return self.buffer(4)

    def enqueue(self, stream: Stream, cell: Any, a: int, b: int, turns: int = 0) -> None:
        """Launch the kernel."""
        stream.launch(self.place.kernel, cell, *map(np.uint32, (a, b, turns)), global_size=1)

    def enqueue_slow(self, stream: Stream, cell: Any, a: int, b: int) -> None:
        """Launch the kernel, with many turns between reading and writing."""
        self.enqueue(stream, cell, a, b, self.place.turns)

    def read(self, cell: Any) -> int:
        """Read four bytes."""
        return int.from_bytes(self.read_bytes(cell), "little")

    def buffer(self, nbytes: int) -> cl.Buffer:
        """Return a buffer that can be referenced weakly."""
        memory = _Memory(self.place.context, cl.mem_flags.READ_WRITE, nbytes)
        cl.enqueue_copy(self.place.queue, memory, np.zeros(nbytes, np.uint8), is_blocking=True)
        return memory

    def part(self, buffer: cl.Buffer, start: int) -> cl.array.Array:
        """Return an array that begins inside the buffer."""
        return cl.array.Array(self.place.queue, (buffer.size - start,), np.uint8, data=buffer, offset=start)

    def live_objects(self) -> Mapping[str, int]:
        """Count the objects of the plug-in, each of which owns objects of OpenCL."""
        return live_instances(__package__, Capture.__module__)

    def read_bytes(self, buffer: Any) -> bytes:
        """Read through a queue that no work of the tests is on."""
        found = np.empty(buffer.size, np.uint8)
        cl.enqueue_copy(self.place.queue, found, buffer, is_blocking=True)
        return found.tobytes()


class _Memory(cl.Buffer):  # type: ignore[misc]
    """A buffer that can be referenced weakly."""


class Place:
    """A device with its context, a queue to read and write memory, and the kernel."""

    def __init__(self, device: int) -> None:
        queue: cl.CommandQueue = Stream(device, backend="opencl").native.queue
        self.context: cl.Context = queue.context
        self.queue: cl.CommandQueue = cl.CommandQueue(self.context, queue.device)
        self.kernel: cl.Kernel = built_kernel(self.context, _SOURCE, "work")
        self.turns: int = 1 << 10
        while min(self._seconds() for _ in range(20)) < _SLOW_SECONDS:
            self.turns *= 2

    def _seconds(self) -> float:
        cell, begin = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, 4), perf_counter()
        self.kernel(self.queue, (1,), None, cell, *map(np.uint32, (1, 0, self.turns)))
        self.queue.finish()
        return perf_counter() - begin


_place_of = cache(Place)
