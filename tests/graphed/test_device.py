"""`graphed` over a framework's arrays on a device: a stand-in for both, so that every line runs anywhere."""

import gc
import sys
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._arrays import arrays
from accelerator_graph._arrays.arrays import array_type_of
from accelerator_graph._graphed.call_order import CallOrder
from accelerator_graph.interop import registry as interop
from graphed import fakes
from graphed.fakes import Block, Grid, Grids, Tensor, calls, casts, current, full, modes
from graphed.functions import LIMIT


@pytest.fixture(autouse=True)
def current_stream_is_restored(device):
    yield
    assert current.handle == 0


@pytest.fixture
def other(monkeypatch):
    """A second framework."""
    interop.register("otherframe", fakes.Other)
    fakes.install(monkeypatch, "otherframe")
    yield
    interop.unregister("otherframe")


def stream_of(device):
    """Return the handle of a stream that the framework made."""
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


def test_a_static_input_that_is_written_is_not_copied_onto_itself():
    kept = []

    @ag.graphed(warmup=0, outputs="static")
    def f(x, y):
        kept[:] = [x, y]
        x.copy_(y)

    f(x := full(3, 1), full(3, 2))
    assert x.tolist() == [2.0] * 3
    calls.clear()
    f(kept[0], full(3, 3))
    assert kept[0].tolist() == [3.0] * 3
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


def test_what_is_written_in_inference_mode_reaches_the_caller():
    f = ag.graphed(lambda x: x.add_(full(1, 1)) and None, warmup=0)
    modes["inference"] = True
    x = full(1, 0)
    for _ in range(3):
        f(x)
    assert x.tolist() == [3.0]


def test_no_cast_of_autocasts_is_taken_from_outside_or_left_behind():
    @ag.graphed(warmup=1)
    def f(x):
        seen.append(casts.setdefault("weight", len(seen)))
        return x + 1

    seen = []
    for i in range(3):
        f(full(2, i))
    assert seen == [0, 1]
    assert casts == {}


def test_gradients():
    f = ag.graphed(lambda x: x + 1, warmup=0)
    modes["grad"] = True
    with pytest.raises(ValueError, match="argument x requires grad"):
        f(full(2, 0, requires_grad=True))
    f(full(2, 0))
    modes["grad"] = False
    f(full(2, 0, requires_grad=True))
    assert f.cache_info().captures == 2


def test_an_argument_that_is_made_to_require_grad():
    @ag.graphed(warmup=0)
    def f(x, y):
        x.requires_grad_()
        return x + y

    for i in range(3):
        assert f(full(2, i), full(2, 1)).tolist() == [i + 1.0] * 2


