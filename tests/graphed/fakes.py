"""A device with handles, built on the CPU backend, and a framework like torch with arrays on it."""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from typing import ClassVar

import numpy as np

from accelerator_graph.backends import registry as backends
from accelerator_graph.backends.base import HasHandles
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.interop import registry as interop
from accelerator_graph.interop.base import Framework

streams = {}
"""Streams by their handles. The default stream has handle 0."""
handles = {}
ordinals = {}


class Device(CpuBackend, HasHandles):
    """The CPU backend, with streams that have handles, on two devices."""

    device_count = 2

    def create_stream(self, device, **options):
        stream = super().create_stream(0, **options)
        ordinals[stream] = device
        return stream

    def device_of(self, stream):
        return ordinals.get(stream, 0)

    def handle_int(self, stream):
        if stream not in handles:
            handles[stream] = len(handles) + 1000
            streams[handles[stream]] = stream
        return handles[stream]

    def as_stream(self, obj):
        if obj == 0 and 0 not in streams:
            streams[0] = self.create_stream(0)
            handles[streams[0]] = 0
        return streams.get(obj)


class Current(threading.local):
    handle = 0


current = Current()
modes = {"grad": False, "inference": False, "autocast": False, "dtype": "half"}
calls = []


class Fake(Framework):
    """Its operations run on its current stream."""

    api_version = 1
    name = "fakeframe"

    def backend(self):
        return "fakedevice"

    def current_stream(self, device=None):
        return current.handle, 0

    def clear_results(self):
        casts.clear()

    def use_stream(self, handle, device):
        before, current.handle = current.handle, handle
        calls.append(("use", handle))

        def undo():
            current.handle = before

        return undo


class Other(Fake):
    """A second framework, which follows entered streams too."""

    name = "otherframe"
    mine = Current()

    def current_stream(self, device=None):
        return self.mine.handle, 0

    def use_stream(self, handle, device):
        before, self.mine.handle = self.mine.handle, handle

        def undo():
            self.mine.handle = before

        return undo


def enqueue(work, *args):
    native = streams.get(current.handle)
    DEVICE[0].launch(native, work, *args)


def enqueue_copy(address, source):
    """Enqueue a copy of a NumPy array to an address."""
    DEVICE[0].copy(streams.get(current.handle), address, source, source.nbytes)


DEVICE = []
"""The backend, once it is open."""


class Place:
    type = "fake"

    def __init__(self, ordinal):
        self.ordinal = ordinal

    def __eq__(self, other):
        return isinstance(other, Place) and self.ordinal == other.ordinal

    def __hash__(self):
        return self.ordinal


class Tensor:
    """A tensor like torch's."""

    def __init__(self, data, requires_grad=False, ordinal=0, device=2):
        self.data = data
        self.dtype = data.dtype
        self.requires_grad = requires_grad
        self._writes = None if modes["inference"] else 0
        self._where = (device, ordinal)
        self.layout = "strided"

    shape = property(lambda self: self.data.shape)
    device = property(lambda self: Place(self._where[1]))

    @property
    def _version(self):
        if self._writes is None:
            raise RuntimeError("Inference tensors do not track version counter.")
        return self._writes

    def written(self):
        if self.requires_grad:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        if self._writes is not None:
            self._writes += 1

    def stride(self):
        if self.layout == "sparse":
            raise RuntimeError("sparse tensors do not have strides")
        return self.data.strides

    def requires_grad_(self):
        self.requires_grad = True

    def detach(self):
        new = type(self)(self.data)
        new._where = self._where
        return new

    def clone(self):
        new = empty_like(self)
        return new.copy_(self)

    def copy_(self, other):
        self.written()
        calls.append(("copy", current.handle))
        enqueue(np.copyto, self.data, other.data)
        return self

    def add_(self, other):
        self.written()
        enqueue(np.add, self.data, other.data, self.data)
        return self

    def __add__(self, other):
        new = empty_like(self)
        enqueue(np.add, self.data, getattr(other, "data", other), new.data)
        return new

    def __dlpack_device__(self):
        return self._where

    def tolist(self):
        DEVICE[0].synchronize(streams[current.handle])
        return self.data.tolist()


