"""Looking into graphs of the CUDA and the HIP backend."""

import pytest

import accelerator_graph as ag
from accelerator_graph import errors
from backends.tools import check_forked, diamond, recorded, replayed

pytestmark = pytest.mark.usefixtures("no_error_left")


def test_nodes_and_edges_of_a_forked_graph(backend, stream, other, block):
    def work(stream, n):
        if n == 0:
            backend.copy(stream, block, block.pointer + 512, 8)
        else:
            backend.fill(stream, block, n, None)

    graph = diamond(backend, stream, other, work)
    check_forked(backend, graph)
    backend.destroy_graph(graph)


def test_an_empty_graph(backend, stream):
    graph = backend.capture_end(backend.capture_begin(stream, "thread_local"))
    assert backend.nodes(graph) == ([], [])
    replayed(backend, graph, stream)


def test_dump(backend, stream, block, tmp_path):
    graph = recorded(backend, stream, block)
    plain, verbose = tmp_path / "pläin.dot", tmp_path / "verbose.dot"
    backend.dump(graph, str(plain), False)
    backend.dump(graph, str(verbose), True)
    assert plain.read_text().startswith("digraph")
    assert len(verbose.read_text()) > len(plain.read_text())
    with pytest.raises(errors.DriverError, match="GraphDebugDotPrint returned"):
        backend.dump(graph, str(tmp_path / "none" / "x.dot"), False)
    backend.destroy_graph(graph)


def test_a_graph_may_have_two_executables(backend, stream, block):
    graph = recorded(backend, stream, block)
    first = backend.instantiate(graph)
    replayed(backend, graph, stream)
    backend.fill(stream, block, 0, None)
    backend.replay(first, stream)  # also after its graph is gone
    backend.synchronize(stream)
    assert block.read() == bytes([7] * block.nbytes)
    backend.destroy_executable(first)


def test_a_profile_times_replays_and_puts_the_memory_of_the_device_back(backend, stream, block):
    name = backend.name
    home = ag.Stream(backend=name)
    home.fill(block, 3)
    with home, ag.Graph() as graph:
        home.fill(block, 7)
    profile = graph.profile(5, state=[block])
    assert block.read() == bytes([3] * block.nbytes)
    assert (profile.backend, profile.device, profile.nodes, profile.replays) == (name, 0, 1, 5)
    assert all(0 < time < 1e7 for time in profile.times)
    graph.profile(1)
    assert block.read() == bytes([7] * block.nbytes)
