"""What the tests of the HIP backend start from: the backend, the bare runtime, memory and kernels.

Of the runtime nothing is used through the backend here, nor through those functions of hip-python that it
avoids: numbers are passed as 64 bits to functions without declared types.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import time
from ctypes import byref, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from accelerator_graph.backends._hip.library import Library
from accelerator_graph.backends.hip import HipBackend

ROOT = Path(__file__).resolve().parents[3]
MODES = ("global", "thread_local", "relaxed")
STATUSES = ("none", "active", "invalidated")
TIMEOUT = 60
NON_BLOCKING, NO_TIMING = 1, 2
TO_DEVICE, TO_HOST = 1, 2

SOURCE = rb"""
struct pair { signed char a; double b; };
extern "C" __global__ void step(unsigned *cell, unsigned a, unsigned b, unsigned long long pause)
{
    volatile unsigned *place = cell;
    unsigned value = *place;
    unsigned long long start = wall_clock64();
    while ((wall_clock64() - start) * 10 < pause) {
    }
    *place = value * a + b;
}
extern "C" __global__ void meet(volatile unsigned *mine, const volatile unsigned *other)
{
    *mine = 1;
    while (!*other) {
    }
}
extern "C" __global__ void store(double *out, int n, float f, pair p)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = i * f + p.a + p.b;
}
extern "C" __global__ void geometry(unsigned *out)
{
    unsigned dynamic;
#ifdef __CUDA_ARCH__
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dynamic));
#else
    dynamic = ((const __attribute__((address_space(4))) unsigned *)__builtin_amdgcn_dispatch_ptr())[7];
#endif
    out[0] = gridDim.x; out[1] = gridDim.y; out[2] = gridDim.z;
    out[3] = blockDim.x; out[4] = blockDim.y; out[5] = blockDim.z; out[6] = dynamic;
}
"""


# ---- threads, processes and time -----------------------------------------------------------------


def child(code, **variables):
    """Run code in an interpreter of its own; return its status, and what it prints and complains."""
    paths = (str(ROOT), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return done.returncode, done.stdout.strip(), done.stderr


def python(code, **variables):
    """Run code in an interpreter of its own and return what it prints."""
    status, printed, complaint = child(code, **variables)
    assert status == 0, complaint
    return printed


def until(true, limit=TIMEOUT):
    """Wait until something is true. Whether it was, in time."""
    end = time.monotonic() + limit
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


# ---- the bare runtime ----------------------------------------------------------------------------


@cache
def library():
    """The runtime that the backend uses too, opened once more: with no types declared."""
    return ctypes.CDLL(Library().path)


def answer(name, *args):
    """Call a function of the runtime and return its code."""
    given = [(c_uint64 if arg >= 0 else c_int64)(int(arg)) if isinstance(arg, int) else arg for arg in args]
    return getattr(library(), name)(*given)


def call(name, *args):
    code = answer(name, *args)
    assert code == 0, (name, code)


def made(name, *args):
    """Call a function that writes a handle or an address first, and return that."""
    handle = c_void_p()
    call(name, byref(handle), *args)
    return handle.value


def number(name, *args, kind=c_int):
    """Call a function that writes a number last, and return that."""
    found = kind()
    call(name, *args, byref(found))
    return found.value


def status_of(stream):
    return STATUSES[number("hipStreamIsCapturing", int(stream))]


def last_error():
    """The calling thread's last error, which stays as it is."""
    return answer("hipPeekAtLastError")


def bare_stream(flags=NON_BLOCKING):
    return made("hipStreamCreateWithFlags", flags)


def bare_begin(stream, mode):
    return answer("hipStreamBeginCapture", stream, MODES.index(mode))


def bare_end(stream):
    """End a capture: the code and the graph, which is None after an error."""
    graph = c_void_p()
    code = answer("hipStreamEndCapture", stream, byref(graph))
    return code, None if code else graph.value


def fork(stream, other):
    """Let a stream wait for another, on the bare runtime. So a capture takes it in, or comes back."""
    event = made("hipEventCreateWithFlags", NO_TIMING)
    call("hipEventRecord", event, int(stream))
    code = answer("hipStreamWaitEvent", int(other), event, 0)
    call("hipEventDestroy", event)
    return code


def nodes_of(graph):
    """Handles of a graph's nodes."""
    count = number("hipGraphGetNodes", graph, None, kind=c_size_t)
    handles = (c_void_p * count)()
    call("hipGraphGetNodes", graph, handles, byref(c_size_t(count)))
    return list(handles)


def edges_of(graph):
    """Handles of the nodes at both ends of each edge."""
    count = number("hipGraphGetEdges", graph, None, None, kind=c_size_t)
    sources, targets = (c_void_p * count)(), (c_void_p * count)()
    call("hipGraphGetEdges", graph, sources, targets, byref(c_size_t(count)))
    return sorted(zip(sources, targets, strict=True))


