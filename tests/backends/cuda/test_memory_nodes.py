"""Graphs of the CUDA backend that allocate memory, or free it."""

import pytest

from lanes import require

pytestmark = require("cuda")

from cuda.bindings import driver

import accelerator_graph as ag
from accelerator_graph import errors
from backends.cuda.bench import call, current
from backends.tools import recorded, replayed


def allocating(backend, stream, block, free):
    """A graph that allocates memory, fills it, copies it to the block and may free it; the memory."""
    with current(block.context):
        token = backend.capture_begin(stream, "thread_local")
        pointer = call(driver.cuMemAllocAsync, 1 << 20, stream)
        backend.fill(stream, pointer, 3, block.nbytes)
        backend.copy(stream, block, pointer, block.nbytes)
        if free:
            call(driver.cuMemFreeAsync, pointer, stream)
        return backend.capture_end(token), pointer


def test_memory_nodes_allow_one_executable(backend, stream, block):
    graph, pointer = allocating(backend, stream, block, free=True)
    nodes = {node.kind: node for node in backend.nodes(graph)[0]}
    assert sorted(nodes) == ["mem_alloc", "mem_free", "memcpy", "memset"]
    assert backend.single_executable(graph)
    allocation = nodes["mem_alloc"]
    assert (allocation.target, allocation.nbytes) == (int(pointer), 1 << 20)
    assert nodes["mem_free"].target == int(pointer)
    executable = backend.instantiate(graph)
    with pytest.raises(errors.DriverError):
        backend.instantiate(graph)
    backend.destroy_executable(executable)
    replayed(backend, graph, stream)
    assert block.read() == bytes([3] * block.nbytes)

    plain = recorded(backend, stream, block)
    first = backend.instantiate(plain)
    replayed(backend, plain, stream)
    backend.destroy_executable(first)


def test_graph_that_only_frees_can_be_instantiated_again(backend, stream, block):
    """The driver allows it one executable at a time, as it does graphs that allocate."""
    allocates, pointer = allocating(backend, stream, block, free=False)
    executable = backend.instantiate(allocates)
    frees = ag.Graph(keep_graph=True, stream=ag.Stream(backend="cuda", like=stream))
    with frees, current(block.context):
        call(driver.cuMemFreeAsync, pointer, frees.stream.native)
    for _ in range(2):
        frees.instantiate()
        backend.replay(executable, stream)
        frees.replay(stream)
        backend.synchronize(stream)
    backend.destroy_executable(executable)
    backend.destroy_graph(allocates)


def test_memory_that_a_graph_leaves_is_freed_by_its_next_replay(backend, stream, block):
    graph, pointer = allocating(backend, stream, block, free=False)
    executable = backend.instantiate(graph)
    for _ in range(3):
        backend.replay(executable, stream)
    backend.synchronize(stream)
    assert block.read() == bytes([3] * block.nbytes)
    with current(block.context):
        call(driver.cuMemFreeAsync, pointer, stream)
    backend.synchronize(stream)
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


def test_a_graph_that_allocates_is_timed_as_a_whole(backend, stream, block):
    on = ag.Stream(backend="cuda", like=stream)
    with on, ag.Graph(keep_graph=True) as graph, current(block.context):
        with ag.label("allocate"):
            pointer = call(driver.cuMemAllocAsync, 1 << 20, on.native)
        with ag.label("fill"):
            on.fill(pointer, 3, 1 << 20)
        on.copy(block, pointer, block.nbytes)
        call(driver.cuMemFreeAsync, pointer, on.native)
    profile = graph.profile(3)
    assert len(profile.times) == 3
    assert profile.least > 0
    assert profile.notes == (
        "No times by label: the graph allocates memory (node 0), and such graphs can't be copied.",
    )
    assert block.read() == bytes([3] * block.nbytes)
    graph.reset()
