"""What the runtime tells of a device's memory, and what executables take of it."""

import ctypes

import pytest

import accelerator_graph as ag
from accelerator_graph.backends import memory
from backends.hip.bench import Cells
from backends.tools import recorded, replayed

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
    assert [(each.kind, each.blocks) for each in backend.parameters(graph)] == [("memset", None)]
    backend.destroy_graph(graph)


def test_a_kept_graph_is_as_large_as_a_copy(backend, stream, block):
    def size(fills):
        with ag.Stream(backend="hip") as home, ag.Graph(keep_graph=True) as graph:
            for _ in range(fills):
                home.fill(block, 7)
        graph.memory()  # the first copy takes what the driver keeps for later ones as well
        return graph.memory().definition.nbytes

    small, large = size(100), size(1000)
    assert 5 * small < large < 20 * small
    assert 1000 * 100 < large < 1000 * 10_000


def test_the_copy_that_is_measured_is_destroyed(backend, stream, block, monkeypatch):
    graph, destroyed = recorded(backend, stream, block), []
    destroys = type(backend).destroy_graph
    monkeypatch.setattr(
        type(backend), "destroy_graph", lambda self, each: (destroyed.append(each), destroys(self, each))
    )
    assert backend.host_bytes(graph) is not None
    assert len(destroyed) == 1
    assert destroyed[0] is not graph
    replayed(backend, graph, stream)


def test_memory_that_is_there_and_memory_that_is_gone(backend, stream, monkeypatch):
    cells = Cells(16)
    address, host = cells.start, ctypes.create_string_buffer(64)
    token = backend.capture_begin(stream, "thread_local")
    backend.fill(stream, address, 1, 4)
    graph = backend.capture_end(token)
    assert backend.memory_at(graph, [address, address + 4]) == ["there", "there"]
    assert backend.memory_at(graph, [ctypes.addressof(host)]) == [None]
    cells.free()
    # memory of a device is not the host's, but on AMD's runtime without a device it is
    monkeypatch.setattr(memory, "is_readable", lambda address: False)
    assert backend.memory_at(graph, [address]) == ["gone"]
    backend.destroy_graph(graph)
