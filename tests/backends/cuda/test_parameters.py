"""The parameters of nodes, read and changed, and what the driver tells of a device's memory."""

import ctypes
import struct

import pytest

from lanes import require

pytestmark = require("cuda")

from cuda.bindings import driver

from accelerator_graph.backends._cuda import node
from accelerator_graph.backends.base import addresses_in, word
from accelerator_graph.errors import DriverError
from backends.cuda.bench import call, current, kernels


@pytest.fixture
def second(bench):
    second = bench.Block()
    yield second
    second.free()


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_byte), ("b", ctypes.c_double))


def launched(backend, stream, kernel, target, p=None):
    p = Pair(1, 2.0) if p is None else p
    backend.launch(stream, kernel, target, ctypes.c_int(4), ctypes.c_float(1), p, grid=1, block=4)


def addresses(backend, graph):
    return addresses_in(backend.parameters(graph))


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
            assert block.pointer in addresses(backend, graph)
            assert block.pointer + 8 not in addresses(backend, graph)
            backend.destroy_graph(graph)


def test_each_function_and_each_kernel_has_its_own_parameters(backend, stream, block):
    with kernels() as found:
        for store, geometry in ((found.store, found.geometry), (found.kernel, found.other_kernel)):

            def work(store=store, geometry=geometry):
                backend.launch(stream, geometry, block, grid=1, block=1, shared_bytes=4)
                launched(backend, stream, store, block)

            graph = captured(backend, stream, work)
            sizes = [[len(each) for each in node.blocks] for node in backend.parameters(graph)]
            assert sizes == [[8], [8, 4, 4, ctypes.sizeof(Pair)]]
            backend.destroy_graph(graph)


def test_an_address_inside_a_structure(backend, stream, block):
    inside = Pair(1, ctypes.c_double.from_buffer_copy(ctypes.c_uint64(block.pointer + 64)).value)
    with kernels() as found:
        graph = captured(backend, stream, lambda: launched(backend, stream, found.store, block, inside))
        assert {block.pointer, block.pointer + 64} <= addresses(backend, graph)
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
        assert {block.pointer, *allocated} <= addresses(backend, graph)
        plain = captured(backend, stream, lambda: backend.fill(stream, block.pointer + 32, 1, 8))
        handle = call(driver.cuGraphCreate, 0)
        call(driver.cuGraphAddChildGraphNode, handle, [], 0, plain.handle)
    outer = backend.borrow_graph(int(handle), stream)
    assert addresses(backend, outer) == addresses(backend, plain) == {block.pointer + 32}
    (fill,), edges = backend.nodes(plain)
    (child,), _ = backend.nodes(outer)
    assert child.bodies == (([fill._replace(settable=())], edges),)
    for each in (graph, plain, outer):
        backend.destroy_graph(each)


def test_a_node_whose_parameters_are_not_told(backend, stream, block, monkeypatch):
    graph = captured(backend, stream, lambda: backend.fill(stream, block.pointer, 1, 8))
    monkeypatch.setattr(node, "kind_of", lambda *_: "conditional")
    assert addresses(backend, graph) is None
    backend.destroy_graph(graph)


class Executable:
    """A graph, its executable, and what changes one of its nodes."""

    def __init__(self, backend, stream, work, node=0):
        self.backend, self.stream = backend, stream
        self.graph = captured(backend, stream, work)
        self.executable = backend.instantiate(self.graph)
        self.change = backend.node_setter(self.graph, self.executable, node)

    def __enter__(self):
        return self

    def run(self):
        self.backend.replay(self.executable, self.stream)
        self.backend.synchronize(self.stream)

    def __exit__(self, *_):
        self.backend.destroy_executable(self.executable)
        self.backend.destroy_graph(self.graph)


