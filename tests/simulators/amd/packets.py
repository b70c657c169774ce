"""Packets for queues of the library below AMD's runtime, written as the runtime writes them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p

from backends.hip import bench

KERNEL, BARRIER_AND = 2, 3
NONE, AGENT, SYSTEM = range(3)
CPU, GPU = 1, 2
"""Agents."""

FINE, COARSE = 0, 2
KERNEL_OBJECT = 22
"""Numbers of kinds of memory, and of a property of symbols."""


class Dispatch(ctypes.Structure):
    _fields_ = [
        ("header", c_uint16),
        ("setup", c_uint16),
        ("block", c_uint16 * 3),
        ("reserved", c_uint16),
        ("grid", c_uint32 * 3),
        ("private_bytes", c_uint32),
        ("shared_bytes", c_uint32),
        ("kernel", c_uint64),
        ("arguments", c_void_p),
        ("reserved_too", c_uint64),
        ("completion", c_uint64),
    ]


class Ring(ctypes.Structure):
    """The part of a queue that everybody may read."""

    _fields_ = [
        ("type", c_uint32),
        ("features", c_uint32),
        ("packets", c_void_p),
        ("doorbell", c_uint64),
        ("size", c_uint32),
        ("reserved", c_uint32),
        ("id", c_uint64),
    ]


def call(name: str, *args: object) -> None:
    status = getattr(library, name)(*args)
    assert status == 0, (name, status)


library = ctypes.CDLL("libhsa-runtime64.so.1")
library.hsa_signal_wait_scacquire.restype = c_int64
library.hsa_queue_add_write_index_screlease.restype = c_uint64


def kernels(source: bytes, *names: str) -> list[int]:
    """Load a source's kernels and return what the packets call them."""
    code = bench.compiled(source)
    reader, executable, found = c_uint64(), c_uint64(), []
    call("hsa_code_object_reader_create_from_memory", code, c_size_t(len(code)), byref(reader))
    call("hsa_executable_create_alt", c_int(0), c_int(0), None, byref(executable))
    call("hsa_executable_load_agent_code_object", executable, c_uint64(GPU), reader, None, None)
    kernels._code = code  # type: ignore[attr-defined]  # the library reads it where it is
    for name in names:
        symbol, value = c_uint64(), c_uint64()
        call("hsa_executable_get_symbol_by_name", executable, c_char_p(name.encode()), None, byref(symbol))
        call("hsa_executable_symbol_get_info", symbol, c_int(KERNEL_OBJECT), byref(value))
        found.append(value.value)
    return found


def memory(nbytes: int, kind: int = COARSE) -> int:
    """Return the address of memory of the GPU, which is zero."""
    made = c_void_p()
    call(
        "hsa_amd_memory_pool_allocate", c_uint64(GPU << 8 | kind), c_size_t(nbytes), c_uint32(0), byref(made)
    )
    assert made.value is not None
    return made.value


class Queue:
    """A queue of the GPU's, which is destroyed with its packets done."""

    def __init__(self) -> None:
        made = ctypes.POINTER(Ring)()
        anything = c_uint32(0xFFFFFFFF)
        call("hsa_queue_create", c_uint64(GPU), 64, 0, None, None, anything, anything, byref(made))
        self.ring, self._kept = made, []

    def put(
        self,
        kernel: int = 0,
        arguments: ctypes.Structure | None = None,
        *,
        barrier: bool = False,
        acquire: int = NONE,
        release: int = NONE,
    ) -> int:
        """Append a packet with a completion signal, which is returned; without a kernel a barrier."""
        signal = c_uint64()
        call("hsa_signal_create", c_int64(1), 0, None, byref(signal))
        packet = Dispatch(completion=signal.value)
        if kernel:
            packet.setup, packet.block, packet.grid, packet.kernel = 1, (1, 1, 1), (1, 1, 1), kernel
        if arguments is not None:
            self._kept.append(arguments)
            packet.arguments = ctypes.addressof(arguments)
        index = library.hsa_queue_add_write_index_screlease(self.ring, c_uint64(1))
        place = self.ring.contents.packets + index % self.ring.contents.size * ctypes.sizeof(Dispatch)
        packet.header = 1  # an invalid one, until all of it is there
        ctypes.memmove(place, byref(packet), ctypes.sizeof(packet))
        kind = KERNEL if kernel else BARRIER_AND
        c_uint16.from_address(place).value = kind | barrier << 8 | acquire << 9 | release << 11
        library.hsa_signal_store_relaxed(c_uint64(self.ring.contents.doorbell), c_int64(index))
        return signal.value

    def close(self) -> None:
        call("hsa_queue_destroy", self.ring)


def value_of(signal: int, seconds: float = 0.05) -> int:
    """Wait a moment for a signal to become 0, and return what it is."""
    how = c_int(0), c_int64(0), c_uint64(int(seconds * 1e9)), c_int(0)
    return library.hsa_signal_wait_scacquire(c_uint64(signal), *how)


def wait(*signals: int) -> None:
    """Wait until all signals are 0."""
    assert [value_of(signal, bench.TIMEOUT) for signal in signals] == [0] * len(signals)


def times_of(signal: int) -> tuple[int, int]:
    """Return when the kernel began and ended whose completion a signal has told, in nanoseconds."""
    times = (c_uint64 * 2)()
    call("hsa_amd_profiling_get_dispatch_time", c_uint64(GPU), c_uint64(signal), byref(times))
    return times[0], times[1]


def delays(seed: int, queue: Queue) -> Iterator[int]:
    """Generate how late the kernels of a queue are in harsh mode, at least, in nanoseconds."""
    state = seed << 32 ^ queue.ring.contents.id

    def below(limit: int) -> int:
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        number = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        number = (number ^ number >> 27) * 0x94D049BB133111EB % 2**64
        return (number ^ number >> 31) % limit

    while True:
        yield 0 if below(3) else below(400) * 1000