def full(n, value, **options):
    return Tensor(np.full(n, float(value)), **options)


def empty_like(x):
    new = type(x)(np.full_like(x.data, -1))
    new._where = x._where
    return new


def copy_all(targets, sources):
    calls.append(("all", current.handle))
    for target, source in zip(targets, sources, strict=True):
        target.written()
        enqueue(np.copyto, target.data, source.data)


@contextlib.contextmanager
def inference_mode(mode):
    before, modes["inference"] = modes["inference"], mode
    yield
    modes["inference"] = before


casts = {}
"""The cache of autocast."""


def module(name):
    """A framework's package, for `sys.modules`."""
    package = types.ModuleType(name)
    package.empty_like = empty_like
    package._foreach_copy_ = copy_all
    package.strided = "strided"
    package.inference_mode = inference_mode
    package.is_grad_enabled = lambda: modes["grad"]
    package.is_inference_mode_enabled = lambda: modes["inference"]
    package.is_autocast_enabled = lambda kind: modes["autocast"] and kind == Place.type
    package.get_autocast_dtype = lambda kind: modes["dtype"]
    return package


Tensor.__module__ = "fakeframe.tensors"


class Strange(Tensor):
    """A tensor of another framework."""


Strange.__module__ = "otherframe"


class Grid:
    """An array like CuPy's: its work goes to the current stream of the current device."""

    __hash__ = None
    __array_ufunc__ = None

    def __init__(self, data, ordinal=0):
        self.data = data
        self.dtype = data.dtype
        self.shape = data.shape
        self.strides = data.strides
        self.ordinal = ordinal

    @property
    def __cuda_array_interface__(self):
        return self.data.__array_interface__

    def __dlpack_device__(self):
        return 2, self.ordinal

    def __setitem__(self, where, other):
        Grids.enqueue(np.copyto, self.data, other.data)

    def __add__(self, other):
        new = Grid(np.zeros_like(self.data), self.ordinal)
        Grids.enqueue(np.add, self.data, other.data, new.data)
        return new

    def add_one(self):
        Grids.enqueue(np.add, self.data, 1, self.data)

    def view(self, dtype):
        return Grid(self.data.view(dtype), self.ordinal)

    def __ne__(self, other):
        new = Grid(np.zeros(self.shape, bool), self.ordinal)
        Grids.enqueue(np.not_equal, self.data, other.data, new.data)
        return new


Grid.__module__ = "gridframe"


class Grids(Framework):
    """The framework of those arrays."""

    api_version = 1
    device = 0
    current: ClassVar = {}
    used: ClassVar = []

    def backend(self):
        return "fakedevice"

    def current_stream(self, device=None):
        device = Grids.device if device is None else device
        return self.current.get(device, 0), device

    def use_stream(self, handle, device):
        before = Grids.device, self.current.get(device, 0)
        Grids.device, self.current[device] = device, handle

        def undo():
            Grids.device, self.current[device] = before

        return undo

    @classmethod
    def enqueue(cls, work, *args):
        cls.used.append(cls.current.get(cls.device, 0))
        DEVICE[0].launch(streams[cls.used[-1]], work, *args)


class Block:
    """Device memory that can't be copied."""

    def __init__(self, data):
        self.data = data

    @property
    def __cuda_array_interface__(self):
        return self.data.__array_interface__


def install(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, module(name))


def opened(monkeypatch, kind):
    """Make a device and its framework known, and return the backend of this kind, just opened."""
    backends.register("fakedevice", kind)
    interop.register("fakeframe", Fake)
    install(monkeypatch, "fakeframe")
    backend = backends.get("fakedevice")
    DEVICE[:] = [backend]
    for each in (streams, handles, calls, casts):
        each.clear()
    backend.as_stream(0)
    return backend


def install_grids(monkeypatch):
    package = types.ModuleType("gridframe")
    package.empty_like = lambda x: Grid(np.zeros_like(x.data), x.ordinal)
    package.copyto = lambda x, y, where: Grids.enqueue(np.copyto, x.data, y.data, "same_kind", where.data)
    monkeypatch.setitem(sys.modules, "gridframe", package)
    Grids.device, Grids.current = 0, {}
