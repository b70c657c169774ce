"""Threads: capturing at once, ending another's capture, dying in the middle of one, replaying together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof, c_uint32, c_uint64

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership, streams
from accelerator_graph.errors import GraphStateError
from threads import in_thread

from . import figures
from .bench import CELL, A, B, accounts, capture_mode, faults, no_capture, nothing_left
from .vendor import BACKEND, vendor

THREADS = 8
ROUNDS = 12
TIMEOUT = 120


@pytest.fixture(autouse=True)
def clean():
    with nothing_left():
        yield
        faults.reset()
        vendor.quiesce()
        no_capture()


def together(work: Callable[[int], object], count: int = THREADS) -> list[object]:
    """Do work in threads that begin at the same moment; return what they return."""
    start = threading.Barrier(count)

    def run(number: int) -> object:
        start.wait(TIMEOUT)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return [future.result(TIMEOUT) for future in [pool.submit(run, number) for number in range(count)]]


def wait(stream: ag.Stream) -> None:
    """Wait for a stream without breaking the captures of other threads, whatever their mode."""
    vendor.exchange(vendor.MODES["relaxed"])
    try:
        stream.synchronize()
    finally:
        vendor.exchange(vendor.MODES["global"])


def count_up(stream: ag.Stream, times: int = 1) -> None:
    """Enqueue kernels that add one to CELL."""
    for _ in range(times):
        arguments = (c_uint64(addressof(CELL)), c_uint32(1), c_uint32(1), c_uint64(0))
        stream.launch(vendor.kernel(), *arguments, grid=1, block=1)


def counted() -> int:
    """Return the number in CELL and set it to 0."""
    vendor.quiesce()
    number = int.from_bytes(bytes(CELL), "little")
    CELL[:] = bytes(4)
    return number


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_captures_of_threads_do_not_disturb_each_other(mode):
    def work(number: int) -> bool:
        memory = vendor.memory(4)
        for value in range(1, ROUNDS):
            stream = ag.Stream(0, backend=BACKEND)
            graph = ag.Graph(stream=stream, capture_error_mode=mode)
            graph.capture_begin()
            stream.fill(memory, value)
            graph.capture_end()
            graph.replay()
            with ag.Stream(0, backend=BACKEND), ag.graph(ag.Graph()):
                ag.current_stream().fill(memory, 99)
            wait(stream)
            assert bytes(memory) == bytes([value] * 4)
            assert vendor.place() == vendor.HOME
            assert capture_mode() == vendor.MODES["global"]
        return True

    together(work)
    figures.states_checked += THREADS * ROUNDS


@pytest.mark.parametrize("function", [vendor.BEGIN, vendor.END, vendor.INSTANTIATE])
def test_failures_hit_only_the_thread_they_happen_in(function):
    for nth in range(1, THREADS * 2, 3):
        faults.fail(function, code=2, nth=nth, times=3, after=function == vendor.END)

    def work(number: int) -> int:
        failed = 0
        memory = vendor.memory(4)
        stream = ag.Stream(0, backend=BACKEND)
        graph = ag.Graph(stream=stream)
        for value in range(1, ROUNDS):
            try:
                with graph:
                    stream.fill(memory, value)
            except (ag.CaptureError, ag.OutOfMemoryError) as error:
                if error.reason != "out_of_memory" or graph.state != "empty":
                    raise
                failed += 1
                continue
            graph.replay()
            stream.synchronize()
            assert bytes(memory) == bytes([value] * 4)
            graph.reset()
        return failed

    assert sum(map(int, together(work))) > 0
    assert faults.pending == 0
    figures.injected[function] += 3 * len(range(1, THREADS * 2, 3))
    figures.states_checked += THREADS * ROUNDS


@pytest.mark.parametrize("end", ["capture_end", "reset"])
def test_another_thread_can_not_end_a_capture(end):
    stream = ag.Stream(0, backend=BACKEND)
    graph = ag.Graph(stream=stream)
    graph.capture_begin()
    count_up(stream)

    def other() -> None:
        before = faults.calls()
        with pytest.raises(GraphStateError, match="capturer"):
            getattr(graph, end)()
        assert faults.calls() == before, "the driver was asked"

    in_thread(other, name="capturer")
    assert graph.state == "capturing"
    graph.capture_end()
    graph.replay()
    assert counted() == 1


@pytest.mark.parametrize("mode", vendor.MODES_OF_THE_DEAD)
@pytest.mark.parametrize("forgotten", [False, True])
def test_the_capture_of_a_thread_that_died_is_abandoned(mode, forgotten):
    stream = ag.Stream(0, backend=BACKEND)
    kept: list[ag.Graph] = []

    def capture() -> None:
        graph = ag.Graph(stream=stream, capture_error_mode=mode)
        graph.capture_begin()
        stream.fill(A, 1)
        if not forgotten:
            kept.append(graph)

    in_thread(capture, name="capturer")
    assert accounts.live()["captures"] == 1
    if forgotten:
        ownership.drain()
    else:
        kept[0].reset()
        assert kept[0].state == "empty"
    no_capture()
    with stream, ag.Graph() as graph:
        count_up(stream)
    graph.replay()
    assert counted() == 1
    figures.states_checked += 1


def test_everything_works_on_the_per_thread_stream_of_a_thread_without_a_context():
    def work() -> None:
        stream = streams.as_stream(2, BACKEND)
        stream.fill(A, 3)
        stream.copy(B, A)
        count_up(stream)
        stream.wait(stream.record())
        stream.query()
        stream.synchronize()
        assert bytes(B) == bytes([3] * 8)
        with stream, ag.Graph() as graph:
            assert ag.is_current_stream_capturing()
            stream.fill(A, 4)
        graph.replay()
        graph.bind()()
        stream.synchronize()
        assert bytes(A) == bytes([4] * 8)
        with ag.Stream(0, backend=BACKEND), stream:
            pass
        assert vendor.place() == vendor.HOME

    in_thread(work, name="capturer")
    assert counted() == 1
    figures.states_checked += 1