# ---- memory and kernels --------------------------------------------------------------------------


class Block:
    """Memory of the current device."""

    def __init__(self, nbytes=1024):
        self.nbytes = nbytes
        self.pointer = made("hipMalloc", nbytes)
        call("hipMemset", self.pointer, 0, nbytes)
        call("hipDeviceSynchronize")
        self.__cuda_array_interface__ = {
            "data": (self.pointer, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def read(self):
        host = ctypes.create_string_buffer(self.nbytes)
        call("hipMemcpy", host, self.pointer, self.nbytes, TO_HOST)
        return host.raw

    def words(self):
        return list(memoryview(self.read()).cast("I"))

    def doubles(self):
        return list(memoryview(self.read()).cast("d"))

    def free(self):
        call("hipFree", self.pointer)


class Cells:
    """Numbers in memory that the host and the devices share: read and written without a stream."""

    def __init__(self, count):
        self.start = made("hipHostMalloc", 4 * count, 0)
        self._numbers = (c_uint32 * count).from_address(self.start)
        ctypes.memset(self.start, 0, 4 * count)

    def at(self, i):
        return c_void_p(self.start + 4 * i)

    def __getitem__(self, i):
        return self._numbers[i]

    def __setitem__(self, i, value):
        self._numbers[i] = value

    def free(self):
        call("hipHostFree", self.start)


def compiled(source=SOURCE):
    """The code object of a source for the current device."""
    from hip import hiprtc

    def rtc(function, *args):
        code, *values = function(*args)
        assert int(code) == 0, (function.__name__, code)
        return values[0] if values else None

    program = rtc(hiprtc.hiprtcCreateProgram, source, b"kernels.hip", 0, None, None)
    rtc(hiprtc.hiprtcCompileProgram, program, 0, None)
    binary = bytearray(rtc(hiprtc.hiprtcGetCodeSize, program))
    rtc(hiprtc.hiprtcGetCode, program, binary)
    rtc(hiprtc.hiprtcDestroyProgram, program.createRef())
    return bytes(binary)


def loaded(source=SOURCE):
    """The kernels of a source, loaded on the current device."""
    module = made("hipModuleLoadData", compiled(source))
    names = re.findall(rb"void (\w+)\(", source)
    return SimpleNamespace(**{name.decode(): made("hipModuleGetFunction", module, name) for name in names})


def bare_launch(stream, kernel, *args, grid=1, block=1, shared_bytes=0):
    """Launch a kernel on the bare runtime, whose arguments are of ctypes' types."""
    places = (c_void_p * len(args))(*map(ctypes.addressof, args))
    sizes = [size for x_y in (grid, block) for size in (*((x_y,) if isinstance(x_y, int) else x_y), 1, 1)[:3]]
    call("hipModuleLaunchKernel", kernel, *sizes, shared_bytes, int(stream), places, None)


class Gate:
    """A kernel that keeps a stream waiting until the gate is opened."""

    def __init__(self, kernel, launch=bare_launch):
        self._kernel, self._launch = kernel, launch
        self._cells = Cells(2)

    def close(self, stream):
        self._cells[0] = self._cells[1] = 0
        self._launch(stream, self._kernel, self._cells.at(0), self._cells.at(1), grid=1, block=1)
        assert until(lambda: self._cells[0]), "the gate does not close"

    def open(self):
        self._cells[1] = 1


def step(backend, kernels, stream, cell, a, b):
    """Enqueue ``cell = cell * a + b``."""
    backend.launch(stream, kernels.step, cell, c_uint32(a), c_uint32(b), c_uint64(0), grid=1, block=1)


# ---- what the backend does in most tests ---------------------------------------------------------


def opened():
    backend = HipBackend()
    backend.name = "hip"
    backend.open()
    return backend


def recorded(backend, stream, block, value=7, mode="thread_local"):
    """A graph that fills the block."""
    token = backend.capture_begin(stream, mode)
    backend.fill(stream, block, value, None)
    return backend.capture_end(token)


def replayed(backend, graph, stream):
    """Replay a graph twice, the two ways, wait, and release it."""
    executable = backend.instantiate(graph)
    backend.upload(executable, stream)
    backend.bind(executable, stream)()
    backend.replay(executable, stream)
    backend.synchronize(stream)
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


def prepare(backend, stream):
    """Wait for a stream as the library does ahead of a capture."""
    with backend.relaxed(stream):
        backend.synchronize(stream)


def linked(backend, stream, other):
    """Let `other` wait for `stream`."""
    event = backend.record_event(stream)
    backend.wait_event(other, event)
    backend.destroy_event(event)
