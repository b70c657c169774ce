"""Replays from several threads, and replays of what is reset or made anew meanwhile."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership
from accelerator_graph.errors import GraphStateError

from . import figures
from .bench import accounts, faults
from .threads import THREADS, TIMEOUT, clean, count_up, counted, together  # noqa: F401
from .vendor import BACKEND, vendor


@pytest.mark.parametrize("how", ["replay", "bind"])
def test_a_reset_during_a_launch_in_another_thread_waits_for_nothing_and_harms_nothing(how):
    stream = ag.Stream(0, backend=BACKEND)
    graph = ag.Graph(stream=stream)
    with graph:
        count_up(stream)
    launch = graph.bind() if how == "bind" else graph.replay
    before = faults.calls()[vendor.LAUNCH]
    faults.delay(vendor.LAUNCH, 200_000)
    live = accounts.live()["executables"]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(launch)
        end = time.monotonic() + TIMEOUT
        while faults.calls()[vendor.LAUNCH] == before:
            assert time.monotonic() < end
        graph.reset()
        assert not running.done(), "the launch was over too soon for this test"
        assert accounts.live()["executables"] == live, "the executable was destroyed under the launch"
        running.result(TIMEOUT)
    ownership.drain()
    assert accounts.live()["executables"] == live - 1
    assert counted() == 1
    with pytest.raises(GraphStateError):
        launch()
    figures.states_checked += 1


@pytest.mark.parametrize("how", ["replay", "replay(stream)", "bind", "bind(stream)"])
def test_every_replay_of_every_thread_counts(how):
    stream = ag.Stream(0, backend=BACKEND)
    with stream, ag.Graph() as graph:
        count_up(stream, 3)

    def work(number: int) -> None:
        own = ag.Stream(0, backend=BACKEND)
        bound = graph.bind(own) if how == "bind(stream)" else graph.bind()
        launch = {"replay": graph.replay, "replay(stream)": lambda: graph.replay(own)}.get(how, bound)
        for _ in range(100):
            launch()
        own.synchronize()

    together(work)
    assert counted() == 3 * 100 * THREADS


def test_the_first_replay_may_be_that_of_several_threads():
    stream = ag.Stream(0, backend=BACKEND)
    graph = ag.Graph(keep_graph=True, stream=stream)
    with graph:
        count_up(stream)
    faults.delay(vendor.INSTANTIATE, 20_000)
    before = faults.calls()[vendor.INSTANTIATE]
    together(lambda number: graph.replay())
    assert faults.calls()[vendor.INSTANTIATE] == before + 1
    assert counted() == THREADS


def test_callables_from_before_a_reset_and_across_an_instantiate():
    stream = ag.Stream(0, backend=BACKEND)
    graph = ag.Graph(keep_graph=True, stream=stream)
    with graph:
        count_up(stream)
    launch, replay = graph.bind(), graph.replay
    together(lambda number: [launch() if number % 2 else replay() for _ in range(50)])
    assert counted() == 50 * THREADS
    graph.instantiate()
    launch()
    assert counted() == 1
    graph.reset()
    for each in (launch, replay):
        with pytest.raises(GraphStateError):
            each()
    with graph:
        count_up(stream, 2)
    replay()
    assert counted() == 2
    with pytest.raises(GraphStateError):
        launch()
