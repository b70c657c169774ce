"""Frameworks' streams, asked and set: stand-ins on the software driver (see tests/simulators)."""

import sys

import pytest

import lanes

pytestmark = lanes.require("software_cuda")

from cuda.bindings import driver

import accelerator_graph as ag
from accelerator_graph import interop
from accelerator_graph._core import stream_stack, streams
from accelerator_graph.interop import registry
from accelerator_graph.interop.base import Framework
from interop.fake_torch import torch
from interop.fake_warp import warp
from interop.fakes import (
    ExternalStream,
    call,
    calls,
    cuda_core,
    cupy,
    get_device,
    install,
    module,
    numba,
    set_device,
)
from interop.fakes import GraphBuilder as CoreBuilder


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setattr(registry, "_made", {})
    for name in registry.BUILTINS:  # the real ones, which other tests have imported
        monkeypatch.delitem(sys.modules, name, raising=False)
    set_device(0)
    calls.clear()
    yield
    assert get_device() == 0
    assert not stream_stack.thread.entries


@pytest.fixture
def frameworks(monkeypatch):
    """All five, with something to ask each one's current stream."""
    install(monkeypatch, "torch", torch())
    install(monkeypatch, "cupy", cupy())
    install(monkeypatch, "numba.cuda", numba())
    install(monkeypatch, "cuda.core", cuda_core())
    return install(monkeypatch, "warp", warp())


def current(*names, device=0):
    ask = {
        "torch": lambda: sys.modules["torch"].cuda.current_stream(device).cuda_stream,
        "cupy": lambda: sys.modules["cupy"].cuda.get_current_stream(device).ptr,
        "warp": lambda: sys.modules["warp"].get_device(f"cuda:{device}").stream.cuda_stream,
    }
    return [ask[name]() for name in names or ask]


def made(device=0):
    before = get_device()
    set_device(device)
    handle = int(call(driver.cuStreamCreate, 1))
    set_device(before)
    return handle


def test_all_are_there(frameworks):
    assert [type(each).__name__ for each in interop.loaded()] == [
        "CudaCore",
        "CuPy",
        "Numba",
        "Torch",
        "Warp",
    ]
    assert len(registry.active("cuda")) == 5
    assert registry.active("hip") == []


def test_streams_of_all_are_understood(frameworks):
    handle = made(1)
    cuda = sys.modules["torch"].cuda
    device_one = cuda.ExternalStream(handle, device=1)
    core = sys.modules["cuda.core"].Stream.from_handle(handle)
    for obj in (
        device_one,
        sys.modules["torch"].Stream(handle, 1),
        ExternalStream(handle, 1),
        sys.modules["cupy"].cuda.Stream.from_external(core),
        sys.modules["numba.cuda"].external_stream(handle),
        core,
        CoreBuilder(core),
        frameworks.Stream("cuda:1", cuda_stream=handle),
    ):
        stream = streams.as_stream(obj)
        assert (stream.backend, stream.handle, stream.device) == ("cuda", handle, 1), obj


def test_the_default_stream_is_entered_as_itself(frameworks):
    cuda = sys.modules["torch"].cuda
    for before in (cuda.Stream(), cuda.default_stream()):
        cuda.set_stream(before)
        (torch,) = (each for each in interop.loaded() if type(each).__name__ == "Torch")
        undo = torch.use_stream(0, 0)
        assert cuda.current_stream().cuda_stream == 0
        on_the_other = torch.use_stream(0, 1)
        assert (cuda.current_stream(1).cuda_stream, torch.current_stream()) == (0, (0, 1))
        on_the_other()
        undo()
        assert cuda.current_stream().cuda_stream == before.cuda_stream


@pytest.mark.filterwarnings("ignore::accelerator_graph.errors.EmptyGraphWarning")
def test_a_stream_of_torch_is_current_as_itself(frameworks):
    there = sys.modules["torch"]
    cuda = there.cuda
    own, others = cuda.Stream(), cuda.Stream()
    generic = there.Stream(own.stream_id, own.device_index)
    for given in (own, generic):
        for stream in (given, others):
            with ag.Graph(stream=stream):
                assert cuda.current_stream().stream_id == stream.stream_id


