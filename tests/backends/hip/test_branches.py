"""Graphs of the HIP backend that begin or end with several nodes; updates; what is somebody else's."""

from ctypes import c_uint64

import pytest

import accelerator_graph as ag
from accelerator_graph import errors
from backends.hip.bench import (
    TIMEOUT,
    bare_begin,
    bare_end,
    call,
    edges_of,
    last_error,
    made,
    nodes_of,
    status_of,
    step,
    until,
)
from backends.tools import captured, linked

pytest_plugins = ["backends.hip.fixtures"]
pytestmark = pytest.mark.usefixtures("no_error_left")


def branches(backend, kernels, stream, cells, lengths, join):
    """A graph of branches, one for each cell, which append ones; the last node appends a two to all."""
    sides = [stream, *(backend.create_stream(0) for _ in lengths[1:])]

    def work():
        for side in sides[1:]:
            linked(backend, stream, side)
        for i, (side, length) in enumerate(zip(sides, lengths, strict=True)):
            for _ in range(length):
                step(backend, kernels, side, cells.at(i), 10, 1)
        for side in sides[1:]:
            linked(backend, side, stream)
        if join:
            for i in range(len(lengths)):
                step(backend, kernels, stream, cells.at(i), 10, 2)

    graph = captured(backend, stream, work)
    for side in sides[1:]:
        backend.destroy_stream(side)
    return graph


def test_branches_are_listed_in_the_order_of_recording_and_not_changed(backend, stream, block):
    """AMD's runtime sorts nodes by their dependencies; the end of each branch here is a leaf."""
    sides = [stream, *(backend.create_stream(0) for _ in range(3))]
    turns = [0, 1, 2, 3, 3, 2, 1, 1, 0, 2, 3]

    def work():
        for side in sides[1:]:
            linked(backend, stream, side)
        for value, turn in enumerate(turns):
            backend.fill(sides[turn], block, value, None)
        for side in sides[1:]:
            linked(backend, side, stream)

    graph = captured(backend, stream, work)
    executable = backend.instantiate(graph)
    before = nodes_of(graph.handle), edges_of(graph.handle)
    for _ in range(2):
        nodes, edges = backend.nodes(graph)
        assert [node.value for node in nodes] == list(range(len(turns)))
        branches_of = [(turns[edge.source], turns[edge.target]) for edge in edges]
        assert sorted(branches_of) == [(0, 0), (1, 1), (1, 1), (2, 2), (2, 2), (3, 3), (3, 3)]
        assert all(edge.source < edge.target for edge in edges)
    assert (nodes_of(graph.handle), edges_of(graph.handle)) == before
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)
    for side in sides[1:]:
        backend.destroy_stream(side)


SHAPES = [(1, 1), (1, 2), (3, 1), (1, 2, 3), (2, 1, 2, 1)]


@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize("lengths", SHAPES)
def test_branches_wait_for_what_is_ahead_and_are_waited_for(
    backend, kernels, gate, cells, stream, lengths, join
):
    graph = branches(backend, kernels, stream, cells, lengths, join)
    executable = backend.instantiate(graph)
    for _ in range(3):
        expected = []
        gate.close(stream)
        for i, length in enumerate(lengths):
            cells[i] = 5
            step(backend, kernels, stream, cells.at(i), 10, 3)
            once = "1" * length + "2" * join
            expected.append(int("53" + once + once + "4") % 2**32)
        backend.replay(executable, stream)
        backend.replay(executable, stream)
        for i in range(len(lengths)):
            step(backend, kernels, stream, cells.at(i), 10, 4)
        gate.open()
        backend.synchronize(stream)
        assert [cells[i] for i in range(len(lengths))] == expected
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


def test_upstream_first_nodes_run_ahead_of_their_stream(backend, runtime, kernels, gate, cells, stream):
    """rocm-systems#3131. When they no longer do in any version that is supported, `one_root` can go."""
    graph = branches(backend, kernels, stream, cells, (1,) * 6, False)
    executable = made("hipGraphInstantiateWithFlags", graph.handle, c_uint64(1))
    gate.close(stream)
    call("hipGraphLaunch", executable, int(stream))
    assert until(lambda: any(cells[i] for i in range(6)), limit=TIMEOUT if runtime == (7, 2) else 0.1) == (
        runtime == (7, 2)
    )
    gate.open()
    backend.synchronize(stream)
    call("hipDeviceSynchronize")
    call("hipGraphExecDestroy", executable)
    backend.destroy_graph(graph)