@pytest.mark.parametrize("kind", ["store", "kernel"])
def test_parameters_of_a_kernel_can_be_changed(backend, stream, block, second, kind):
    with kernels() as found:

        def work():
            launched(backend, stream, getattr(found, kind), block)

        with Executable(backend, stream, work) as made:
            made.run()
            want = struct.pack("4d", 3, 4, 5, 6)
            assert block.read()[:32] == want
            made.change([(0, 0, word(second.pointer))])
            made.change([(3, 8, struct.pack("d", 9.0)), (2, 0, struct.pack("f", 2.0))])
            made.run()
            assert second.read()[:32] == struct.pack("4d", 10, 12, 14, 16)
            for wrong in ((4, 0, b"1"), (0, 1, bytes(8)), (-1, 0, b"1"), (0, -1, b"1")):
                with pytest.raises(ValueError, match=r"no . bytes at offset"):
                    made.change([(2, 0, struct.pack("f", 7.0)), wrong])
            made.run()
            assert second.read()[:32] == struct.pack("4d", 10, 12, 14, 16)
            made.change.words([(0, 0)])(block.pointer)
            made.run()
            assert block.read()[:32] == struct.pack("4d", 10, 12, 14, 16)
            set_both = made.change.words([(0, 0), (3, 8)])
            set_both(second.pointer, struct.unpack("Q", struct.pack("d", 3.0))[0])
            with pytest.raises(ValueError, match="zip"):
                set_both(block.pointer)
            with pytest.raises(ValueError, match=r"no 8 bytes at offset 4 of its parameter 0"):
                made.change.words([(0, 4)])
            made.run()
            assert second.read()[:32] == struct.pack("4d", 4, 6, 8, 10)
            assert made.change.blocks[0] == word(second.pointer)


def test_parameters_in_one_block_can_be_changed(backend, stream, block, second):
    """As cuBLAS launches its kernels."""
    data = struct.pack("Qif", block.pointer, 4, 1.0) + bytes(Pair(1, 2.0))
    buffer, size = ctypes.create_string_buffer(data, len(data)), ctypes.c_size_t(len(data))
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), None)
    with kernels() as found:

        def work():
            where = ctypes.addressof(extra)
            call(driver.cuLaunchKernel, found.store, 1, 1, 1, 4, 1, 1, 0, stream, 0, where)

        with Executable(backend, stream, work) as made:
            (node,) = backend.nodes(made.graph)[0]
            assert node.arguments == (8, 4, 4, 16)
            assert len(made.change.blocks) == 1
            assert [(each.offset, each.nbytes) for each in made.change.arguments] == [
                *((0, 8), (8, 4), (12, 4), (16, 16)),
            ]
            made.change([(0, 0, word(second.pointer)), (0, 12, struct.pack("f", 2.0))])
            made.run()
            assert second.read()[:32] == struct.pack("4d", 3, 5, 7, 9)
            made.change.words([(0, 0)])(block.pointer)
            made.run()
            assert block.read()[:32] == struct.pack("4d", 3, 5, 7, 9)


def test_both_addresses_of_a_copy_and_the_value_of_a_fill_can_be_changed(backend, stream, block, second):
    def work():
        backend.fill(stream, block.pointer, 1, 8)
        backend.copy(stream, block.pointer + 16, block.pointer, 8)

    with Executable(backend, stream, work) as made:
        made.change([(0, 0, word(second.pointer)), (1, 0, b"\x07")])
        copy = backend.node_setter(made.graph, made.executable, 1)
        copy([(0, 0, word(block.pointer + 32)), (1, 0, word(second.pointer))])
        made.run()
        assert second.read()[:8] == block.read()[32:40] == b"\x07" * 8
        copy.enable(False)
        made.change([(1, 0, b"\x08")])
        made.run()
        assert (second.read()[:8], block.read()[32:40]) == (b"\x08" * 8, b"\x07" * 8)
        copy.enable(True)
        made.run()
        assert block.read()[32:40] == b"\x08" * 8
        assert backend.parameters(made.graph)[0].blocks == (word(block.pointer), b"\x01\0\0\0")


def test_a_change_that_the_driver_refuses_changes_nothing(backend, stream, block, second):
    with Executable(backend, stream, lambda: backend.fill(stream, block.pointer, 1, 8)) as made:
        host = bytearray(8)
        address = ctypes.addressof(ctypes.c_char.from_buffer(host))
        with pytest.raises(DriverError):
            made.change([(0, 0, word(address)), (1, 0, b"\x02")])
        with pytest.raises(DriverError):
            made.change.words([(0, 0)])(address)
        assert made.change.blocks == (word(block.pointer), b"\x01\0\0\0")
        made.change([(0, 0, word(second.pointer))])
        made.run()
        assert second.read()[:8] == b"\x01" * 8


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