@pytest.mark.parametrize("which", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_several_arguments_that_are_made_to_require_grad(which):
    @ag.graphed(warmup=0)
    def f(*xs):
        for i in which:
            xs[i].requires_grad_()
        return xs[0] + xs[1] + xs[2]

    for i in range(3):
        assert f(full(2, i), full(2, 10), full(2, 100)).tolist() == [i + 110.0] * 2
    (recorded,) = f._cache.graphs.values()
    assert [each.requires_grad for each in recorded.inputs.arrays] == [False] * 3


@pytest.mark.parametrize("own", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_static_arrays_among_those_that_are_copied_together(own):
    """What copies several arrays at once is not told to copy one to itself."""
    kept = []

    @ag.graphed(warmup=0)
    def f(*xs):
        kept[:] = xs
        return xs[0] + xs[1] + xs[2]

    assert f(full(2, 1), full(2, 2), full(2, 4)).tolist() == [7.0] * 2
    statics = [*kept]
    for value in (10, 20):
        arguments = [statics[i] if i in own else full(2, value + i) for i in range(3)]
        want = sum(each.tolist()[0] for each in arguments)
        calls.clear()
        assert f(*arguments).tolist() == [want] * 2
        ran = [name for name, _ in calls if name in ("all", "copy")]
        assert ran == ["copy"] * (3 - len(own) + 1)  # and the result


def test_outputs_are_detached():
    def f(x):
        y = x + 1
        y.requires_grad = True
        return y

    for outputs in ("copy", "static"):
        assert not ag.graphed(f, warmup=0, outputs=outputs)(full(2, 0)).requires_grad


@pytest.mark.promise("modes-in-the-signature")
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
    with pytest.raises(TypeError, match=r"argument more\['a'\] is in host memory"):
        f(full(2, 0), {"a": np.ones(3)})
    with pytest.raises(TypeError, match="argument x is in host memory"):
        f(full(2, 0, device=1))
    sparse = full(2, 0)
    sparse.layout = "sparse"
    with pytest.raises(TypeError, match=r"argument x is not a strided array .*have strides"):
        f(sparse)
    sparse.layout = "mkldnn"
    with pytest.raises(TypeError, match="argument x is not a strided array"):
        f(sparse)
    assert f.cache_info().captures == 0


def test_an_output_on_the_host():
    array = full(2, 0, device=1)

    def f(x):
        array.copy_(x + 1)
        return array

    with pytest.raises(TypeError, match="no call can return a new one; return it there"):
        ag.graphed(f, warmup=0)(full(2, 0))
    static = ag.graphed(f, warmup=0, outputs="static")
    assert static(full(2, 0)) is static(full(2, 4)) is array
    assert array.tolist() == [5.0] * 2


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
    assert array_type_of(Foreign()).kind == "place"
    monkeypatch.setattr(interop, "names", lambda: ["foreignframe"])
    assert array_type_of(Foreign()).kind == "array"


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


@pytest.mark.promise("stream-of-a-call-may-go")
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
        f.cache_clear()


@pytest.mark.parametrize("handle", [2, None])
def test_the_same_handle_may_be_another_stream(device, handle):
    f = ag.graphed(lambda x: x + 1, warmup=0)
    handle = handle or stream_of(device)
    fakes.streams[handle] = first = device.create_stream(0)
    fakes.handles[first] = current.handle = handle
    try:
        f(full(2, 1))
        waits, wait = [], device.wait_event
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(device, "wait_event", lambda *pair: (waits.append(pair[0]), wait(*pair)))
            f(full(2, 1))
            assert waits == [first]
            current.handle = 0
            f(full(2, 1))
            f(full(2, 1))
            assert waits == [first, fakes.streams[0]]
    finally:
        current.handle = 0


def test_the_default_streams_of_two_devices_without_arrays(device):
    counts = [np.zeros(1), np.zeros(1)]

    @ag.graphed(warmup=0)
    def f():
        stream = ag.current_stream()
        stream.launch(np.add, counts[stream.device], 1, counts[stream.device])

    for _ in range(3):
        for ordinal in (0, 1):
            with ag.Stream(ordinal, backend="fakedevice") as stream:
                f()
                stream.synchronize()
    with ag.Stream(backend="cpu") as stream:
        f()
        stream.synchronize()
    assert [each[0] for each in counts] == [4.0, 3.0]
    assert f.cache_info().captures == 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakes.Fake, "current_stream", lambda self, device=None: None)
        with pytest.raises(ag.CaptureError, match="no stream is current"):
            f()


def test_a_graph_for_each_of_two_devices():
    f = ag.graphed(lambda x: x + 1, warmup=0)
    for i in range(3):
        for ordinal in (0, 1):
            with ag.Stream(ordinal, backend="fakedevice"), pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    fakes.Fake, "current_stream", lambda self, device=None, n=ordinal: (current.handle, n)
                )
                x = full(2, i, ordinal=ordinal)
                assert f(x).tolist() == [i + 1.0] * 2
    assert f.cache_info().captures == 2
    assert len({each.graph.pool() for each in f._cache.graphs.values()}) == 2


def test_arrays_on_another_device_than_the_current_one(device, monkeypatch):
    interop.register("gridframe", Grids)
    fakes.install_grids(monkeypatch)
    monkeypatch.setattr(fakes.Fake, "backend", lambda self: None)
    try:
        there = device.create_stream(1)
        Grids.current[1] = device.handle_int(there)
        Grids.current[0] = device.handle_int(device.create_stream(0))
        Grids.device = 1
        f = ag.graphed(lambda x, y: x + y, warmup=0)
        for here in (1, 0, 0, 1):
            Grids.device = here
            Grids.used.clear()
            y = f(Grid(np.ones(2), 1), Grid(np.full(2, 3.0), 1))
            device.synchronize(there)
            assert y.data.tolist() == [4.0] * 2
            assert Grids.used[-3:] == [Grids.current[1]] * 3
            assert Grids.device == here
        assert f.cache_info().captures == 1
    finally:
        interop.unregister("gridframe")


