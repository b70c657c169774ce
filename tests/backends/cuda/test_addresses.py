"""The addresses among the parameters of a graph's nodes, and what the driver tells of a device's memory."""

from __future__ import annotations

import ctypes

from lanes import require

pytestmark = require("cuda")

from cuda.bindings import driver

from accelerator_graph.backends._cuda import arguments
from backends.cuda.bench import call, current, kernels


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_byte), ("b", ctypes.c_double))


def launched(backend, stream, kernel, target, p=None):
    p = Pair(1, 2.0) if p is None else p
    backend.launch(stream, kernel, target, ctypes.c_int(4), ctypes.c_float(1), p, grid=1, block=4)


def captured(backend, stream, work):
    token = backend.capture_begin(stream, "thread_local")
    try:
        work()
    finally:
        graph = backend.capture_end(token)
    return graph


def test_parameters_of_kernels_that_are_functions_or_kernels(backend, stream, block):
    with kernels() as found:
        for kernel in (found.store, found.kernel):
            graph = captured(backend, stream, lambda kernel=kernel: launched(backend, stream, kernel, block))
            assert block.pointer in backend.addresses(graph)
            assert block.pointer + 8 not in backend.addresses(graph)
            backend.destroy_graph(graph)


def test_an_address_inside_a_structure(backend, stream, block):
    inside = Pair(1, ctypes.c_double.from_buffer_copy(ctypes.c_uint64(block.pointer + 64)).value)
    with kernels() as found:
        graph = captured(backend, stream, lambda: launched(backend, stream, found.store, block, inside))
        assert {block.pointer, block.pointer + 64} <= backend.addresses(graph)
        backend.destroy_graph(graph)


def test_fills_copies_allocations_and_graphs_inside(backend, stream, block, other):
    def work():
        memory = call(driver.cuMemAllocAsync, 64, stream)
        allocated.append(int(memory))
        backend.fill(stream, memory, 1, 64)
        backend.copy(stream, block.pointer, int(memory), 64)
        call(driver.cuMemFreeAsync, memory, stream)

    allocated = []
    with current(block.context):
        graph = captured(backend, stream, work)
        assert {block.pointer, *allocated} <= backend.addresses(graph)
        plain = captured(backend, stream, lambda: backend.fill(stream, block.pointer + 32, 1, 8))
        handle = call(driver.cuGraphCreate, 0)
        call(driver.cuGraphAddChildGraphNode, handle, [], 0, plain.handle)
    outer = backend.borrow_graph(int(handle), stream)
    assert backend.addresses(outer) == backend.addresses(plain) == {block.pointer + 32}
    for each in (graph, plain, outer):
        backend.destroy_graph(each)


def test_a_block_of_parameters(block):
    """As cuBLAS launches its kernels."""
    words = (ctypes.c_uint64 * 3)(5, block.pointer, 7)
    size = ctypes.c_size_t(24)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(words), 2, ctypes.addressof(size), None)
    assert list(arguments._words(*arguments._block(ctypes.addressof(extra)))) == [5, block.pointer, 7]


def test_a_node_whose_parameters_are_not_told(backend, stream, block, monkeypatch):
    graph = captured(backend, stream, lambda: backend.fill(stream, block.pointer, 1, 8))
    monkeypatch.setattr(arguments, "kind_of", lambda *_: "conditional")
    assert backend.addresses(graph) is None
    backend.destroy_graph(graph)


def test_memory_of_the_device(backend, stream, block):
    graph = captured(backend, stream, lambda: backend.fill(stream, block.pointer, 1, 8))
    before = backend.device_memory(graph)
    with current():
        memory = call(driver.cuMemAlloc, 64 << 20)
        after = backend.device_memory(graph)
        call(driver.cuMemFree, memory)
    assert after.total == before.total
    assert before.free - after.free >= 60 << 20
    assert after.graphs_reserved >= after.graphs_used >= 0
    backend.destroy_graph(graph)
