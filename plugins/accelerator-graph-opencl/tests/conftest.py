"""A stream with what the tests need on it, and which runtime this is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from accelerator_graph_opencl._build import built_kernel

import accelerator_graph as ag

OLD, NEW = (0, 9, 0), (1, 0, 0)
VERSIONS = {"pocl": {OLD}, "pocl-off": {None}, "intel": {NEW}, "both": {OLD, NEW}}
"""The versions of command buffers on each runtime that ``plugins/check.py`` knows."""

SOURCE = """
kernel void add(global uint *cell, uint a) { cell[0] += a; }
kernel void scale(global uint *cell, uint a) { cell[0] = cell[0] * a + 1; }
kernel void ids(global uint *out) {
    out[get_global_id(1) * 8 + get_global_id(0)] = get_local_size(0) * 100 + get_local_id(0) + 1;
}
kernel void sum(global uint *out, local uint *shared, float4 four, double x, global uint *nothing) {
    shared[get_local_id(0)] = get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0)
        out[0] = shared[3] + (uint)four.s3 + (uint)x + (nothing == 0 ? 1000 : 0);
}
kernel void slow(global volatile uint *cell, uint turns) {
    uint value = cell[0], noise = value | 1;
    for (uint turn = 0; turn < turns; turn++) noise = noise * 1664525 + 1013904223;
    cell[0] = value * 2 + 1 + (noise == 0 && turns == 0);
}
kernel __attribute__((reqd_work_group_size(4, 1, 1))) void fixed(global uint *out) { out[0] = 4; }
"""

TURNS = np.uint32(2_000_000)
"""What makes the kernel `slow` take some milliseconds."""


class Place:
    """A stream, and memory and kernels in its context."""

    def __init__(self) -> None:
        self.stream = ag.Stream(backend="opencl")
        self.queue: cl.CommandQueue = self.stream.native.queue
        self.context = self.queue.context
        self.kernels = {each: self._kernel(each) for each in ("add", "scale", "ids", "sum", "slow", "fixed")}

    def _kernel(self, name: str) -> cl.Kernel:
        return built_kernel(self.context, SOURCE, name)

    def buffer(self, count: int = 1) -> cl.Buffer:
        zeros = np.zeros(count, np.uint32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.context, flags, hostbuf=zeros)

    def read(self, buffer: cl.Buffer) -> list[int]:
        self.stream.synchronize()
        found = np.empty(buffer.size // 4, np.uint32)
        cl.enqueue_copy(self.queue, found, buffer)
        return [int(each) for each in found]

    def launch(self, name: str, *values: Any, stream: ag.Stream | None = None, **how: Any) -> None:
        numbers = [np.uint32(each) if isinstance(each, int) else each for each in values]
        (stream or self.stream).launch(self.kernels[name], *numbers, **{"global_size": 1, **how})

    def another_stream(self) -> ag.Stream:
        return ag.Stream(backend="opencl", like=self.stream)


@pytest.fixture(scope="session")
def _place() -> Place:
    return Place()


@pytest.fixture
def place(_place: Place) -> Iterator[Place]:
    yield _place
    _place.stream.synchronize()


@pytest.fixture
def version() -> tuple[int, int, int] | None:
    """The version of the device's command buffers."""
    return ag.backends.get("opencl").command_buffer_version(0)  # type: ignore[attr-defined]


@pytest.fixture
def needs_command_buffers(version: tuple[int, int, int] | None) -> None:
    if version is None:
        pytest.skip("the device has no command buffers")


@pytest.fixture(scope="session")
def lane() -> str:
    """The runtime that `plugins/check.py` has chosen."""
    name = os.environ.get("ACCELERATOR_GRAPH_PLUGIN_RUNTIME", "")
    if name not in VERSIONS:
        pytest.skip("the runtime is not one that plugins/check.py has chosen")
    return name


@pytest.fixture
def runtime(lane: str, version: tuple[int, int, int] | None) -> str:
    """The runtime of the first device."""
    return lane if lane != "both" else "intel" if version == NEW else "pocl"
