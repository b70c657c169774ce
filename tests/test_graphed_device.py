"""`graphed` over a framework's arrays on a device: a stand-in for both, so that every line runs anywhere."""

from __future__ import annotations

import graphed_fakes as fakes
import numpy as np
import pytest
from graphed_fakes import Block, Tensor, calls, current, full, modes

import accelerator_graph as ag
from accelerator_graph._arrays import family_of
from accelerator_graph.backends import registry
from accelerator_graph.backends.cuda import CudaBackend
from accelerator_graph.interop import registry as interop

pytestmark = pytest.mark.skipif(
    CudaBackend.probe().usable,
    reason="the stand-ins are for machines without a GPU",
)


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """The device, with its framework imported."""
    ag.backends.register("fakedevice", fakes.Device)
    interop.register("fakeframe", fakes.Fake)
    fakes.install(monkeypatch, "fakeframe")
    backend = registry.get("fakedevice")
    fakes.DEVICE[:] = [backend]
    fakes.streams.clear()
    fakes.handles.clear()
    backend.as_stream(0)
    calls.clear()
    yield backend
    assert current.handle == 0
    for name in modes:
        modes[name] = "half" if name == "dtype" else False
    interop.unregister("fakeframe")
    ag.backends.unregister("fakedevice")


@pytest.fixture
def other(monkeypatch):
    """A second framework."""
    interop.register("otherframe", fakes.Other)
    fakes.install(monkeypatch, "otherframe")
    yield
    interop.unregister("otherframe")


def stream_of(device):
    """A stream that the framework made, by its handle."""
    return device.handle_int(device.create_stream(0))


@pytest.mark.parametrize("outputs", ["copy", "static"])
def test_on_the_default_stream(outputs):
    @ag.graphed(warmup=2, outputs=outputs)
    def f(x, y):
        return x + y

    results = []
    for i in range(6):
        results.append(f(full(3, i), full(3, 10)))
        assert results[-1].tolist() == [10.0 + i] * 3
    assert f.cache_info() == ag.CacheInfo(4, 2, 1, 0, 1, 16)
    assert (results[-1] is results[-2]) is (outputs == "static")


def test_the_inputs_are_copied_at_once_where_they_are_alike():
    f = ag.graphed(lambda x, y: x + y, warmup=0, outputs="static")
    x, y = full(3, 1), full(3, 2)
    f(x, y)
    calls.clear()
    f(x, y)
    assert calls == [("all", 0)]
    one = ag.graphed(lambda x: x + 1, warmup=0, outputs="static")
    one(x)
    calls.clear()
    one(x)
    assert calls == [("copy", 0)]


def test_a_static_input_is_not_copied_onto_itself():
    kept = []

    @ag.graphed(warmup=0, outputs="static")
    def f(x, y):
        kept[:] = [x, y]
        return x + y

    f(full(3, 1), full(3, 2)).tolist()
    kept[0].data[:] = 5
    calls.clear()
    assert f(kept[0], full(3, 3)).tolist() == [8.0] * 3
    assert calls == [("copy", 0)]


def test_calls_follow_the_frameworks_stream(device):
    f = ag.graphed(lambda x: x + 1, warmup=0)
    for handle in (0, stream_of(device), stream_of(device), 0):
        current.handle = handle
        try:
            assert f(full(2, handle)).tolist() == [handle + 1.0] * 2
        finally:
            current.handle = 0
    with ag.Stream(backend="fakedevice") as stream:
        y = f(full(2, 7))
        assert y.tolist() == [8.0] * 2
        assert current.handle == stream.handle
    assert f.cache_info().captures == 1


def test_what_is_written_reaches_the_caller():
    @ag.graphed(warmup=1)
    def f(x, y):
        x.add_(y)

    x = full(2, 0)
    for _ in range(4):
        f(x, full(2, 3))
    assert x.tolist() == [12.0] * 2


def test_gradients():
    f = ag.graphed(lambda x: x + 1, warmup=0)
    modes["grad"] = True
    with pytest.raises(ValueError, match="argument x requires grad"):
        f(full(2, 0, requires_grad=True))
    f(full(2, 0))
    modes["grad"] = False
    f(full(2, 0, requires_grad=True))
    assert f.cache_info().captures == 2


def test_outputs_are_detached():
    def f(x):
        y = x + 1
        y.requires_grad = True
        return y

    for outputs in ("copy", "static"):
        assert not ag.graphed(f, warmup=0, outputs=outputs)(full(2, 0)).requires_grad


