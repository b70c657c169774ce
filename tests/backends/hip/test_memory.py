"""What the runtime tells of a device's memory, and what executables take of it."""

from __future__ import annotations

import pytest

import accelerator_graph as ag

pytest_plugins = ["backends.hip.fixtures"]
pytestmark = pytest.mark.usefixtures("no_error_left")


def test_every_executable_shows_and_comes_back(runtime, backend, stream, block):
    ours = ag.Stream(backend="hip", like=stream)
    graphs = []
    for nodes in (1, 1, 500):
        graph = ag.Graph(stream=ours)
        with ag.measure_memory(), graph:
            for _ in range(nodes):
                ours.fill(block, 1)
        graphs.append(graph)
    first, second, large = (graph.memory().executable.nbytes for graph in graphs)
    assert first >= 1 << 17
    assert second >= 1 << 17
    assert large > second
    token = backend.capture_begin(stream, "thread_local")
    another = backend.capture_end(token)
    before = backend.device_memory(another)
    for graph in graphs:
        graph.reset()
    after = backend.device_memory(another)
    backend.destroy_graph(another)
    assert after.total == before.total
    assert after.free - before.free == first + second + large
    ours.close()


def test_parameters_are_not_known(backend, stream, block):
    token = backend.capture_begin(stream, "thread_local")
    backend.fill(stream, block, 1, None)
    graph = backend.capture_end(token)
    assert backend.parameters(graph) is None
    backend.destroy_graph(graph)