def test_static_arrays_are_there_until_the_last_run_is_done(device):
    f = ag.graphed(lambda x: x + 1, warmup=0)
    f(full(2, 1))
    (recorded,) = f._cache.graphs.values()
    static = weakref.ref(recorded.inputs.arrays[0])
    del recorded
    current.handle = handle = stream_of(device)
    try:
        f(full(2, 1))
        gate, freed = threading.Event(), []
        device.launch(fakes.streams[handle], gate.wait, LIMIT)
        f(full(2, 2))
    finally:
        current.handle = 0
    del f
    gc.collect()
    assert static() is not None
    ag.Stream(backend="cpu")  # any call destroys what is due
    assert static() is None
    device.launch(fakes.streams[0], freed.append, device.query(fakes.streams[handle]))
    assert not device.query(fakes.streams[0])  # where the memory is used again
    gate.set()
    device.synchronize(fakes.streams[0])
    assert freed == [False]


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
    assert len(device.nodes(graph)[0]) == 1
    assert isinstance(y, Tensor)
    assert f.cache_info().replays == 1


def expanded(value):
    """A tensor whose elements share one place in memory."""
    return Tensor(np.lib.stride_tricks.as_strided(np.full(1, float(value)), (3,), (0,)))


def test_an_argument_whose_elements_share_memory():
    f = ag.graphed(lambda x: (x, x + 1), warmup=1)
    for i in range(3):
        x = expanded(i)
        same, y = f(x)
        assert same is x
        assert y.tolist() == [i + 1.0] * 3
    g = ag.graphed(lambda x: x.add_(full(3, 1)), warmup=0)
    with pytest.raises(ValueError, match="argument x is written by the graphed function"):
        g(expanded(0))
    assert g.cache_info().captures == 0


def test_a_call_waits_for_the_one_before_and_not_only_for_an_older_one(device):
    f = ag.graphed(lambda x: x + 1, warmup=0, outputs="static")
    current.handle = stream_of(device)  # which may be destroyed, so the end of the call is marked
    try:
        f(full(2, 1))
    finally:
        current.handle = 0
    one, two = ag.Stream(backend="fakedevice"), ag.Stream(backend="fakedevice")
    gate = threading.Event()
    with one:
        one.launch(gate.wait, LIMIT)
        f(full(2, 5))
    with two:
        y = f(full(2, 7))
    try:
        assert not two.query()
    finally:
        gate.set()
    two.synchronize()
    assert y.data.tolist() == [8.0] * 2


def test_an_empty_capture_is_warned_of_where_other_libraries_may_enqueue():
    f = ag.graphed(lambda x: x, warmup=0)
    x = full(2, 3)
    with pytest.warns(ag.EmptyGraphWarning, match="recorded nothing") as found:
        assert f(x) is x
    assert [each.filename for each in found] == [__file__]
    assert f(x) is x
    assert f.cache_info() == ag.CacheInfo(2, 0, 1, 0, 1, 16)


def test_static_arrays_are_released_behind_the_last_call(device):
    """Their memory is used again in the order of the stream that they were made on."""
    one, two = ag.Stream(backend="fakedevice"), ag.Stream(backend="fakedevice")
    f, gate = ag.graphed(lambda x: x + 1, warmup=0, outputs="static"), threading.Event()
    with one:
        f(full(2, 0))
        one.synchronize()
    with two:
        f(full(2, 0))
        two.launch(gate.wait, LIMIT)
        f(full(2, 0))
    assert one.query()
    del f
    gc.collect()
    ag.Stream(backend="fakedevice").close()  # any call does what is due
    assert not one.query()
    gate.set()
    one.synchronize()


@pytest.mark.parametrize("marked", [True, False])
def test_no_stream_waits_for_a_call_on_another_backend(marked):
    order, gate = CallOrder(), threading.Event()
    with ag.Stream(backend="fakedevice") as here, ag.Stream(backend="cpu") as there:
        here.launch(gate.wait, LIMIT)
        order.move_to(here)
        if marked:
            order.mark_end()
        order.wait(there)
        there.synchronize()
        gate.set()


@pytest.mark.promise("dropped-arrays-outlive-runs")
def test_what_arrays_held_before_is_there_until_the_last_run_is_done(device, monkeypatch):
    """As the static arrays are."""
    fakes.install_grids(monkeypatch)
    interop.register("gridframe", Grids)
    try:
        f = ag.graphed(lambda x, y: x + y, warmup=0)
        f(Grid(np.ones(2)), Grid(np.ones(2)))
        (recorded,) = f._cache.graphs.values()
        before = [weakref.ref(each) for each in recorded.inputs.merged.values()]
        statics = [weakref.ref(each) for each in recorded.inputs.arrays]
        assert len(before) == len(statics) == 2
        del recorded, f
        gc.collect()
        kept = [each() is not None for each in before + statics]
        assert kept == [True] * 4
        ag.Stream(backend="cpu")  # any call destroys what is due
        assert [each() for each in before + statics] == [None] * 4
    finally:
        device.synchronize(fakes.streams[0])
        interop.unregister("gridframe")


