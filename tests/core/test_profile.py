"""`Graph.profile`, on the cpu backend: how often it runs the work, what it puts back, what it refuses."""

import contextlib
import time

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._core import profiling
from accelerator_graph._core.profiling import WARM_UP
from accelerator_graph.backends.base import Capability
from accelerator_graph.backends.cpu import CpuBackend
from core.test_interrupts import Interrupter
from lanes import sample

SECONDS = 0.003


@pytest.fixture
def stream():
    return ag.Stream(backend="cpu")


def captured(stream, *work):
    with stream, ag.Graph() as graph:
        for each in work:
            stream.launch(*each)
    return graph


def test_it_runs_the_work_that_often_and_times_each_replay(stream):
    runs = []
    graph = captured(stream, (runs.append, 1), (time.sleep, SECONDS))
    began = time.perf_counter()
    profile = graph.profile(replays=5)
    seen = (time.perf_counter() - began) * 1e6
    assert len(runs) == 5 + WARM_UP
    assert (profile.backend, profile.device, profile.nodes, profile.replays) == ("cpu", 0, 2, 5)
    assert all(time >= SECONDS * 1e6 for time in profile.times)
    assert sum(profile.times) < seen
    assert profile.least <= profile.median <= profile.most


def test_it_says_how_long_a_replay_takes():
    profile = ag.GraphProfile("cuda", 1, 7, (12.34, 11.0, 1500.0, 2e6))
    assert (profile.median, profile.least, profile.most) == (756.17, 11.0, 2e6)
    assert str(profile) == ("graph of cuda, device 1, 7 nodes: 756 us a replay (median of 4; 11 us to 2 s)")
    assert str(profile._replace(nodes=None, times=(1500.0,))) == (
        "graph of cuda, device 1: 1.5 ms a replay (median of 1; 1.5 ms to 1.5 ms)"
    )


def test_twenty_replays_unless_it_is_told(stream):
    assert captured(stream, (int,)).profile().replays == 20


def increase(array):
    array += 1


def test_it_puts_back_what_it_is_given(stream):
    given, other = np.arange(6.0).reshape(2, 3), np.zeros(3)
    empty, plain = np.zeros(0), bytearray(b"abc")
    graph = captured(stream, (increase, given), (increase, other), (plain.__setitem__, 0, 7))
    graph.profile(4, state=(array for array in (given, empty, plain)))
    assert given.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert plain == b"abc"
    assert other.tolist() == [4 + WARM_UP] * 3
    graph.replay()
    stream.synchronize()
    assert given[0, 0] == 1


def test_work_before_it_is_part_of_the_state(stream):
    array = np.zeros(2)
    graph = captured(stream, (increase, array))
    stream.launch(time.sleep, 0.05)
    stream.launch(array.fill, 8)
    graph.profile(2, state=[array])
    assert array.tolist() == [8, 8]


def test_it_puts_back_when_a_replay_fails(stream):
    array = np.zeros(2)
    graph = captured(stream, (increase, array), (lambda: 1 / 0,))
    with pytest.raises(ag.DriverError, match="ZeroDivisionError"):
        graph.profile(2, state=[array])
    assert array.tolist() == [0, 0]
    stream.synchronize()


def test_it_puts_nothing_back_before_the_copy_of_it_is_there(stream, monkeypatch):
    """A driver may read the memory of the host at the call, and not in the order of the stream."""
    array, targets = np.ones(2), []
    graph = captured(stream, (increase, array))
    copy, synchronize = CpuBackend.copy, CpuBackend.synchronize

    def noted(self, native, target, source, nbytes):
        targets.append(target)
        copy(self, native, target, source, nbytes)

    def interrupted(self, waited):
        if targets:
            monkeypatch.setattr(CpuBackend, "synchronize", synchronize)
            raise KeyboardInterrupt
        synchronize(self, waited)

    monkeypatch.setattr(CpuBackend, "copy", noted)
    monkeypatch.setattr(CpuBackend, "synchronize", interrupted)
    with pytest.raises(KeyboardInterrupt):
        graph.profile(2, state=[array])
    assert [type(each) for each in targets] == [bytearray]


def test_it_puts_back_when_the_launch_fails(stream, monkeypatch):
    array, launches = np.zeros(2), []
    graph = captured(stream, (increase, array))
    record = ag.Stream.record

    def fails_late(self, *, timing=False):
        launches.append(1)
        if len(launches) == 6:
            raise KeyboardInterrupt
        return record(self, timing=timing)

    monkeypatch.setattr(ag.Stream, "record", fails_late)
    with pytest.raises(KeyboardInterrupt):
        graph.profile(4, state=[array])
    assert array.tolist() == [0, 0]


def profiled_at(at):
    """Profile with an interrupt at the given moment; return what the state is then."""
    stream, array = ag.Stream(backend="cpu"), np.zeros(2)
    with stream, ag.Graph(keep_graph=True) as graph, ag.label("increase"):
        stream.launch(increase, array)
    interrupter = Interrupter(at, KeyboardInterrupt, inside=(contextlib,))
    interrupter.strike(graph.profile, 1, state=[array])
    stream.synchronize()
    return array.tolist(), interrupter