def test_streams_that_torch_has_made_are_kept(frameworks, monkeypatch):
    there = sys.modules["torch"]
    [torch] = (each for each in interop.loaded() if type(each).__name__ == "Torch")
    own, other = there.cuda.Stream(), there.cuda.ExternalStream(made())
    for stream, kept in ((own, True), (other, False), (there.cuda.default_stream(), False)):
        there.cuda.set_stream(stream)
        assert torch.keeps_stream(stream.cuda_stream, 0) is kept
        assert not torch.keeps_stream(made(), 0)  # it is not current
    there.cuda.set_stream(own)
    assert torch.keeps_stream(own.cuda_stream, 0)
    there.cuda.set_stream(there.cuda.ExternalStream(own.cuda_stream))
    assert torch.keeps_stream(own.cuda_stream, 0)  # as it was seen to be
    one = there.cuda.Stream()
    there.cuda.set_stream(one)
    monkeypatch.delattr(there._C, "_cuda_getCurrentStream")
    assert not torch.keeps_stream(one.cuda_stream, 0)


def test_a_torch_without_its_functions_in_c(frameworks, monkeypatch):
    there = sys.modules["torch"]
    for name in ("_cuda_getDevice", "_cuda_getCurrentStream", "_cuda_setStream"):
        monkeypatch.delattr(there._C, name)
    [torch] = (each for each in interop.loaded() if type(each).__name__ == "Torch")
    before, handle = there.cuda.Stream(), made(1)
    there.cuda.set_stream(before)
    undo = torch.use_stream(handle, 1)
    assert torch.current_stream() == (handle, 1)
    undo()
    assert torch.current_stream() == (before.cuda_stream, 0)


def test_what_is_no_stream_stays_none(frameworks):
    for obj in (object(), "stream", None):
        with pytest.raises(TypeError, match="is not a stream"):
            streams.as_stream(obj)
    elsewhere = frameworks.get_device()
    assert [each.as_stream(elsewhere) for each in interop.loaded()] == [None] * 5


def test_a_torch_stream_of_another_kind_is_not_torchs(frameworks):
    other = sys.modules["torch"].Stream(3, 0, kind="xpu")
    with pytest.raises(TypeError, match="is not a stream"):
        streams.as_stream(other)


@pytest.mark.parametrize(("name", "make"), [("torch", torch), ("cupy", cupy), ("warp", warp)])
def test_it_is_put_back_if_the_block_has_left_its_device(monkeypatch, name, make):
    install(monkeypatch, name, make())
    before = current(name), current(name, device=1)
    with ag.Stream(1, backend="cuda"):
        set_device(0)
    assert (current(name), current(name, device=1)) == before
    assert get_device() == 0


def test_entering_sets_all_on_the_right_device_and_puts_all_back(frameworks):
    frameworks.get_device("cpu")
    before = current(), current(device=1)
    with ag.Stream(1, backend="cuda") as s:
        assert current(device=1) == [s.handle] * 3
        assert current() == before[0]
        assert get_device() == 1
        assert frameworks.get_device().ordinal == 1
        with ag.Stream(0, backend="cuda") as inner:
            assert current() == [inner.handle] * 3
            assert get_device() == 0
        assert get_device() == 1
        assert current(device=1) == [s.handle] * 3
    assert (current(), current(device=1)) == before
    assert frameworks.get_device().ordinal == 0
    assert sys.modules["torch"].cuda.current_device() == 0


def test_warp_is_not_made_to_wait_for_its_stream_before(frameworks):
    with ag.Stream(backend="cuda"):
        pass
    assert frameworks.get_device("cuda:0").syncs == [False, False]


def test_warps_own_object_for_a_stream_is_used(frameworks):
    device = frameworks.get_device("cuda:0")
    initial, own = device.stream, frameworks.Stream("cuda:0")
    for stream, given in ((initial, initial.cuda_stream), (own, own), (initial, initial)):
        with streams.as_stream(given, "cuda"):
            assert device.stream is stream
        assert device.stream is initial
    assert device.runtime.registered == [initial.cuda_stream, own.cuda_stream]


