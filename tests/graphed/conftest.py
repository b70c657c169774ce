"""The streams and the device that graphed functions are tested on."""

import pytest

import accelerator_graph as ag
from accelerator_graph.interop import registry as interop
from core.fixtures import stream

__all__ = ["device", "pair", "stream", "torch_stream"]


@pytest.fixture
def device(monkeypatch):
    """The stand-in for a device, with its framework imported."""
    from graphed import fakes  # which needs NumPy

    backend = fakes.opened(monkeypatch, fakes.Device)
    yield backend
    fakes.current.handle = 0
    fakes.modes.update(grad=False, inference=False, autocast=False, dtype="half")
    interop.unregister("fakeframe")
    ag.backends.unregister("fakedevice")


@pytest.fixture
def torch_stream():
    """The current stream, of the CPU backend, on which torch's work is recorded."""
    import torch

    from torch_cpu.framework import taking_part

    torch.manual_seed(1)
    with taking_part(), ag.Stream(backend="cpu") as stream:
        yield stream
        assert ag.current_stream() is stream
        assert not ag.is_current_stream_capturing()


@pytest.fixture
def pair(torch_stream):
    """A module that was captured, and a copy that was not."""
    from graphed.modules import make, net, x_of

    return make(net(), (x_of(),)), net()
