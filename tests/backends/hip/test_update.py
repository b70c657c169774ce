"""Updates of executables: which are made in place, and what the others say."""

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


def test_fills_of_two_branches(stream, work):
    fork, memory = ag.Stream(backend="hip"), [work.buffer(16) for _ in range(2)]

    def captured(value, nbytes):
        with ag.Graph(keep_graph=True, stream=stream) as graph:
            fork.wait(stream)
            stream.fill(memory[0], value, nbytes)
            fork.fill(memory[1], value + 1, nbytes)
            stream.wait(fork)
        return graph

    graph, other = captured(1, 16), captured(5, 8)
    graph.replay()
    assert graph.update(other).in_place
    graph.replay()
    stream.synchronize()
    found = [work.read_bytes(each) for each in memory]
    assert found == [bytes([value] * 8 + [value - 4] * 8) for value in (5, 6)]
    assert (graph.num_nodes, other.num_nodes) == (2, 2)


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
    monkeypatch.setattr(registry.get("hip").driver, "version", 7_13_00000)
    done = graph.update(graph.clone())
    assert done == (False, "backend 'hip' does not update executables", None)
    graph.replay()
    stream.synchronize()
    assert work.read(cell) == 1


@pytest.mark.parametrize("nbytes", [8, 16])
def test_copies_are_never_updated_in_place(stream, work, nbytes):
    """HIP 7.2 would answer success and go on with the former copy, if its memory is of another kind."""
    memory, target, host = work.buffer(16), work.buffer(16), bytearray(range(16))

    def captured(source):
        with ag.Graph(keep_graph=True, stream=stream) as graph:
            stream.copy(target, source, nbytes)
        return graph

    graph = captured(memory)
    graph.instantiate()
    assert graph.update(captured(host)) == (False, "a memcpy node is not updated in place", 0)
    graph.replay()
    stream.synchronize()
    assert work.read_bytes(target)[:nbytes] == bytes(range(nbytes))
