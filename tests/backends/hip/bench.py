"""What the tests of the HIP backend start from: the backend, the bare runtime, memory and kernels.

Of the runtime nothing is used through the backend here, nor through those functions of hip-python that it
avoids: numbers are passed as 64 bits to functions without declared types.
"""

import ctypes
import re
import time
from contextlib import contextmanager, nullcontext
from ctypes import byref, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from types import SimpleNamespace

from accelerator_graph.backends._hip.library import Library, import_hip
from accelerator_graph.backends.hip import HipBackend
from backends import tools
from backends.tools import MODES

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


# ---- time ----------------------------------------------------------------------------------------


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
    if not count:  # CUDA, below the shim, refuses empty arrays
        return []
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


@contextmanager
def kernels():
    """The kernels on the current device, and other objects that stand for `store`."""
    found = loaded()
    symbol = import_hip().ihipModuleSymbol_t(found.store)
    found.same = (found.store, symbol, SimpleNamespace(handle=symbol))
    yield found


def pointers(block):
    """Objects that stand for the address of a block."""
    pointer = import_hip().ihipStream_t.__mro__[-2]
    return block, pointer(block.pointer), c_void_p(block.pointer)


def working(stream):
    """Let a stream work until the function that is returned is called."""
    gate = Gate(loaded().meet)
    gate.close(stream)
    return gate.open


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


def opened():
    return tools.opened(HipBackend, "hip")


# ---- what the tests of both backends ask of a vendor's own functions -------------------------------


def blocking_stream():
    """A stream of its own that waits for the legacy stream, and a function that destroys it."""
    stream = bare_stream(0)
    return stream, lambda: call("hipStreamDestroy", stream)


def allocate():
    """Allocate and free, which a capture forbids that is not relaxed, and forget the error. The code."""
    pointer = c_void_p()
    code = answer("hipMalloc", byref(pointer), 64)
    if code == 0:
        call("hipFree", pointer.value)
    answer("hipGetLastError")
    return code


def exchange(mode):
    """Set this thread's capture mode, a number, and return the one it had."""
    both = c_int(mode)
    call("hipThreadExchangeStreamCaptureMode", byref(both))
    return both.value


def priorities():
    """The least and the greatest priority that a stream can have."""
    least, greatest = c_int(), c_int()
    call("hipDeviceGetStreamPriorityRange", byref(least), byref(greatest))
    return least.value, greatest.value


def priority_and_flags(stream):
    return number("hipStreamGetPriority", int(stream)), number("hipStreamGetFlags", int(stream))


def on_device():
    """A block in which the runtime's own functions find device 0, which is current anyway."""
    return nullcontext()