def test_warp_never_forgets_a_stream_that_was_used(frameworks):
    device = frameworks.get_device("cuda:0")
    s = ag.Stream(backend="cuda")
    for _ in range(3):
        with s:
            assert device.stream.cuda_stream == s.handle
    assert device.runtime.registered == [device.stream.cuda_stream, s.handle]


def test_warp_between_threads_that_leave_in_any_order(frameworks):
    [there] = [each for each in interop.loaded() if type(each).__name__ == "Warp"]
    before = frameworks.get_stream("cuda:0").cuda_stream
    one, two = ag.Stream(backend="cuda").handle, ag.Stream(backend="cuda").handle
    leave_one, leave_two = there.use_stream(one, 0), there.use_stream(two, 0)
    leave_one()
    assert there.current_stream(0) == (two, 0)
    leave_two()
    leave_two()
    assert there.current_stream(0) == (before, 0)


def test_a_stream_of_warps_whose_handle_is_in_use_again_on_another_device(frameworks):
    [there] = [each for each in interop.loaded() if type(each).__name__ == "Warp"]
    old = frameworks.Stream("cuda:0")
    there.as_stream(old)
    undo = there.use_stream(old.cuda_stream, 1)
    assert there.current_stream(1) == (old.cuda_stream, 1)
    assert frameworks.get_stream("cuda:1") is not old
    undo()


def test_warp_on_the_null_stream(frameworks):
    [there] = [each for each in interop.loaded() if type(each).__name__ == "Warp"]
    undo = there.use_stream(0, 0)
    assert there.current_stream(0) == (0, 0)
    assert there.as_stream(frameworks.get_stream("cuda:0")) == 0
    undo()
    assert there.current_stream(0) != (0, 0)


def test_a_device_that_warp_has_not_used_is_left_alone(frameworks):
    [there] = [each for each in interop.loaded() if type(each).__name__ == "Warp"]
    assert there.current_stream(1) is None
    assert not frameworks.get_device("cuda:1").has_stream
    with frameworks.ScopedDevice("cuda:1"):
        assert there.current_stream() is None
    frameworks.get_device().runtime.default_device = frameworks.get_device("cpu")
    assert there.current_stream() is None


def raising(*_, **how):
    raise LookupError("no")


def test_frameworks_that_only_have_streams_take_no_part_in_captures(frameworks):
    assert {type(each).__name__ for each in registry.taking_part("cuda")} == {"Torch", "CuPy", "Warp"}
    assert {type(each).__name__ for each in registry.active("cuda")} == {
        "CudaCore",
        "CuPy",
        "Numba",
        "Torch",
        "Warp",
    }


@pytest.mark.promise("framework-that-raises")
@pytest.mark.parametrize("name", ["Torch", "CuPy", "Warp"])
def test_if_one_raises_those_before_it_are_undone(frameworks, monkeypatch, name):
    [broken] = [each for each in interop.loaded() if type(each).__name__ == name]
    monkeypatch.setattr(broken, "use_stream", raising)
    before = current(), current(device=1)
    with pytest.raises(LookupError), ag.Stream(1, backend="cuda"):
        raise AssertionError
    assert (current(), current(device=1)) == before


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("torch", "torch.cuda.ExternalStream"),
        ("cupy", "cupy.cuda.Stream.from_external"),
        ("warp", "warp.Stream"),
    ],
)
def test_if_one_can_not_take_the_stream_nothing_has_changed(frameworks, monkeypatch, name, target):
    current()
    s = ag.Stream(1, backend="cuda")
    before = current(), current(device=1)
    *path, last = target.split(".")
    home = sys.modules[name]
    for part in path[1:]:
        home = getattr(home, part)
    with monkeypatch.context() as patch:
        patch.setattr(home, last, raising)
        with pytest.raises(LookupError), s:
            raise AssertionError
    assert (current(), current(device=1)) == before
    assert frameworks.get_device().ordinal == 0


