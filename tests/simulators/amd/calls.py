"""Calls of AMD's runtime, through ctypes alone: hip-python holds Python's lock in some versions."""

from __future__ import annotations

import time
from ctypes import CDLL, POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p, cast
from ctypes import create_string_buffer as memory_of
from functools import cache

TIMEOUT = 20
NON_BLOCKING, NO_TIMING, THREAD_LOCAL = 1, 2, 1
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
OUT_OF_MEMORY, NOT_READY = 2, 600
KERNEL, MEMCPY, MEMSET = 0, 1, 2
SOURCE = b"""
extern "C" __global__ void step(unsigned *cell, unsigned a, unsigned b, unsigned long long pause) {
    *cell = *cell * a + b;
}
extern "C" __global__ void meet(volatile unsigned *mine, const volatile unsigned *other) {
    *mine = 1;
    while (!*other);
}
extern "C" __global__ void geometry(unsigned *out) {}
extern "C" __global__ void diffuse(const double *source, double *target, int size, int first, int last) {}
extern "C" __global__ void strange(unsigned *cell) { *cell = 1; }
"""

hip = CDLL("libamdhip64.so")
rtc = CDLL("libhiprtc.so")
hip.hipModuleLaunchKernel.argtypes = (
    *(c_void_p, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint),
    *(c_void_p, POINTER(c_void_p), c_void_p),
)


def call(name, *arguments):
    code = getattr(rtc if name.startswith("hiprtc") else hip, name)(*arguments)
    assert code == 0, f"{name}: {code}"


def made(name, *arguments):
    """Call a function that writes a handle or an address first, and return that."""
    answer = c_void_p()
    call(name, byref(answer), *arguments)
    return answer


def last(name, *arguments):
    """Call a function that writes a handle last, and return that."""
    answer = c_void_p()
    call(name, *arguments, byref(answer))
    return answer


def count_of(name, *arguments):
    count = c_size_t()
    call(name, *arguments, byref(count))
    return count.value


def memory(nbytes, value=0):
    address = made("hipMalloc", c_size_t(nbytes))
    call("hipMemset", address, value, c_size_t(nbytes))
    call("hipDeviceSynchronize")
    return address


def past(address, nbytes):
    return c_void_p(address.value + nbytes)


def read(address, nbytes):
    found = memory_of(nbytes)
    call("hipMemcpy", found, address, c_size_t(nbytes), TO_HOST)
    return found.raw


def word(address):
    return int.from_bytes(read(address, 4), "little")


class Cells:
    """Words in memory that host and device share: read and written without a stream."""

    def __init__(self, count):
        self.start = made("hipHostMalloc", c_size_t(4 * count), 0)
        self._words = cast(self.start, POINTER(c_uint))
        for i in range(count):
            self[i] = 0

    def at(self, i):
        return past(self.start, 4 * i)

    def __getitem__(self, i):
        return self._words[i]

    def __setitem__(self, i, value):
        self._words[i] = value


def stream():
    return made("hipStreamCreateWithFlags", NON_BLOCKING)


def event():
    return made("hipEventCreateWithFlags", NO_TIMING)


@cache
def binary():
    program = made("hiprtcCreateProgram", SOURCE, b"kernels.hip", 0, None, None)
    options = (c_char_p * 1)(b"--offload-arch=gfx1100")
    call("hiprtcCompileProgram", program, 1, options)
    code = memory_of(count_of("hiprtcGetCodeSize", program))
    call("hiprtcGetCode", program, code)
    call("hiprtcDestroyProgram", byref(program))
    return code


@cache
def kernel(name):
    return made("hipModuleGetFunction", made("hipModuleLoadData", binary()), name.encode())


def launch(on, name, *arguments, grid=1, block=1, shared=0):
    places = (c_void_p * len(arguments))(*(cast(byref(value), c_void_p) for value in arguments))
    (x, y), (p, q) = ((size, 1) if isinstance(size, int) else size for size in (grid, block))
    call("hipModuleLaunchKernel", kernel(name), x, y, 1, p, q, 1, shared, on, places, None)


def step(on, cell, a, b):
    launch(on, "step", cell, c_uint(a), c_uint(b), c_uint64(0))


def until(true):
    end = time.monotonic() + TIMEOUT
    while not true():
        assert time.monotonic() < end, "it never happens"
        time.sleep(0.001)


def is_done(on):
    code = hip.hipStreamQuery(on)
    assert code in (0, NOT_READY)
    return code == 0


def finish(*streams):
    for on in streams:
        until(lambda: is_done(on))  # noqa: B023


class Gate:
    """A kernel that keeps a stream waiting until the gate is opened."""

    def __init__(self):
        self.cells = Cells(2)

    def close(self, on):
        launch(on, "meet", self.cells.at(0), self.cells.at(1))
        until(lambda: self.cells[0])

    def open(self):
        self.cells[1] = 1


def nodes_of(graph):
    count = c_size_t()
    call("hipGraphGetNodes", graph, None, byref(count))
    nodes = (c_void_p * count.value)()
    call("hipGraphGetNodes", graph, nodes, byref(count))
    kinds = []
    for node in nodes:
        kind = c_int()
        call("hipGraphNodeGetType", c_void_p(node), byref(kind))
        kinds.append(kind.value)
    return sorted(kinds)


def edges_of(graph):
    count = c_size_t()
    call("hipGraphGetEdges", graph, None, None, byref(count))
    return count.value


def executable(graph):
    return made("hipGraphInstantiateWithFlags", graph, c_uint64(0))
