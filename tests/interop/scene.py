"""What the tests of captures with stand-ins share: fixtures, arrays, and what they hold."""

import gc
import sys

import pytest
from cuda.bindings import driver

import accelerator_graph as ag
from accelerator_graph._core import capture_table, ownership, pools, stream_stack
from accelerator_graph.interop import registry
from accelerator_graph.interop import torch as interop_torch
from interop import fake_torch as interop_fake_torch
from interop.fake_torch import torch
from interop.fakes import call, calls, cupy, get_device, install, set_device


@pytest.fixture(name="clean", autouse=True)
def clean_fixture(monkeypatch):
    monkeypatch.setattr(registry, "_made", {})
    for name in registry.BUILTINS:  # the real ones, which other tests have imported
        monkeypatch.delitem(sys.modules, name, raising=False)
    set_device(0)
    cupy().get_default_memory_pool().free_all_blocks()
    calls.clear()
    yield
    gc.collect()
    ownership.drain()
    assert get_device() == 0
    assert not stream_stack.thread.entries
    assert not capture_table.live
    assert not interop_torch._recording
    assert not interop_fake_torch._capturing
    assert not pools._pools


@pytest.fixture(name="torch")
def torch_fixture(monkeypatch):
    return install(monkeypatch, "torch", torch())


@pytest.fixture(name="cupy")
def cupy_fixture(monkeypatch):
    return install(monkeypatch, "cupy", cupy())


class Array:
    def __init__(self, nbytes=64):
        self.nbytes = nbytes
        self.ptr = int(call(driver.cuMemAlloc, nbytes))
        self.clear()

    def clear(self):
        call(driver.cuMemsetD8, self.ptr, 0, self.nbytes)
        call(driver.cuStreamSynchronize, driver.CU_STREAM_LEGACY)  # non-blocking streams do not wait for it

    def __del__(self):
        driver.cuMemFree(self.ptr)


def value(array):
    call(driver.cuCtxSynchronize)
    got = bytearray(1)
    call(driver.cuMemcpyDtoH, got, array.ptr, 1)
    return got[0]


def captured(g, work, **how):
    with ag.graph(g, **how):
        work()
    return g


def filled(cupy, nbytes=64):
    array = cupy.empty(nbytes)
    array.fill(1)
    return array