def test_an_undo_that_raises_does_not_lose_the_others(frameworks, monkeypatch):
    [broken] = [each for each in interop.loaded() if type(each).__name__ == "Warp"]
    before = current()
    monkeypatch.setattr(broken, "use_stream", lambda *_: raising)
    with pytest.raises(LookupError), ag.Stream(backend="cuda"):
        pass
    assert current() == before


def test_streams_that_are_not_left_in_order(frameworks):
    def generator(stream):
        with stream:
            yield

    before = current()
    outer, inner, innermost = (ag.Stream(backend="cuda") for _ in range(3))
    first, second = generator(outer), generator(inner)
    next(first)
    next(second)
    with innermost:
        first.close()
        assert current() == [innermost.handle] * 3
        second.close()
        assert current() == [innermost.handle] * 3
        assert ag.current_stream().handle == innermost.handle
    assert current() == before


def test_the_current_stream_is_the_frameworks(monkeypatch):
    there = install(monkeypatch, "cupy", cupy())
    assert ag.current_stream(required=False) is None
    mine = there.cuda.Stream(non_blocking=True)
    with mine:
        assert ag.current_stream().handle == mine.ptr
        assert not ag.is_current_stream_capturing()


def test_a_new_stream_is_on_the_device_of_a_frameworks_current_stream(frameworks):
    cuda = sys.modules["torch"].cuda
    assert ag.Stream().device == 0
    with cuda.stream(cuda.ExternalStream(made(1), device=1)):
        for how in ({}, {"backend": "cuda"}):
            stream = ag.Stream(**how)
            assert (stream.backend, stream.device) == ("cuda", 1)
        assert ag.Stream(0).device == 0
        with ag.Stream(0):
            assert ag.Stream().device == 0
        with ag.Stream(backend="cpu"):
            assert ag.Stream(backend="cuda").device == 1
        with ag.use_backend("cpu"):
            assert ag.Stream().backend == "cpu"
    assert ag.Stream().device == 0


def test_a_new_stream_is_on_the_device_that_a_framework_is_on(frameworks):
    set_device(1)
    try:
        assert ag.current_stream(required=False) is None
        assert (ag.Stream().device, ag.Stream(backend="cuda").device, ag.Stream(0).device) == (1, 1, 0)
    finally:
        set_device(0)
    assert ag.Stream().device == 0


def test_streams_that_differ_agree_on_their_device(monkeypatch):
    theirs = install(monkeypatch, "torch", torch())
    there = install(monkeypatch, "cupy", cupy())
    set_device(1)
    try:
        with theirs.cuda.stream(theirs.cuda.ExternalStream(made(1), device=1)), ExternalStream(made(1), 1):
            with pytest.raises(ValueError, match="different current streams"):
                ag.current_stream()
            assert ag.Stream().device == 1
    finally:
        set_device(0)
    assert there.cuda.runtime.getDevice() == 0


def test_frameworks_on_two_devices_are_an_error_that_names_both(monkeypatch):
    theirs = install(monkeypatch, "torch", torch())
    there = install(monkeypatch, "cupy", cupy())
    monkeypatch.setattr(there.cuda.runtime, "getDevice", lambda: 1)
    message = "CuPy and Torch have current streams on different devices, 1 and 0; name the device of the new"
    with pytest.raises(ValueError, match=message):
        ag.Stream()
    assert ag.Stream(1).device == 1
    with theirs.cuda.stream(theirs.cuda.Stream()):  # CuPy is on its default stream
        assert ag.Stream().device == 0


def test_a_new_stream_initialises_no_framework(monkeypatch):
    install(monkeypatch, "torch", torch(initialized=False))
    install(monkeypatch, "numba.cuda", numba(initialized=False))
    there = install(monkeypatch, "warp", warp(initialized=False))
    assert ag.Stream().device == 0
    assert calls["torch.cuda.current_stream"] == 0
    assert [each.backend() for each in interop.loaded()] == [None] * 3
    assert there is sys.modules["warp"]