def nodes_and_edges(graph):
    return sorted(nodes_of(graph.handle)), edges_of(graph.handle)


@pytest.mark.parametrize("lengths", [(1,), (3,), *SHAPES])
@pytest.mark.parametrize("join", [False, True])
def test_the_graph_is_as_it_was_after_instantiate(
    backend, kernels, cells, stream, lengths, join, monkeypatch
):
    graph = branches(backend, kernels, stream, cells, lengths, join)
    before = nodes_and_edges(graph)
    executables = [backend.instantiate(graph) for _ in range(2)]
    assert nodes_and_edges(graph) == before

    with monkeypatch.context() as patched:
        patched.setattr(backend.driver, "instantiate_flags", 2)  # not to be had
        with pytest.raises(errors.DriverError, match="hipGraphInstantiateWithFlags returned"):
            backend.instantiate(graph)
    assert nodes_and_edges(graph) == before
    assert last_error() == 0
    for executable in executables:
        backend.destroy_executable(executable)
    backend.destroy_graph(graph)


@pytest.mark.parametrize("fail", ["hipGraphAddDependencies", "hipGraphGetEdges", "hipGraphGetNodes"])
def test_the_graph_is_as_it_was_after_a_failing_helper(backend, kernels, cells, stream, fail, monkeypatch):
    graph = branches(backend, kernels, stream, cells, (1, 2), False)
    before = nodes_and_edges(graph)
    answered = type(backend.driver).answer

    def failing(driver, function, *args):
        if function == fail:
            return (2,)
        return answered(driver, function, *args)

    with monkeypatch.context() as patched:
        patched.setattr(type(backend.driver), "answer", failing)
        with pytest.raises(errors.OutOfMemoryError, match=fail):
            backend.instantiate(graph)
    assert nodes_and_edges(graph) == before
    backend.destroy_graph(graph)


def test_a_chain_gets_no_helpers(backend, kernels, cells, stream, monkeypatch):
    graph = branches(backend, kernels, stream, cells, (3,), False)
    names = []
    answered = type(backend.driver).answer

    def noted(driver, function, *args):
        names.append(function)
        return answered(driver, function, *args)

    with monkeypatch.context() as patched:
        patched.setattr(type(backend.driver), "answer", noted)
        executable = backend.instantiate(graph)
    assert not {"hipGraphAddEmptyNode", "hipGraphAddDependencies"} & set(names)
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


def test_branches_through_the_library(backend, kernels, cells):
    """The node count, the kept graph and its second executable are those of what was captured."""
    with ag.Stream(backend="hip") as stream:
        graph = ag.Graph(keep_graph=True)
        with graph:
            linked(backend, stream.native, side := backend.create_stream(0))
            step(backend, kernels, stream.native, cells.at(0), 10, 1)
            step(backend, kernels, side, cells.at(1), 10, 1)
            linked(backend, side, stream.native)
        assert graph.num_nodes == 2
        for _ in range(2):
            graph.instantiate()
            graph.replay()
        assert len(nodes_of(graph.raw_graph())) == graph.num_nodes == 2
        stream.synchronize()
        assert (cells[0], cells[1]) == (11, 11)
        graph.reset()
        backend.destroy_stream(side)


# ---- what is somebody else's -----------------------------------------------------------------------


def test_somebody_elses_graph_and_executable(backend, stream, block):
    assert bare_begin(int(stream), "relaxed") == 0
    backend.fill(stream, block, 6, None)
    code, handle = bare_end(int(stream))
    assert code == 0
    graph = backend.borrow(handle, stream)
    executable = backend.borrow(made("hipGraphInstantiateWithFlags", handle, c_uint64(1)), graph)
    assert len(backend.nodes(graph)[0]) == 1
    assert (graph.place, executable.place) == (0, 0)
    backend.replay(executable, stream)
    backend.synchronize(stream)
    assert block.read() == bytes([6] * block.nbytes)
    call("hipGraphExecDestroy", executable.handle)
    call("hipGraphDestroy", handle)


def test_relaxed_is_for_this_thread_and_for_a_while(backend, stream, other, block):
    token = backend.capture_begin(stream, "global")
    backend.fill(stream, block, 1, None)
    with backend.relaxed(stream):
        call("hipFree", made("hipMalloc", 64))
        backend.synchronize(other)
    assert status_of(stream) == "active"
    backend.destroy_graph(backend.capture_end(token))
