"""Updates of executables: which are made in place, and what the others say."""

from __future__ import annotations

import resource

import pytest

from lanes import require

pytestmark = require("hip")

import accelerator_graph as ag
from accelerator_graph.backends import registry
from accelerator_graph.testing.works.hip import HipWork


@pytest.fixture
def stream():
    with ag.Stream(backend="hip") as stream:
        yield stream
    stream.synchronize()


@pytest.fixture
def work():
    return HipWork()


def branching(stream, fork, memory, value, nbytes=16):
    """Capture a graph with two first nodes and a copy."""
    a, b, c = memory
    with ag.Graph(keep_graph=True, stream=stream) as graph:
        fork.wait(stream)
        stream.fill(a, value, nbytes)
        fork.fill(b, value + 1, nbytes)
        stream.wait(fork)
        stream.copy(c, a, nbytes)
    return graph


def test_fills_and_copies_of_two_branches(stream, work):
    fork, memory = ag.Stream(backend="hip"), [work.buffer(16) for _ in range(3)]
    graph, other = (branching(stream, fork, memory, *how) for how in ((1,), (5, 8)))
    graph.replay()
    assert graph.update(other).in_place
    graph.replay()
    stream.synchronize()
    found = [work.read_bytes(each) for each in memory]
    assert found == [bytes([value] * 8 + [old] * 8) for value, old in ((5, 1), (6, 2), (5, 1))]
    assert (graph.num_nodes, other.num_nodes) == (3, 3)


def test_kernels_a_thousand_times(stream, work):
    """What was enqueued keeps its parameters, and memory does not grow without end."""
    cell = work.new()
    graphs = []
    for number in (1, 1 << 16):
        with ag.Graph(keep_graph=True, stream=stream) as graph:
            for _ in range(10):
                work.enqueue(stream, cell, 1, number)
        graphs.append(graph)
    graph = graphs[0].clone()
    graph.instantiate()
    used = []
    for half in range(2):
        for number in range(500):
            assert graph.update(graphs[number % 2]).in_place
            if number % 5 == 0:
                graph.replay()
        stream.synchronize()
        used.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        assert work.read(cell) == (half + 1) * 500 * (1 + (1 << 16)) % 2**32
    assert used[1] - used[0] < 8192, used


def test_what_is_not_updated_in_place(stream, work):
    cell, memory = work.new(), work.buffer(16)

    def captured(*steps):
        with ag.Graph(keep_graph=True, stream=stream) as graph:
            for step in steps:
                work.enqueue(stream, cell, 1, 1) if step == "kernel" else stream.fill(memory, 1, 8)
        return graph

    graph = captured("kernel")
    graph.instantiate()
    for steps, node, reason in (
        (["fill"], 0, "a kernel node has become a memset node"),
        (["fill", "kernel"], None, "the graphs have 1 and 2 nodes"),
    ):
        assert graph.update(captured(*steps)) == (False, reason, node)
    assert graph.update(captured("fill", "kernel")).in_place


def test_a_runtime_that_was_not_tested(stream, work, monkeypatch):
    cell = work.new()
    with ag.Graph(keep_graph=True, stream=stream) as graph:
        work.enqueue(stream, cell, 1, 1)
    graph.instantiate()
    monkeypatch.setattr(registry.get("hip")._driver, "version", 7_13_00000)
    done = graph.update(graph.clone())
    assert done == (False, "updates in place have been tested on ROCm 6.4 and 7.2 only", None)
    graph.replay()
    stream.synchronize()
    assert work.read(cell) == 1


def test_a_refusal_of_the_runtime_leaves_nothing_to_trust(stream, work):
    """AMD's runtime changes node after node: where it stops, some have changed. So the executable is new."""
    memory, host = work.buffer(16), bytearray(16)

    def captured(value, target):
        with ag.Graph(keep_graph=True, stream=stream) as graph:
            stream.fill(memory, value, 8)
            stream.copy(target, memory, 8)
        return graph

    graph = captured(1, work.buffer(16))
    graph.instantiate()
    done = graph.update(captured(2, host))
    graph.replay()
    stream.synchronize()
    assert work.read_bytes(memory)[:8] == bytes(host[:8]) == bytes([2] * 8)
    assert done.in_place or "hipGraphExecUpdate" in done.reason
