"""Threads that use one kernel: each run has its own thread's arguments.

A kernel of the runtime holds its arguments. If two threads set them at once, one thread's work runs on the
memory of the other.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from accelerator_graph_sycl.conformance import SyclWork

import accelerator_graph as ag

PIECES = 300


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def enqueue(work: SyclWork, stream: ag.Stream, cell: object) -> None:
    work.enqueue(stream, cell, 1, 1)


def capture_and_replay(work: SyclWork, stream: ag.Stream, cell: object) -> None:
    with ag.Graph(stream=stream) as graph:
        work.enqueue(stream, cell, 1, 1)
    graph.replay()
    graph.reset()


@pytest.mark.parametrize("first", [capture_and_replay, enqueue])
def test_work_of_two_threads(first: Callable[..., None], work: SyclWork) -> None:
    cells, threads = [work.new(), work.new()], []
    for cell, way in zip(cells, (first, capture_and_replay), strict=True):

        def repeat(cell: object = cell, way: Callable[..., None] = way) -> None:
            stream = ag.Stream(backend="sycl")
            for _ in range(PIECES):
                way(work, stream, cell)
            stream.synchronize()

        threads.append(threading.Thread(target=repeat))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [work.read(cell) for cell in cells] == [PIECES, PIECES]


def test_synchronize_lets_other_threads_go_on(work: SyclWork, stream: ag.Stream, cell: object) -> None:
    """So does a replay, which may have to wait for room on the device."""
    going, turns = True, 0

    def count() -> None:
        nonlocal turns
        while going:
            turns += 1

    with ag.Graph(stream=stream) as graph:
        for _ in range(20):
            work.enqueue_slow(stream, cell, 1, 1)
    thread = threading.Thread(target=count)
    thread.start()
    try:
        sys.setswitchinterval(10)  # only a call that releases the GIL lets the other thread go on
        before = turns
        graph.replay()
        stream.synchronize()
        counted = turns - before
    finally:
        sys.setswitchinterval(1e-6)
        going = False
        thread.join()
    assert counted > 0
