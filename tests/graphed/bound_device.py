"""A device whose kernels have parameters in bytes, and a framework with tensors and kernels on it."""

from __future__ import annotations

import ctypes
import itertools
import struct
import sys
from types import SimpleNamespace

import numpy as np

from accelerator_graph.backends.base import NodeParameters, NodeSetter
from accelerator_graph.errors import driver_error
from graphed import fakes
from graphed.fakes import Device, enqueue

ALIGNMENT = 512

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
    ctypes.c_void_p,
    (ctypes.c_size_t,),
    (ctypes.c_void_p,),
)
allocated = []
"""The addresses of all memory of a test: a graph goes on using it, whatever becomes of the arrays."""


def free_all():
    while allocated:
        libc.free(allocated.pop())


def array_at(address, n, dtype="f8"):
    """Return the memory at an address as an array. The caller keeps the memory alive."""
    dtype = np.dtype(dtype)
    return np.frombuffer((ctypes.c_char * (n * dtype.itemsize)).from_address(address), dtype)


def floats(address, n):
    return array_at(address, n)


class Launch:
    """A kernel with its parameters: a function of the blocks."""

    def __init__(self, name, run, blocks, rest=None):
        self.__qualname__ = name
        self.run, self.blocks, self.rest = run, blocks, rest

    def __call__(self):
        self.run(*self.blocks)