def test_it_puts_back_when_an_interrupt_comes_at_any_line():
    lines = profiled_at(0)[1].lines
    assert lines > 500
    for at in sample("lines", lines):
        found, interrupter = profiled_at(at)
        assert found == [0, 0], f"interrupted at {interrupter.where}"
    assert profiling._in_use == {}


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"replays": 0}, ValueError, "replays must be 1 or more, not 0"),
        ({"replays": 2.5}, TypeError, "replays"),
        ({"state": [b"abc"]}, ValueError, "read-only"),
        ({"state": [np.zeros((4, 4))[:, ::2]]}, ValueError, "not contiguous"),
        ({"state": [object()]}, TypeError, "no memory that can be found"),
        ({"state": [4096]}, ValueError, "pass nbytes"),
        ({"state": 5}, TypeError, "profile: state must be an iterable of arrays, not 5"),
        ({"kernels": "no"}, TypeError, "profile: kernels must be True or False, not 'no'"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(stream, how, error, message):
    runs = []
    graph = captured(stream, (runs.append, 1))
    with pytest.raises(error, match=message):
        graph.profile(**how)
    stream.synchronize()
    assert runs == []


def test_a_graph_without_a_capture_is_refused(stream):
    with pytest.raises(ag.GraphStateError, match=r"Graph\.profile\(\): nothing was captured"):
        ag.Graph().profile()
    with stream, ag.Graph() as graph:
        stream.launch(int)
        with pytest.raises(ag.GraphStateError, match="is being captured"):
            graph.profile()


def test_a_stream_that_is_being_captured_is_refused_and_the_capture_goes_on(stream):
    runs = []
    graph = captured(stream, (runs.append, 1))
    with stream, ag.Graph() as other:
        with pytest.raises(ag.GraphStateError, match="a graph of this thread is capturing"):
            graph.profile()
        stream.launch(runs.append, 2)
    assert runs == []
    other.replay()
    stream.synchronize()
    assert runs == [2]


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_a_capture_on_another_stream_is_not_disturbed(stream, mode):
    array = np.zeros(2)
    graph = captured(stream, (increase, array))
    with ag.Stream(backend="cpu") as elsewhere, ag.Graph(capture_error_mode=mode) as other:
        graph.profile(2, state=[array])
        elsewhere.launch(int)
    assert other.num_nodes == 1


def test_a_kept_graph_is_made_ready_and_goes_where_replays_go(stream):
    array = np.zeros(2)
    with stream, ag.Graph(keep_graph=True) as graph:
        stream.launch(increase, array)
    assert graph.state == "captured"
    assert graph.profile(1).nodes == 1
    assert graph.state == "ready"


def test_watched_arrays_are_checked(stream):
    array = np.zeros(2)
    graph = captured(stream, (int,))
    graph.watch(array)
    del array
    with pytest.raises(ag.GraphStateError, match="gone"):
        graph.profile(1)


@pytest.mark.parametrize("fails", [0, 1, 2])
def test_an_array_that_can_not_be_put_back_hinders_no_other(stream, monkeypatch, fails):
    arrays, copy = [np.zeros(1) for _ in range(3)], CpuBackend.copy
    graph = captured(stream, *((increase, array) for array in arrays))

    def fails_once(self, native, target, source, nbytes):
        if target is arrays[fails]:
            raise ag.DriverError("no")
        copy(self, native, target, source, nbytes)

    monkeypatch.setattr(CpuBackend, "copy", fails_once)
    try:
        with pytest.raises(ag.DriverError, match="no"):
            graph.profile(2, state=arrays)
        stream.synchronize()
        assert [array[0] for array in arrays] == [(2 + WARM_UP) * (place == fails) for place in range(3)]
        assert len(profiling._in_use) == 1  # the device may still use the copies
    finally:
        profiling._in_use.clear()


@pytest.mark.parametrize(
    ("lacking", "state", "refused"),
    [("timing", [], True), ("enqueue", [], False), ("enqueue", [bytearray(1)], True)],
)
def test_what_a_backend_can_not_do_is_refused_if_it_is_needed(stream, monkeypatch, lacking, state, refused):
    graph, capabilities = captured(stream, (int,)), CpuBackend.capabilities
    monkeypatch.setattr(
        CpuBackend, "capabilities", lambda self, device: capabilities(self, device) - {lacking}
    )
    if not refused:
        assert graph.profile(1, state=state).replays == 1
        return
    with pytest.raises(ag.UnsupportedError) as info:
        graph.profile(1, state=state)
    assert info.value.capability == lacking


def test_a_backend_that_does_not_count_has_times_all_the_same(stream, monkeypatch):
    graph = captured(stream, (int,), (int,))

    def refuse(self, *_):
        raise ag.UnsupportedError("no")

    monkeypatch.setattr(type(graph._runner), "num_nodes", refuse)
    profile = graph.profile(3)
    assert (profile.nodes, profile.replays) == (None, 3)


@pytest.mark.parametrize("labelled", [False, True])
def test_kernels_are_timed_that_often_beside_the_labels(stream, monkeypatch, labelled):
    asked, seen = [], [{0: (1.0, 2.0)}, {0: (1.0, 4.0)}]

    def time_nodes(self, graph, native, runs):
        asked.append((graph, native, runs, array[0]))
        array[0] += 1
        return seen

    array = np.zeros(1)
    monkeypatch.setattr(CpuBackend, "inherited", set(Capability))
    monkeypatch.setattr(CpuBackend, "time_nodes", time_nodes, raising=False)
    part = ag.label("part") if labelled else contextlib.nullcontext()
    with stream, ag.Graph(keep_graph=True) as graph, part:
        stream.launch(int)
    profile = graph.profile(2, state=[array], kernels=True)
    assert asked == [(graph._runner.captured.value, stream._native, 2, 0)]
    assert array[0] == 0
    assert [(each.node.id, each.time) for each in profile.kernels] == [(0, 2)]
    assert len(profile.labels) == labelled


def test_copies_that_another_profile_has_in_use_stay(stream, monkeypatch):
    array, other = np.zeros(1), object()
    monkeypatch.setattr(profiling, "_in_use", {1: other})
    captured(stream, (increase, array)).profile(1, state=[array])
    assert profiling._in_use == {1: other}
