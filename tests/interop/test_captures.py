"""Several frameworks in a capture, also one that fails: stand-ins on the software driver."""

import gc
import os
import sys

import pytest

import lanes

pytestmark = lanes.require("software_cuda")

import accelerator_graph as ag
from accelerator_graph._core import ownership, pools
from accelerator_graph.interop import registry
from core.test_interrupts import Interrupter
from interop import fake_torch as interop_fake_torch
from interop.fake_warp import warp
from interop.fakes import get_device, install
from interop.scene import Array, captured, clean_fixture, cupy_fixture, torch_fixture, value  # noqa: F401
from simulators.cuda.faults import Faults


@pytest.mark.promise("framework-that-raises")
@pytest.mark.parametrize("moment", ["route", "begin", "body", "end"])
def test_after_an_error_nothing_is_routed(cupy, monkeypatch, moment):
    before = cupy.cuda.get_allocator()
    g = ag.Graph()
    if moment == "route":
        monkeypatch.setattr(cupy.cuda, "MemoryPool", None)
    elif moment != "body":
        name = {"begin": "cuStreamBeginCapture", "end": "cuStreamEndCapture"}[moment]
        Faults("libcuda.so.1").fail(name, code=999)
    with pytest.raises((LookupError, TypeError, ag.CaptureError)), ag.graph(g):  # noqa: PT012
        cupy.empty(64)
        if moment == "body":
            raise LookupError
    assert cupy.cuda.get_allocator() == before
    assert cupy.cuda.get_current_stream().ptr == 0
    gc.collect()
    ownership.drain()
    [there] = registry.loaded()
    assert not there._pools
    assert not there._ended
    assert not pools._pools


def test_an_undo_that_raises_loses_no_other(cupy, torch, monkeypatch):
    [there] = [each for each in registry.loaded() if type(each).__name__ == "Torch"]

    def raising():
        raise LookupError("undo")

    monkeypatch.setattr(there, "route", lambda *_: raising)
    before = cupy.cuda.get_allocator()
    g = ag.Graph()
    x = Array()
    with pytest.raises(LookupError, match="undo"), ag.graph(g):
        torch.fill(x, 1)
    assert cupy.cuda.get_allocator() == before
    assert cupy.cuda.get_current_stream().ptr == 0
    assert g.state == "empty"


OURS = ("_core/capture.py", "pools.py", "cupy.py", "warp.py", "cuda_core.py", "numba.py")


@pytest.mark.parametrize("files", [OURS, (*OURS, "torch.py", "streams.py")], ids=["routes", "streams"])
def test_an_interrupt_at_any_line_leaves_no_trace(cupy, torch, monkeypatch, files):
    install(monkeypatch, "warp", warp())
    own = sys.modules["warp"].get_stream().cuda_stream
    at, reached = 0, True
    while reached:
        at += 1
        g, x, s = ag.Graph(), Array(), ag.Stream(backend="cuda")
        interrupter = Interrupter(at, KeyboardInterrupt())

        def trace(frame, event, arg, interrupter=interrupter):
            if os.path.basename(frame.f_code.co_filename) in files:
                return interrupter(frame, event, arg)
            return None

        try:
            sys.settrace(trace)
            with ag.graph(g, stream=s):
                cupy.empty(64).fill(1)
                torch.fill(x, 1)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        reached, where = interrupter.lines >= at, interrupter.where
        interrupter.error.__traceback__ = None  # its frames hold what was under way
        g.reset()
        gc.collect()
        ownership.drain()
        assert cupy.cuda.get_allocator() == cupy.get_default_memory_pool().malloc, where
        assert cupy.cuda.get_current_stream().ptr == 0, where
        assert torch.cuda.current_stream().cuda_stream == 0, where
        assert sys.modules["warp"].get_stream().cuda_stream == own, where
        assert not interop_fake_torch._capturing, where
        assert not interop_fake_torch.pool_uses, where
        assert get_device() == 0, where
    assert at > 100


def test_torch_and_cupy_in_one_graph(torch, cupy):
    x, kept = Array(), []

    def work():
        torch.fill(x, 5)
        kept.append(cupy.empty(64))
        kept[0].fill(6)
        torch.rand(x)

    g = captured(ag.Graph(keep_graph=True), work)
    assert g.num_nodes == 3
    g.replay()
    assert (value(x), value(kept[0])) == (7, 6)
