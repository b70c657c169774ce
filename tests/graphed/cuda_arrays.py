"""Tensors and kernels on CUDA, through the bare driver: to `graphed`, a framework like torch."""

from __future__ import annotations

import ctypes
import re
import secrets
import struct
import sys
import threading
import types
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from cuda.bindings import driver, nvrtc

import accelerator_graph as ag
from accelerator_graph.backends import registry
from accelerator_graph.interop import registry as interop
from accelerator_graph.interop.base import Framework
from accelerator_graph.testing.works.cuda import call

SOURCE = rb"""
struct operands { double *out; int n; const double *x, *y; };
struct __attribute__((packed)) packed_operands { int n; double *out; const double *x, *y; };
static __device__ void sum(double *out, const double *x, const double *y, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = x[i] + y[i];
}
extern "C" __global__ void plus(double *out, const double *x, const double *y, int n) { sum(out, x, y, n); }
extern "C" __global__ void ncclDevKernel_plus(double *out, const double *x, const double *y, int n)
{
    sum(out, x, y, n);
}
extern "C" __global__ void plus_struct(operands all) { sum(all.out, all.x, all.y, all.n); }
extern "C" __global__ void plus_packed(packed_operands all) { sum(all.out, all.x, all.y, all.n); }
extern "C" __global__ void plus_table(double *out, double **table, int n) { sum(out, table[0], table[1], n); }
extern "C" __global__ void plus_from(double *out, char *base, long distance, const double *y, int n)
{
    sum(out, (const double *)(base + distance), y, n);
}
extern "C" __global__ void plus_halves(double *out, unsigned low, unsigned high, const double *y, int n)
{
    sum(out, (const double *)((unsigned long long)high << 32 | low), y, n);
}
extern "C" __global__ void plus_masked(
    double *out, unsigned long long masked, unsigned long long mask, const double *y, int n)
{
    sum(out, (const double *)(masked ^ mask), y, n);
}
extern "C" __global__ void plus_until(double *out, const double *x, const double *end, const double *y)
{
    sum(out, x, y, (int)(end - x));
}
extern "C" __global__ void put_down(const double **table, const double *x, const double *y)
{
    table[0] = x;
    table[1] = y;
}
"""

LIBRARY = ctypes.CDLL("libcuda.so.1")
ALIGNMENT = 512


class Current(threading.local):
    handle = 0


current = Current()
backend = None
"""The backend, once it is open."""


class Fake(Framework):
    """It works on its current stream, and takes memory from one large block, for ever."""

    api_version = 1
    name = "fakeframe"

    def backend(self):
        return "cuda"

    def current_stream(self, device=None):
        return current.handle, 0

    def use_stream(self, handle, device):
        before, current.handle = current.handle, handle

        def undo():
            current.handle = before

        return undo


@cache
def context():
    return call(driver.cuDevicePrimaryCtxRetain, call(driver.cuDeviceGet, 0))