class PatchableDevice(Device):
    """The parameters of its kernels can be read and changed."""

    refused: tuple[int, ...] = ()
    """Addresses that it takes in no parameter."""
    changes = 0
    interrupted = 0
    """The number of the change, counted from now on, that an interrupt comes behind."""

    def nodes(self, graph, executable=None):
        listed, edges = super().nodes(graph)
        kernels = [isinstance(each.call[0], Launch) for each in graph.nodes]
        return [
            node._replace(kind="kernel") if kernel else node
            for node, kernel in zip(listed, kernels, strict=True)
        ], edges

    def parameters(self, graph):
        found = super().parameters(graph)
        return [
            NodeParameters("kernel", work.blocks, (work.__qualname__, work.rest))
            if isinstance(work, Launch)
            else known
            for work, known in zip((each.call[0] for each in graph.nodes), found, strict=True)
        ]

    def node_setter(self, graph, executable, *path):
        found = executable.node(path)
        if found is None or not isinstance(found.call[0], Launch):
            return super().node_setter(graph, executable, *path)

        work = found.call[0]
        buffers = [ctypes.create_string_buffer(each, len(each)) for each in work.blocks]

        def apply():
            blocks = tuple(each.raw for each in buffers)
            if any(
                address in self.refused
                for each in blocks
                for (address,) in struct.iter_unpack("<Q", each[: len(each) // 8 * 8])
            ):
                raise driver_error(backend="fakedevice", call="set", code=1, code_name="INVALID_VALUE")
            new = Launch(work.__qualname__, work.run, blocks, work.rest)
            executable.change(path, lambda call: (new, (), {}, None))
            cls = type(self)
            cls.changes, cls.interrupted = cls.changes + 1, cls.interrupted - 1
            if cls.interrupted == 0:
                raise KeyboardInterrupt

        return NodeSetter("kernel", [(ctypes.addressof(each), len(each)) for each in buffers], apply)


class Tensor(fakes.Tensor):
    """A tensor that tells its address, at which an allocator like torch's has put it."""

    def stride(self):
        return tuple(step // self.data.itemsize for step in self.data.strides)

    def data_ptr(self):
        return self.data.ctypes.data

    def element_size(self):
        return self.data.itemsize

    def numel(self):
        return self.data.size

    def is_neg(self):
        return False

    def clone(self):
        return empty_like(self).copy_(self)

    def is_inference(self):
        return False

    def record_stream(self, stream):
        pass

    def is_contiguous(self):
        return self.data.flags.c_contiguous

    def contiguous(self):
        return self if self.is_contiguous() else self.clone()

    def __getitem__(self, where):
        return self._like(self.data[where])

    def view(self, dtype):
        return self._like(self.data.view(dtype))

    def as_strided(self, shape, stride):
        steps = [step * self.data.itemsize for step in stride]
        return self._like(np.lib.stride_tricks.as_strided(self.data, shape, steps))

    def _like(self, data):
        new = type(self)(data)
        new._where = self._where
        return new

    nbytes = property(lambda self: self.data.nbytes)
    ptr = property(lambda self: struct.pack("<Q", self.data_ptr()))
    size = property(lambda self: struct.pack("<I", self.data.size))

    def __add__(self, other):
        new = empty_like(self)
        launch("add", add, new.ptr, self.contiguous().ptr, other.contiguous().ptr, self.size)
        return new

    def __mul__(self, factor):
        new = empty_like(self)
        launch("scale", scale, new.ptr, self.ptr, struct.pack("<d", factor), self.size)
        return new

    def add_(self, other):
        self.written()
        launch("add", add, self.ptr, self.ptr, other.contiguous().ptr, self.size)
        return self


Tensor.__module__ = "fakeframe.tensors"


def aligned(shape, dtype=float, offset=0):
    """Return new memory that lies as an allocator's would, or some bytes behind that."""
    dtype = np.dtype(dtype)
    nbytes = int(np.prod(shape)) * dtype.itemsize
    allocated.append(libc.malloc(nbytes + 2 * ALIGNMENT))
    raw = array_at(allocated[-1], nbytes + 2 * ALIGNMENT, "u1")
    raw[:] = 0xA5
    start = -raw.ctypes.data % ALIGNMENT + offset
    return raw[start : start + nbytes].view(dtype).reshape(shape)


def tensor(*values, offset=0, dtype=float):
    data = aligned(len(values), dtype, offset)
    data[:] = values
    return Tensor(data)


def empty_like(x):
    new = Tensor(aligned(x.data.shape, x.data.dtype))
    new._where = x._where
    return new


def empty(n, dtype, device):
    new = Tensor(aligned(n, dtype))
    new._where = (2, device.ordinal)
    return new


def install(monkeypatch):
    package = sys.modules["fakeframe"]
    for name, value in {
        "Tensor": Tensor,
        "empty": empty,
        "empty_like": empty_like,
        "uint8": np.uint8,
        "accelerator": SimpleNamespace(current_stream=lambda device: None),
    }.items():
        monkeypatch.setattr(package, name, value, raising=False)


# ---- kernels ------------------------------------------------------------------------------------------


def launch(name, run, *blocks, rest=None):
    enqueue(Launch(name, run, blocks, rest))


def number(data):
    return int.from_bytes(data, "little")


def add(out, x, y, n):
    n = number(n)
    floats(number(out), n)[:] = floats(number(x), n) + floats(number(y), n)


def scale(out, x, factor, n):
    n = number(n)
    floats(number(out), n)[:] = floats(number(x), n) * struct.unpack("<d", factor)[0]


noise = itertools.count(0x7F55_0000_0000, 0x1357)


def add_padded(block):
    """With the addresses in a structure, between bytes that nobody has set."""
    _, out, _, x, y, n = struct.unpack("<QQQQQI", block)
    floats(out, n)[:] = floats(x, n) + floats(y, n)


def add_packed(block):
    """With the addresses in a packed structure, not where words begin."""
    n, out, x, y = struct.unpack("<IQQQ", block)
    floats(out, n)[:] = floats(x, n) + floats(y, n)


def add_from_table(out, table, n):
    """With the addresses of the operands in memory."""
    n = number(n)
    x, y = array_at(number(table), 2, "u8")
    floats(number(out), n)[:] = floats(int(x), n) + floats(int(y), n)


def add_from_base(out, base, distance, y, n):
    """With one operand's address as a distance from something else."""
    n = number(n)
    x = number(base) + struct.unpack("<q", distance)[0]
    floats(number(out), n)[:] = floats(x, n) + floats(number(y), n)