# ---- types of arrays -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [["fakeframe"], ["otherframe"], ["otherframe", "fakeframe", "otherframe"], []]
)
def test_the_frameworks_of_arrays(other, names):
    kinds = {"fakeframe": Tensor, "otherframe": fakes.Strange}
    types = [array_type_of(kinds[name](np.ones(1))) for name in names]
    foreign = array_type_of(np.ones(1))
    packages, frameworks = arrays.frameworks_of([*types, foreign], "fakedevice")
    assert packages == {*names, "numpy"}
    assert [each.name for each in frameworks] == sorted(set(names))
    assert arrays.frameworks_of(types, "cpu") == ({*names}, [])


@pytest.mark.parametrize("tracked", [(), (0,), (1,), (0, 1)])
def test_copies_on_the_thread_of_a_stream_have_no_gradients(tracked):
    """It has grad modes of its own."""
    given = [full(1, i) for i in range(2)]
    for i in tracked:
        given[i].requires_grad = True
    found = []
    arrays.detaching(lambda *each: found.extend(each))(*given)
    assert [each.requires_grad for each in found] == [False] * 2
    assert [each.data is x.data for each, x in zip(found, given, strict=True)] == [True] * 2
    assert [each is x for each, x in zip(found, given, strict=True)] == [i not in tracked for i in range(2)]


def test_copies_are_made_at_once_or_in_the_order_of_a_stream(stream):
    order, free = [], threading.Event()
    arrays.on_host(stream, free.wait, 60)
    arrays.on_host(stream, order.append, "on the host")
    arrays.on_device(stream, order.append, "on the device")
    free.set()
    stream.synchronize()
    assert order == ["on the device", "on the host"]


@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda x: setattr(x, "layout", "sparse"), "is not a strided array"),
        (lambda x: setattr(x, "requires_grad", True), "requires grad"),
        (lambda x: setattr(x, "_where", (2, 1)), "is on device 1"),
        (lambda x: setattr(x, "_where", (1, 0)), "is in host memory"),
    ],
)
def test_the_argument_that_is_wrong_is_called_by_its_name(device, wrong, change, why):
    given = [full(1, 0), full(1, 1)]
    modes["grad"] = True
    types = [array_type_of(each) for each in given]
    with ag.Stream(backend="fakedevice") as current_one:
        arrays.check_arguments(given, types, ["x", "y"], current_one)
        change(given[wrong])
        with pytest.raises((TypeError, ValueError), match=f"argument {'xy'[wrong]} {why}"):
            arrays.check_arguments(given, types, ["x", "y"], current_one)


def test_another_tensor_with_the_memory_of_one(monkeypatch):
    """Through DLPack where the package has that and the type is known to it; else a detached one."""
    x = full(2, 1, requires_grad=True)
    kind = array_type_of(x)
    plain = arrays.alias(x, kind)
    assert (plain is x, plain.data is x.data, plain.requires_grad) == (False, True, False)
    through = SimpleNamespace(to_dlpack=lambda x: ("capsule", x), from_dlpack=lambda x: ("made of", x))
    monkeypatch.setattr(kind.package, "utils", SimpleNamespace(dlpack=through), raising=False)
    made, (capsule, detached) = arrays.alias(x, kind)
    assert (made, capsule, detached.requires_grad) == ("made of", "capsule", False)
    assert detached.data is x.data
    for error in (BufferError, RuntimeError):

        def refuse(x, error=error):
            raise error

        through.to_dlpack = refuse
        assert arrays.alias(x, kind).data is x.data


def test_the_package_of_a_type_that_is_derived_elsewhere(other):
    """That of the nearest type that comes from a package which can make such arrays."""
    for base, name in ((Tensor, "fakeframe"), (fakes.Strange, "otherframe")):
        derived = type("Derived", (base,), {"__module__": "users.own"})
        again = type("Again", (derived,), {"__module__": __name__})
        for kind in (base, derived, again):
            assert array_type_of(kind(np.ones(1))).package is sys.modules[name]