@cache
def kernels():
    """The kernels, as functions, and of `plus` as a kernel of no context."""
    which = driver.CUdevice_attribute
    major, minor = (
        call(driver.cuDeviceGetAttribute, attribute, call(driver.cuDeviceGet, 0))
        for attribute in (
            which.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            which.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    program = call(nvrtc.nvrtcCreateProgram, SOURCE, b"plus.cu", 0, [], [])
    options = [f"--gpu-architecture=sm_{major}{minor}".encode()]
    call(nvrtc.nvrtcCompileProgram, program, len(options), options)
    binary = bytearray(call(nvrtc.nvrtcGetCUBINSize, program))
    call(nvrtc.nvrtcGetCUBIN, program, binary)
    call(driver.cuCtxSetCurrent, context())
    module = call(driver.cuModuleLoadData, bytes(binary))
    library = call(driver.cuLibraryLoadData, bytes(binary), [], [], 0, [], [], 0)
    names = re.findall(r"__global__ void (\w+)", SOURCE.decode())
    found = {name: int(call(driver.cuModuleGetFunction, module, name.encode())) for name in names}
    return SimpleNamespace(**found, kernel=int(call(driver.cuLibraryGetKernel, library, b"plus")))


class Memory:
    """A block that is given out piece by piece."""

    def __init__(self, nbytes=1 << 22):
        call(driver.cuCtxSetCurrent, context())
        self.start, self.end = int(call(driver.cuMemAlloc, nbytes)), nbytes
        self.at = self.start + -self.start % ALIGNMENT

    def take(self, nbytes, offset=0):
        address = self.at + offset
        self.at = address + nbytes + -(address + nbytes) % ALIGNMENT
        assert self.at < self.start + self.end
        return address

    def free(self):
        call(driver.cuMemFree, self.start)


memory = None


class Place(NamedTuple):
    type: str = "fake"


PLACE = Place()


class Tensor:
    """A dense tensor like torch's, of float64 or whatever its type says."""

    requires_grad = False
    layout = "strided"

    def __init__(self, address, shape, dtype="f8"):
        self.address, self.shape, self.dtype = address, tuple(shape), np.dtype(dtype)
        self._version = 0
        self.device = PLACE
        self.used_on = []

    def data_ptr(self):
        return self.address

    def stride(self):
        steps = np.cumprod((1, *self.shape[:0:-1]))[::-1]
        return tuple(map(int, steps))

    def element_size(self):
        return self.dtype.itemsize

    def numel(self):
        return int(np.prod(self.shape))

    nbytes = property(lambda self: self.numel() * self.dtype.itemsize)

    def is_neg(self):
        return False

    def record_stream(self, stream):
        self.used_on.append(stream)

    def contiguous(self):
        return self

    def detach(self):
        return self

    def clone(self):
        return empty_like(self).copy_(self)

    def copy_(self, other):
        self._version += 1
        backend.copy(backend.as_stream(current.handle), self.address, other.address, self.nbytes)
        return self

    def fill_(self, byte):
        self._version += 1
        backend.fill(backend.as_stream(current.handle), self.address, byte, self.nbytes)
        return self

    def __getitem__(self, where):
        return Tensor(self.address + where.start, (where.stop - where.start,), "u1")

    def view(self, dtype):
        return Tensor(self.address, (self.nbytes // np.dtype(dtype).itemsize,), dtype)

    def as_strided(self, shape, stride):
        return Tensor(self.address, shape, self.dtype)

    def __dlpack_device__(self):
        return 2, 0

    def tolist(self):
        host = bytearray(self.nbytes)
        backend.synchronize(backend.as_stream(current.handle))
        call(driver.cuCtxSetCurrent, context())
        call(driver.cuMemcpyDtoH, host, self.address, self.nbytes)
        return np.frombuffer(host, self.dtype).reshape(self.shape).tolist()

    def __add__(self, other):
        return plus("plus", self, other)


Tensor.__module__ = "fakeframe.tensors"


def tensor(*values, offset=0, dtype="f8"):
    data = np.array(values, dtype)
    new = Tensor(memory.take(data.nbytes, offset), data.shape, dtype)
    call(driver.cuCtxSetCurrent, context())
    fill(new, data)
    return new


def fill(x, data):
    call(driver.cuMemcpyHtoD, x.address, data.tobytes(), data.nbytes)
    call(driver.cuStreamSynchronize, 0)  # the copy of pageable memory may not have arrived


def empty_like(x):
    return Tensor(memory.take(x.nbytes), x.shape, x.dtype)


def module():
    package = types.ModuleType("fakeframe")
    package.Tensor, package.empty_like, package.uint8 = Tensor, empty_like, "u1"
    package.empty = lambda n, dtype, device: Tensor(memory.take(n), (n,), dtype)
    package.strided = "strided"
    package.is_grad_enabled = lambda: False
    package.accelerator = SimpleNamespace(current_stream=lambda device: "here")
    return package


def install(monkeypatch, opened):
    global backend, memory
    backend, memory = opened, Memory()
    monkeypatch.setitem(sys.modules, "fakeframe", module())


@contextmanager
def framework_on_a_stream(monkeypatch):
    """Register the framework, and make a stream current."""
    interop.register("fakeframe", Fake)
    install(monkeypatch, registry.get("cuda"))
    with ag.Stream(backend="cuda") as stream:
        yield
        stream.synchronize()
    interop.unregister("fakeframe")
    memory.free()


# ---- sums, with the addresses of the operands in all kinds of places ---------------------------------


def launch(function, *values, block=False):
    """Launch a kernel whose parameters are bytes, given one by one or as one block."""
    sizes = [ctypes.c_uint(1)] * 3, [ctypes.c_uint(32), ctypes.c_uint(1), ctypes.c_uint(1)]
    where = ctypes.c_uint(0), ctypes.c_void_p(current.handle)
    buffers = [ctypes.create_string_buffer(each, len(each)) for each in values]
    parameters = (ctypes.c_void_p * len(buffers))(*map(ctypes.addressof, buffers))
    extra = None
    if block:
        whole = ctypes.create_string_buffer(b"".join(values), sum(map(len, values)))
        nbytes = ctypes.c_size_t(len(whole))
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(whole), 2, ctypes.addressof(nbytes), None)
        parameters = None
    call(driver.cuCtxSetCurrent, context())
    code = LIBRARY.cuLaunchKernel(ctypes.c_void_p(function), *sizes[0], *sizes[1], *where, parameters, extra)
    assert code == 0, code


def words(*tensors):
    return [struct.pack("<Q", each.address) for each in tensors]


def plus(how, x, y):
    """Return the sum of two tensors of float64."""
    new, known = empty_like(x), kernels()
    n = struct.pack("<i", x.numel())
    if how in ("plus", "kernel", "ncclDevKernel_plus"):
        launch(getattr(known, how), *words(new, x, y), n)
    elif how == "block":
        launch(known.plus, *words(new, x, y), n, block=True)
    elif how == "plus_struct":
        launch(known.plus_struct, struct.pack("<QiiQQ", new.address, x.numel(), 77, x.address, y.address))
    elif how == "plus_packed":
        launch(known.plus_packed, struct.pack("<iQQQ", x.numel(), new.address, x.address, y.address))
    elif how == "plus_from":
        distance = struct.pack("<q", x.address - memory.start)
        launch(known.plus_from, words(new)[0], struct.pack("<Q", memory.start), distance, words(y)[0], n)
    elif how == "plus_table":
        table = Tensor(memory.take(16), (2,), "u8")
        held.append(np.array([x.address, y.address], "u8"))
        backend.copy(backend.as_stream(current.handle), table.address, held[-1], 16)
        launch(known.plus_table, *words(new, table), n)
    elif how == "plus_halves":
        address = words(x)[0]
        launch(known.plus_halves, *words(new), address[:4], address[4:], *words(y), n)
    elif how in ("masked", "randomly_masked"):
        mask = secrets.randbits(48) if how == "randomly_masked" else 0x5A5A_5A5A_5A5A
        masked = struct.pack("<QQ", x.address ^ mask, mask)
        launch(known.plus_masked, *words(new), masked[:8], masked[8:], *words(y), n)
    elif how == "plus_until":
        end = struct.pack("<Q", x.address + x.nbytes)
        launch(known.plus_until, *words(new, x), end, *words(y))
    elif how == "table_in_the_graph":
        table = Tensor(memory.take(16), (2,), "u8")
        launch(known.put_down, *words(table, x, y))
        launch(known.plus_table, *words(new, table), n)
    elif how.startswith("child"):
        in_child(lambda: new.copy_(plus("plus", x, y)), depth=2 if how == "child_of_child" else 1)
    return new


held = []
"""Memory of the host that graphs read."""


def in_child(work, depth):
    """Do some work; in a capture, as a child graph in as many others."""
    status, graph, after, count = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    answers = map(ctypes.byref, (status, ctypes.c_uint64(), graph, after, count))
    outer = ctypes.c_void_p(current.handle)
    called("cuStreamGetCaptureInfo_v2", outer, *answers)
    if not status.value:
        work()
        return
    inner = ctypes.c_void_p()
    called("cuStreamCreate", ctypes.byref(inner), 1)
    current.handle = inner.value
    try:
        called("cuStreamBeginCapture_v2", inner, 2)
        work()
        child = ctypes.c_void_p()
        called("cuStreamEndCapture", inner, ctypes.byref(child))
    finally:
        current.handle = outer.value
        called("cuStreamDestroy_v2", inner)
    for _ in range(depth - 1):
        parent = ctypes.c_void_p()
        called("cuGraphCreate", ctypes.byref(parent), 0)
        called("cuGraphAddChildGraphNode", ctypes.byref(ctypes.c_void_p()), parent, None, 0, child)
        called("cuGraphDestroy", child)
        child = parent
    node = ctypes.c_void_p()
    called("cuGraphAddChildGraphNode", ctypes.byref(node), graph, after, count, child)
    called("cuGraphDestroy", child)
    called("cuStreamUpdateCaptureDependencies", outer, ctypes.byref(node), ctypes.c_size_t(1), 1)


def called(name, *args):
    call(driver.cuCtxSetCurrent, context())
    code = getattr(LIBRARY, name)(*args)
    assert code == 0, (name, code)
