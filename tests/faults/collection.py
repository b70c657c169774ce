"""Objects that die in the middle of a capture, ours or somebody else's, do not disturb it."""

from __future__ import annotations

import gc
from contextlib import suppress

import pytest
from cuda.bindings import driver
from works.cuda import call, device

import accelerator_graph as ag
from accelerator_graph import _lifetime
from accelerator_graph.backends import registry

from . import figures
from .bench import (
    A,
    Bench,
    accounts,
    elsewhere,
    faults,
    left,
    no_capture,
    nothing_left,
    quiesce,
    set_contexts,
)

MODES = {
    mode: getattr(driver.CUstreamCaptureMode, f"CU_STREAM_CAPTURE_MODE_{mode.upper()}")
    for mode in ("global", "thread_local", "relaxed")
}
ELSEWHERE = elsewhere()
ACTIVE = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE


@pytest.fixture(autouse=True)
def clean():
    gc.collect()
    with nothing_left():
        yield
        quiesce()
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
    stream = ag.Stream(backend="cuda")
    return [stream, stream.record(), stream.close()]


@pytest.mark.parametrize("mode", MODES)
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
    assert not any(faults.calls().values()), "the collection called the driver"
    drains()
    _lifetime.drain()
    now = all_kinds()
    assert (now[0], now[1], now[3]) == (before[0], before[1], before[3])
    assert now[2] == before[2] + 1  # the driver's graph of the capture


@pytest.mark.parametrize("mode", MODES)
def test_in_a_capture_of_somebody_else(mode):
    before = all_kinds()
    gc.disable()
    try:
        garbage()
        with device().current():
            stream = call(driver.cuStreamCreate, 1)
        call(driver.cuStreamBeginCapture, stream, MODES[mode])
        with device().current():
            call(driver.cuMemsetD8Async, int(device().take(8)), 1, 8, stream)
        gc.collect()
        drains()
        _lifetime.drain()
        now = all_kinds()
        assert now == [before[0] + 1, before[1], before[2] + 1, before[3]]
        with ag.Stream(backend="cuda") as mine, ag.Graph() as graph:  # and a capture of ours within it
            mine.fill(A, 1)
        graph.replay()
        graph.reset()
        assert call(driver.cuStreamIsCapturing, stream) == ACTIVE
    finally:
        gc.enable()
        _, made = driver.cuStreamEndCapture(stream)
        if made is not None and int(made):
            call(driver.cuGraphDestroy, made)
        call(driver.cuStreamDestroy, stream)
    assert made is not None
    figures.states_checked += 1


@pytest.mark.parametrize("how", ["captured", "replayed"])
def test_a_stream_that_somebody_else_captures_is_left_alone(how):
    with device().current():
        foreign = call(driver.cuStreamCreate, 1)
    call(driver.cuStreamBeginCapture, foreign, MODES["global"])
    bench = Bench()
    bench.capture(3)
    stream = ag.streams.as_stream(foreign, "cuda")
    with pytest.raises(ag.CaptureError) as raised:
        ag.Graph(stream=stream).capture_begin() if how == "captured" else bench.graph.replay(stream)
    assert raised.value.reason in ("foreign_capture", "illegal_call")
    assert call(driver.cuStreamIsCapturing, foreign) == ACTIVE
    call(driver.cuGraphDestroy, call(driver.cuStreamEndCapture, foreign))
    stream = None
    call(driver.cuStreamDestroy, foreign)
    assert bench.run() == left(3)
    figures.states_checked += 1


@pytest.mark.parametrize("first", ["ended", "abandoned"])
def test_a_capture_that_is_over_takes_no_later_one_with_it(first):
    backend, stream = registry.get("cuda"), ag.Stream(backend="cuda")
    over = backend.capture_begin(stream.native, "relaxed")
    if first == "ended":
        backend.destroy_graph(backend.capture_end(over))
    else:
        backend.capture_abandon(over)
    later = backend.capture_begin(stream.native, "relaxed")
    backend.capture_abandon(over)
    assert call(driver.cuStreamIsCapturing, stream.native) == ACTIVE, "the later capture was ended"
    backend.capture_abandon(later)
    figures.states_checked += 1


@pytest.mark.parametrize("end", ["passes", "raises"])
def test_a_capture_of_the_per_thread_stream_ends_where_it_began(end):
    set_contexts([int(device().context)])
    graph = ag.Graph(stream=2, backend="cuda")
    try:
        with suppress(LookupError), graph:
            graph.stream.fill(A, 1)
            call(driver.cuCtxPushCurrent, driver.CUcontext(ELSEWHERE))
            if end == "raises":
                raise LookupError
        no_capture()
        assert graph.state == ("ready" if end == "passes" else "empty")
    finally:
        set_contexts([])
    figures.states_checked += 1
