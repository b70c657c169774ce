"""A device with handles, made of the CPU backend, and a framework like torch with arrays on it."""

from __future__ import annotations

import sys
import threading
import types

import numpy as np

from accelerator_graph.backends.base import Capability
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.interop.base import Framework

streams = {}
"""By handle. The default stream's is 0."""
handles = {}


class Device(CpuBackend):
    """The CPU backend, with streams that have handles."""

    def capabilities(self, device):
        return {*super().capabilities(device), Capability.HANDLES}

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


DEVICE = []
"""The backend, once it was opened."""


class Place:
    type = "fake"

    def __eq__(self, other):
        return isinstance(other, Place)

    def __hash__(self):
        return 1


class Tensor:
    """Like torch's."""

    def __init__(self, data, requires_grad=False, ordinal=0, device=2):
        self.data = data
        self.dtype = data.dtype
        self.device = Place()
        self.requires_grad = requires_grad
        self._version = 0
        self._where = (device, ordinal)
        self.layout = "strided"

    shape = property(lambda self: self.data.shape)

    def stride(self):
        return self.data.strides

    def detach(self):
        new = Tensor(self.data)
        new._where = self._where
        return new

    def clone(self):
        new = empty_like(self)
        return new.copy_(self)

    def copy_(self, other):
        self._version += 1
        calls.append(("copy", current.handle))
        enqueue(np.copyto, self.data, other.data)
        return self

    def add_(self, other):
        self._version += 1
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
    new = Tensor(np.full_like(x.data, -1))
    new._where = x._where
    return new


def copy_all(targets, sources):
    calls.append(("all", current.handle))
    for target, source in zip(targets, sources, strict=True):
        target._version += 1
        enqueue(np.copyto, target.data, source.data)


def module(name):
    """A framework's package, as somebody has imported it."""
    package = types.ModuleType(name)
    package.empty_like = empty_like
    package._foreach_copy_ = copy_all
    package.strided = "strided"
    package.is_grad_enabled = lambda: modes["grad"]
    package.is_inference_mode_enabled = lambda: modes["inference"]
    package.is_autocast_enabled = lambda: modes["autocast"]
    package.get_autocast_dtype = lambda kind: modes["dtype"]
    return package


Tensor.__module__ = "fakeframe.tensors"


class Strange(Tensor):
    """The same, of another framework."""


Strange.__module__ = "otherframe"


class Block:
    """Device memory of which no copy can be made."""

    def __init__(self, data):
        self.data = data

    @property
    def __cuda_array_interface__(self):
        return self.data.__array_interface__


def install(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, module(name))
