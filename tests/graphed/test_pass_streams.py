"""Where the passes of `make_graphed_callables` run: stand-ins for a device and its framework."""

import sys
import threading
from types import SimpleNamespace

import pytest

import accelerator_graph as ag
from accelerator_graph._graphed.call_order import current_stream
from accelerator_graph._graphed.torch.callables import _check_places
from accelerator_graph._graphed.torch.pass_streams import PassStreams, current_handle
from accelerator_graph.backends.base import Capability
from graphed import fakes


def captured(done):
    """A graph that notes the thread that runs it, which is the stream's."""
    g = ag.Graph()
    with ag.Stream(backend="fakedevice") as s, g:
        s.launch(lambda: done.append(threading.current_thread()))
    return g


def thread_of(device, handle):
    """The thread of a stream's work."""
    found = []
    device.launch(fakes.streams[handle], lambda: found.append(threading.current_thread()))
    device.synchronize(fakes.streams[handle])
    return found[0]


def test_a_pass_runs_on_the_stream_that_is_current_by_then(device):
    done = []
    prepare = PassStreams(current_stream("fakedevice")).preparing(captured(done))
    handles = [0, *(device.handle_int(device.create_stream(0)) for _ in range(2)), 0]
    for handle in handles:
        fakes.current.handle = handle
        prepare()()
        device.synchronize(fakes.streams[handle])
        assert done[-1] is thread_of(device, handle)
    assert len(done) == 4
    fakes.current.handle = 0
    with ag.Stream(backend="fakedevice") as mine:
        prepare()()
        mine.synchronize()
        assert done[-1] is thread_of(device, mine.handle)


@pytest.mark.parametrize("before", ["the capture", "a pass"])
def test_a_pass_waits_for_what_was_before_on_another_stream(device, before):
    done, passed, seen = [], threading.Event(), []
    passes = PassStreams(current_stream("fakedevice"))
    prepare, other = passes.preparing(captured(done)), passes.preparing(captured(done))
    device.launch(fakes.streams[0], lambda: seen.append(passed.wait(0.3)))  # the event is not set in time
    if before == "a pass":
        prepare()()
    fakes.current.handle = handle = device.handle_int(device.create_stream(0))
    other()()
    device.launch(fakes.streams[handle], passed.set)
    device.synchronize(fakes.streams[handle])
    assert seen == [False]
    assert len(done) == (2 if before == "a pass" else 1)


def test_a_stream_of_ours_lives_until_the_next_call(device, monkeypatch):
    destroyed = []
    monkeypatch.setattr(fakes.Device, "destroy_stream", lambda self, stream: destroyed.append(stream))
    g = captured([])
    prepare = PassStreams(current_stream("fakedevice")).preparing(g)
    mine = ag.Stream(backend="fakedevice")
    native = mine.native
    with mine:
        prepare()()
    mine.close()
    ag.Stream(backend="fakedevice")
    assert native not in destroyed


def test_a_stream_that_is_captured_is_not_waited_for(device, monkeypatch):
    done = []
    prepare = PassStreams(current_stream("fakedevice")).preparing(captured(done))
    g = ag.Graph()
    with ag.Stream(backend="fakedevice") as s:
        with g:
            prepare()()
        assert done == []
        g.replay()
        s.synchronize()
        assert len(done) == 1
        g.reset()
        alone = device.capabilities(0) - {Capability.CHILD_GRAPHS}
        monkeypatch.setattr(fakes.Device, "capabilities", lambda self, device: alone)
        with g:
            s.launch(int)
            with pytest.raises(ag.CaptureError, match="can't record a replay"):
                prepare()
        assert g.num_nodes == 1


def test_where_nobody_has_a_current_stream_it_is_the_first_one():
    done = []
    with ag.Stream(backend="cpu") as home:
        g = ag.Graph()
        with g:
            home.launch(lambda: done.append(1))
        prepare = PassStreams(home).preparing(g)
    with ag.Stream(backend="cpu"):
        prepare()()
    home.synchronize()
    assert done == [1]


@pytest.mark.parametrize("raw", [True, False])
def test_the_handle_of_torchs_current_stream(monkeypatch, raw):
    read = {"_cuda_getCurrentRawStream": lambda device: device + 40} if raw else {}
    cuda = SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=device + 40))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=SimpleNamespace(**read), cuda=cuda))
    assert current_handle(2)() == 42


def test_backends_like_cuda_are_asked_by_torchs_own_call(device, monkeypatch):
    monkeypatch.setattr(fakes.Device, "cuda_like", True)
    handles = [0]
    native = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: handles[0])
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=native))
    done = []
    prepare = PassStreams(current_stream("fakedevice")).preparing(captured(done))
    handles[0] = device.handle_int(device.create_stream(0))
    prepare()()
    device.synchronize(fakes.streams[handles[0]])
    assert done == [thread_of(device, handles[0])]


@pytest.mark.parametrize(
    ("kind", "ordinal", "error", "words"),
    [(1, 0, TypeError, "argument 0 is in host memory"), (2, 1, ValueError, "argument 0 is on device 1")],
)
def test_tensors_that_are_elsewhere_are_refused(device, kind, ordinal, error, words):
    tensor = fakes.full(3, 1, device=kind, ordinal=ordinal)
    passes = SimpleNamespace(name="callable 0 (f)", arguments=[("argument 0", tensor)], parameters=[])
    with pytest.raises(error, match=words) as raised:
        _check_places(passes, current_stream("fakedevice"))
    assert str(raised.value).startswith("callable 0 (f): ")