def test_two_different_ones_are_an_error_that_names_both(monkeypatch):
    theirs = install(monkeypatch, "torch", torch())
    there = install(monkeypatch, "cupy", cupy())
    one = theirs.cuda.Stream()
    message = "CuPy and Torch have different current streams"
    with theirs.cuda.stream(one), there.cuda.Stream(), pytest.raises(ValueError, match=message):
        ag.current_stream()
    with theirs.cuda.stream(one), ExternalStream(one.cuda_stream):
        assert ag.current_stream().handle == one.cuda_stream


def test_warps_own_stream_gives_way(monkeypatch):
    theirs = install(monkeypatch, "torch", torch())
    there = install(monkeypatch, "warp", warp())
    assert there.get_stream().cuda_stream
    assert ag.current_stream(required=False) is None
    with theirs.cuda.stream(theirs.cuda.Stream()) as _:
        assert ag.current_stream().handle == theirs.cuda.current_stream().cuda_stream


def test_warps_own_stream_counts_where_nobody_else_is(monkeypatch):
    there = install(monkeypatch, "warp", warp())
    assert ag.current_stream(required=False) is None
    own = there.get_stream()
    assert ag.current_stream().handle == own.cuda_stream


def test_frameworks_that_are_not_initialised_are_not_asked(monkeypatch):
    install(monkeypatch, "torch", torch(initialized=False))
    install(monkeypatch, "numba.cuda", numba(initialized=False))
    install(monkeypatch, "warp", warp(initialized=False))
    assert [each.backend() for each in interop.loaded()] == [None] * 3
    with ag.Stream(backend="cuda"):
        assert ag.current_stream() is not None
    assert ag.current_stream(required=False) is None
    assert calls["torch.cuda.current_stream"] == 0


def test_numba_without_a_driver(monkeypatch):
    install(monkeypatch, "numba.cuda", numba(error="no driver"))
    assert [each.backend() for each in interop.loaded()] == [None]


def test_cupy_is_not_asked_before_the_driver_is_initialised(monkeypatch):
    there = install(monkeypatch, "cupy", cupy())

    def refused():
        raise RuntimeError("CUDA_ERROR_NOT_INITIALIZED")

    monkeypatch.setattr(there.cuda.driver, "ctxGetCurrent", refused)
    assert interop.loaded()[0].backend() is None
    assert calls["cupy.cuda.runtime.getDeviceCount"] == 0
    monkeypatch.setattr(there.cuda.runtime, "is_hip", True)
    assert interop.loaded()[0].backend() == "hip"
    monkeypatch.setattr(there.cuda.runtime, "getDeviceCount", lambda: 0)
    assert interop.loaded()[0].backend() is None


def test_an_old_cupy(monkeypatch):
    there = install(monkeypatch, "cupy", cupy())
    monkeypatch.delattr(there.cuda.Stream, "from_external")
    with ag.Stream(backend="cuda") as s:
        assert type(there.cuda.get_current_stream()) is ExternalStream
        assert current("cupy") == [s.handle]
    monkeypatch.delattr(there.cuda, "ExternalStream")
    assert interop.loaded()[0].as_stream(there.cuda.Stream()) is not None


def test_an_old_cuda_core(monkeypatch):
    old = cuda_core("cuda.core.experimental")
    install(monkeypatch, "cuda.core", module("cuda.core"))
    install(monkeypatch, "cuda.core.experimental", old)
    handle = made()
    assert streams.as_stream(old.Stream.from_handle(handle)).handle == handle


class Third(Framework):
    """A third party's, with streams of its own."""

    api_version = 1
    log = ()

    def backend(self):
        return "cuda"

    def use_stream(self, handle, device):
        self.log.append((handle, device))
        return lambda: self.log.append("undone")


def test_a_third_party_takes_part(monkeypatch):
    interop.register("third", Third)
    try:
        monkeypatch.setattr(Third, "log", [])
        with ag.Stream(backend="cuda"):
            assert Third.log == []  # it is not imported
        monkeypatch.setitem(sys.modules, "third", module("third"))
        with ag.Stream(backend="cuda") as s:
            assert Third.log == [(s.handle, 0)]
        assert Third.log[1:] == ["undone"]
    finally:
        interop.unregister("third")
