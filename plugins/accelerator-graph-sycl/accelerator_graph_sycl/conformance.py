"""The conformance kit's memory and work on SYCL: ``accelerator-graph conformance sycl``."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from ctypes import c_uint32, c_uint64
from functools import cache
from time import perf_counter
from typing import Any

import dpctl
from dpctl.memory import MemoryUSMShared
from dpctl.program import create_program_from_source

from accelerator_graph import Stream
from accelerator_graph.testing import Work, live_instances

SOURCE = """
kernel void work(global volatile uint *cell, uint a, uint b, ulong turns)
{
    uint value = cell[0];
    volatile ulong turn = 0;
    while (turn < turns)
        turn++;
    cell[0] = value * a + b;
}
"""

PAUSE = 2.5e-3


class _Memory(MemoryUSMShared):  # type: ignore[misc]
    """Shared memory that can be referenced weakly, so that the kit sees how long it lives."""


class _Part:
    """Memory that begins inside other memory."""

    def __init__(self, memory: Any, start: int) -> None:
        self.memory: Any = memory
        interface = memory.__sycl_usm_array_interface__
        self.__sycl_usm_array_interface__: dict[str, Any] = {
            **interface,
            "data": (interface["data"][0], False),
            "shape": (memory.nbytes - start,),
            "offset": start,
        }


class SyclWork(Work):
    """Cells in shared USM memory; a piece of work is a kernel that dpctl launches."""

    backend = "sycl"

    def new(self) -> Any:
        """Return four bytes of shared memory. Its queue is never captured, so it can always be read."""
        return self.buffer(4)

    def enqueue(self, stream: Stream, cell: Any, a: int, b: int) -> None:
        """Launch the kernel through the library."""
        stream.launch(_kernel(), cell, c_uint32(a), c_uint32(b), c_uint64(0))

    def enqueue_slow(self, stream: Stream, cell: Any, a: int, b: int) -> None:
        """Let dpctl launch the kernel, with a pause between reading and writing."""
        _launch(stream.native, cell, a, b, _turns())

    def read(self, cell: Any) -> int:
        """Read the shared memory in place. Nothing is waited for."""
        return int.from_bytes(memoryview(cell), "little")

    def buffer(self, nbytes: int) -> Any:
        """Return shared memory."""
        memory = _Memory(nbytes, queue=_own_queue())
        memoryview(memory)[:] = bytes(nbytes)
        return memory

    def part(self, buffer: Any, start: int) -> Any:
        """Return the rest of the memory."""
        return _Part(buffer, start)

    def live_objects(self) -> Mapping[str, int]:
        """Count the objects of the plug-in, each of which owns objects of SYCL."""
        return live_instances(__package__)

    def read_bytes(self, buffer: Any) -> bytes:
        """Read the shared memory in place."""
        return bytes(memoryview(buffer))


def _launch(queue: Any, cell: Any, a: int, b: int, turns: int) -> None:
    arguments = [cell, c_uint32(a), c_uint32(b), c_uint64(turns)]
    queue.submit_async(_kernel(), arguments, [1])


_lock = threading.Lock()


@cache
def _own_queue() -> Any:
    return dpctl.SyclQueue(property="in_order")


@cache
def _compiled() -> Any:
    return create_program_from_source(_own_queue(), SOURCE).get_sycl_kernel("work")


def _kernel() -> Any:
    with _lock:
        return _compiled()


@cache
def _turns() -> int:
    """Return how many turns of the kernel's loop take `PAUSE` at least, also when the machine is not busy."""
    turns = 1 << 16
    while min(_seconds(turns) for _ in range(20)) < PAUSE:
        turns *= 2
    return turns


def _seconds(turns: int) -> float:
    begin = perf_counter()
    _launch(_own_queue(), SyclWork().new(), 1, 0, turns)
    _own_queue().wait()
    return perf_counter() - begin
