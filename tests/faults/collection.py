"""Objects that die in the middle of a capture, ours or somebody else's, do not disturb it."""

from __future__ import annotations

import gc
from contextlib import suppress

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership, streams
from accelerator_graph.backends import registry

from . import figures
from .bench import A, Bench, accounts, faults, left, no_capture, nothing_left
from .vendor import BACKEND, vendor


@pytest.fixture(autouse=True)
def clean():
    gc.collect()
    vendor.elsewhere()  # stays, once it is made
    with nothing_left():
        yield
        vendor.quiesce()
        no_capture()


def garbage() -> None:
    """Leave graphs, streams, events and callables behind that only a collection frees."""
    bench = Bench(keep_graph=True)
    bench.capture(3)
    bench.kept = [bench.graph.bind(), bench.stream.record(), bench.graph.bind(bench.fork), bench]
    replaced = Bench()
    replaced.capture(3)
    replaced.kept = [replaced.graph.replay, replaced]


def all_kinds() -> list[int]:
    live = accounts.live()
    return [live[kind] for kind in ("streams", "events", "graphs", "executables")]


def drains() -> list[object]:
    """Make ordinary calls, at which what is due is destroyed."""
    stream = ag.Stream(0, backend=BACKEND)
    return [stream, stream.record(), stream.close()]


@pytest.mark.parametrize("mode", vendor.MODES)
@pytest.mark.parametrize("way", ["with", "side stream", "by hand"])
def test_in_a_capture_of_ours(mode, way):
    bench = Bench(capture_error_mode=mode)
    gc.disable()
    try:
        before = all_kinds()
        garbage()
        if way == "by hand":
            bench.graph.capture_begin()
            bench.work(bench.stream, 5)
            collected(before)
            bench.graph.capture_end()
        else:
            with bench.graph if way == "with" else ag.graph(bench.graph):
                bench.work(ag.current_stream(), 5)
                collected(before, captures=1)
    finally:
        gc.enable()
    assert bench.run() == left(5)
    figures.states_checked += 1


def collected(before: list[int], captures: int = 0) -> None:
    """Find garbage, collect it, and find everything destroyed although a capture goes on."""
    faults.reset()
    gc.collect()
    called = {name for name, times in faults.calls().items() if times}
    assert called <= vendor.RELAXES, "the collection called the driver"
    drains()
    ownership.drain()
    now = all_kinds()
    assert (now[0], now[1], now[3]) == (before[0], before[1], before[3])
    assert now[2] == before[2] + 1  # the driver's graph of the capture


@pytest.mark.parametrize("mode", vendor.MODES)
def test_in_a_capture_of_somebody_else(mode):
    before = all_kinds()
    gc.disable()
    try:
        garbage()
        stream = vendor.new_stream()
        vendor.begin(stream, mode)
        vendor.enqueue(stream)
        gc.collect()
        drains()
        ownership.drain()
        now = all_kinds()
        assert now == [before[0] + 1, before[1], before[2] + 1, before[3]]
        with ag.Stream(0, backend=BACKEND) as mine, ag.Graph() as graph:  # and a capture of ours within it
            mine.fill(A, 1)
        graph.replay()
        graph.reset()
        assert vendor.is_capturing(stream)
    finally:
        gc.enable()
        made = vendor.end(stream)
        vendor.destroy_stream(stream)
    assert made
    figures.states_checked += 1


@pytest.mark.parametrize("how", ["captured", "replayed"])
def test_a_stream_that_somebody_else_captures_is_left_alone(how):
    foreign = vendor.new_stream()
    vendor.begin(foreign, "global")
    bench = Bench()
    bench.capture(3)
    stream = streams.as_stream(foreign, BACKEND)
    with pytest.raises(ag.CaptureError) as raised:
        ag.Graph(stream=stream).capture_begin() if how == "captured" else bench.graph.replay(stream)
    assert raised.value.reason in ("foreign_capture", "illegal_call")
    assert vendor.is_capturing(foreign)
    assert vendor.end(foreign)
    stream = None
    vendor.destroy_stream(foreign)
    assert bench.run() == left(3)
    figures.states_checked += 1


@pytest.mark.parametrize("first", ["ended", "abandoned"])
def test_a_capture_that_is_over_takes_no_later_one_with_it(first):
    backend, stream = registry.get(BACKEND), ag.Stream(0, backend=BACKEND)
    over = backend.capture_begin(stream.native, "relaxed")
    if first == "ended":
        backend.destroy_graph(backend.capture_end(over))
    else:
        backend.capture_abandon(over)
    later = backend.capture_begin(stream.native, "relaxed")
    backend.capture_abandon(over)
    assert vendor.is_capturing(stream.native), "the later capture was ended"
    backend.capture_abandon(later)
    figures.states_checked += 1


@pytest.mark.parametrize("end", ["passes", "raises"])
def test_a_capture_of_the_per_thread_stream_ends_where_it_began(end):
    vendor.enter_device()
    graph = ag.Graph(stream=2, backend=BACKEND)
    try:
        with suppress(LookupError), graph:
            graph.stream.fill(A, 1)
            vendor.enter_another()
            if end == "raises":
                raise LookupError
        no_capture()
        assert graph.state == ("ready" if end == "passes" else "empty")
    finally:
        vendor.go_to(vendor.HOME)
    figures.states_checked += 1