def test_modes_are_part_of_the_signature():
    f = ag.graphed(lambda x: x + 1, warmup=0)
    changes = [("grad", True), ("inference", True), ("autocast", True), ("dtype", "bfloat")]
    for count, (name, value) in enumerate(changes, 1):
        f(full(2, 0))
        assert f.cache_info().captures == count
        modes[name] = value
        f(full(2, 0))
        assert f.cache_info().captures == count + 1
    bucket = ag.graphed(lambda x: x + 1, warmup=0, key=lambda x: 1)
    bucket(full(2, 0))
    modes["autocast"] = False
    bucket(full(2, 0))
    assert bucket.cache_info().captures == 2


def test_arrays_in_the_wrong_place():
    f = ag.graphed(lambda x, more=None: x + 1, warmup=0)
    with pytest.raises(ValueError, match="argument x is on device 1 and the current stream on device 0"):
        f(full(2, 0, ordinal=1))
    with pytest.raises(TypeError, match=r"argument more\['a'\] is an array in host memory"):
        f(full(2, 0), {"a": np.ones(3)})
    with pytest.raises(TypeError, match="argument x is an array in host memory"):
        f(full(2, 0, device=1))
    sparse = full(2, 0)
    sparse.layout = "sparse"
    with pytest.raises(TypeError, match="argument x is not a strided array"):
        f(sparse)
    assert f.cache_info().captures == 0


def test_an_output_on_the_host_stays_what_it_was():
    array = np.ones(3)
    f = ag.graphed(lambda x: (x + 1, array), warmup=0)
    for _ in range(2):
        assert f(full(2, 0))[1] is array


def test_memory_that_can_not_be_copied_is_read_where_it_is():
    def f(block):
        out = full(2, 0)
        fakes.enqueue(np.add, block.data, 1, out.data)
        return out

    f = ag.graphed(f, warmup=0)
    one, two = Block(np.zeros(2)), Block(np.full(2, 5.0))
    for i in range(3):
        one.data[:] = i
        assert f(Block(one.data)).tolist() == [i + 1.0] * 2
    assert f.cache_info().captures == 1
    assert f(two).tolist() == [6.0] * 2
    assert f.cache_info().captures == 2


def test_arrays_of_a_package_that_takes_no_part(monkeypatch):
    class Foreign:
        __hash__ = None
        __array_ufunc__ = None
        __cuda_array_interface__ = np.ones(2).__array_interface__

    Foreign.__module__ = "foreignframe.arrays"
    fakes.install(monkeypatch, "foreignframe")
    family = family_of(Foreign())
    assert family.kind == "place"
    monkeypatch.setattr(interop, "names", lambda: ["foreignframe"])
    assert family_of(Foreign()).kind == "array"


def test_two_frameworks(other, device):
    def make(value):
        return fakes.Strange(np.full(2, float(value)))

    f = ag.graphed(lambda x, y: x + y, warmup=0)
    current.handle = handle = stream_of(device)
    try:
        for i in range(3):
            calls.clear()
            assert f(full(2, i), make(i)).tolist() == [2.0 * i] * 2
            assert calls[0] == ("use", handle)
            assert fakes.Other.mine.handle == 0
    finally:
        current.handle = 0
    assert f.cache_info().captures == 1


def test_a_stream_that_may_be_destroyed_is_marked(other, device):
    def make(value):
        return fakes.Strange(np.full(2, float(value)))

    f = ag.graphed(lambda x, y: x + y, warmup=0)
    current.handle = first = stream_of(device)
    f(full(2, 1), make(1))
    f(full(2, 1), make(1))
    native = fakes.streams[first]
    current.handle = 0
    record = device.record_event

    def recording(stream):
        assert stream is not native, "that stream may be gone"
        return record(stream)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakes.Device, "record_event", lambda self, stream: recording(stream))
        assert f(full(2, 2), make(2)).tolist() == [4.0] * 2
        f.clear()


def test_the_current_stream_of_a_foreign_capture(device):
    f = ag.graphed(lambda x: x + 1, warmup=0)
    f(full(2, 0))
    current.handle = handle = stream_of(device)
    try:
        token = device.capture_begin(fakes.streams[handle], "default")
        y = f(full(2, 3))
        graph = device.capture_end(token)
    finally:
        current.handle = 0
    assert device.node_count(graph) == 1
    assert isinstance(y, Tensor)
    assert f.cache_info().replays == 1
