"""The parameters of nodes, read and changed, and what the driver tells of a device's memory."""

import contextlib
import ctypes
import struct
from types import SimpleNamespace

import pytest

from lanes import require

pytestmark = require("cuda")

from cuda.bindings import driver

from accelerator_graph.backends._cuda import node
from accelerator_graph.backends._cuda import node as nodes
from accelerator_graph.backends._cuda.driver import CudaNames, Driver, Graph
from accelerator_graph.backends._cuda.driver import Executable as Handle
from accelerator_graph.backends._cuda.raw_calls import Calls
from accelerator_graph.backends.base import GraphEdge, addresses_in, word
from accelerator_graph.errors import DriverError, UnsupportedError
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
    outer = backend.borrow(int(handle), stream)
    assert addresses(backend, outer) == addresses(backend, plain) == {block.pointer + 32}
    (fill,), edges = backend.nodes(plain)
    (child,), _ = backend.nodes(outer)
    assert child.bodies == (([fill], edges),)
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


# ---- on a driver of a few lines, which tells what it is given --------------------------------------

KINDS = driver.CUgraphNodeType
DEVICE, HOST, ARRAY, UNIFIED = (
    getattr(driver.CUmemorytype, f"CU_MEMORYTYPE_{name}") for name in ("DEVICE", "HOST", "ARRAY", "UNIFIED")
)


class Told:
    """A driver that has graphs, as lists of nodes; a node is its kind and what is told of it."""

    names = CudaNames
    api = driver
    success = driver.CUresult.CUDA_SUCCESS
    current_address = 0
    calls = Calls(*range(100, 109))

    def __init__(self, *graphs, layouts=None, names=None, places=None):
        self.graphs, self.layouts, self.kernels, self.places = (
            graphs,
            layouts or {},
            names or {},
            places or {},
        )
        self.told = {id(each): each for graph in graphs for each in graph}
        self.asked = []
        self.bodies = {}

    def call(self, function, first, *rest):
        self.asked.append((function, int(first)))
        if function == "cuGraphGetNodes":
            found = [id(each) for each in self.graphs[first]]
            return found[: rest[0]] if rest else [], len(found)
        if function == "cuGraphNodeGetType":
            return getattr(KINDS, f"CU_GRAPH_NODE_TYPE_{self.told[first][0].upper()}")
        if function in ("cuFuncGetName", "cuKernelGetName"):
            name = self.kernels[int(first)]
            if name is None:
                raise UnsupportedError("the driver is too old.")
            return name
        if function == "cuPointerGetAttributes":
            return self.places[rest[1]]
        if function == "cuGraphGetRootNodes":
            return [], len(self.graphs) - 1
        told = self.told[first][1]
        if isinstance(told, Exception):
            raise told
        return told

    def answer(self, function, first, number):
        self.asked.append((function, int(first)))
        layout = self.layouts[int(first)]
        if layout is None:
            raise UnsupportedError("the driver is too old.")
        return (self.success, *layout[number]) if number < len(layout) else (1,)

    def checked(self, function, answer):
        return answer[1:]

    def current(self, context):
        return contextlib.nullcontext()

    def within(self, context, work, *args):
        assert work == self.call
        self.asked.append((context, *args))

    def node_count(self, graph):
        return Driver.node_count(self, graph)


def told(kind, params, **how):
    """A node of which a driver tells this."""
    own = Told([(kind, params)], **how)
    return node.Reader(own)(id(own.graphs[0][0]))


def described(kind, params, **how):
    return told(kind, params, **how).listed(3)


def with_fields(params, **fields):
    for name, value in fields.items():
        setattr(params, name, value)
    return params


def a_kernel(**fields):
    plain = {
        "gridDimX": 2,
        "gridDimY": 3,
        "gridDimZ": 4,
        "blockDimX": 5,
        "blockDimY": 6,
        "blockDimZ": 7,
        "sharedMemBytes": 8,
    }
    return with_fields(driver.CUDA_KERNEL_NODE_PARAMS(), **plain | {"func": driver.CUfunction(9)} | fields)


def a_copy(**fields):
    target = {"dstMemoryType": DEVICE, "dstDevice": driver.CUdeviceptr(0x100), "dstHost": 0x101}
    source = {"srcMemoryType": HOST, "srcDevice": driver.CUdeviceptr(0x200), "srcHost": 0x201}
    size = {"WidthInBytes": 24, "Height": 1, "Depth": 1}
    return with_fields(driver.CUDA_MEMCPY3D(), **target | source | size | fields)


def a_fill(**fields):
    plain = {"dst": driver.CUdeviceptr(0x300), "elementSize": 2, "width": 5, "height": 1, "pitch": 16}
    return with_fields(driver.CUDA_MEMSET_NODE_PARAMS(), **plain | {"value": 7} | fields)


OTHERS = [
    *(
        ("kernel", a_kernel, {name: 11})
        for name in ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ")
    ),
    ("kernel", a_kernel, {"sharedMemBytes": 11}),
    ("kernel", a_kernel, {"func": driver.CUfunction(11)}),
    ("kernel", a_kernel, {"func": driver.CUfunction(0), "kern": driver.CUkernel(11)}),
    *(("memcpy", a_copy, {name: 11}) for name in ("WidthInBytes", "Height", "Depth")),
    *(
        ("memcpy", a_copy, {side + name: 11})
        for side in ("dst", "src")
        for name in ("XInBytes", "Y", "Z", "Pitch", "Height")
    ),
    *(("memset", a_fill, {name: 11}) for name in ("elementSize", "width", "height", "pitch")),
]


@pytest.mark.parametrize(("kind", "make", "other"), OTHERS)
def test_each_part_of_a_node_makes_it_another_one(kind, make, other):
    one, same, another = (told(kind, make(**each)).parameters() for each in ({}, {}, other))
    assert one == same
    assert one.blocks == another.blocks
    assert one.rest != another.rest


def test_a_copy_between_other_kinds_of_memory_is_another_one():
    kinds = [(to, of) for to in (DEVICE, HOST, UNIFIED) for of in (DEVICE, HOST, UNIFIED)]
    found = [told("memcpy", a_copy(dstMemoryType=to, srcMemoryType=of)).parameters() for to, of in kinds]
    assert len({each.rest for each in found}) == len(kinds)


@pytest.mark.parametrize(
    ("fields", "target", "source", "nbytes", "plain"),
    [
        ({}, 0x100, 0x201, 24, True),
        ({"dstMemoryType": HOST, "srcMemoryType": DEVICE}, 0x101, 0x200, 24, True),
        ({"dstMemoryType": UNIFIED, "srcMemoryType": UNIFIED}, 0x100, 0x200, 24, True),
        ({"dstMemoryType": ARRAY}, None, 0x201, 24, False),
        ({"srcMemoryType": ARRAY}, 0x100, None, 24, False),
        ({"Height": 0, "Depth": 0}, 0x100, 0x201, 24, True),
        ({"Height": 3}, 0x100, 0x201, 72, False),
        ({"Depth": 5}, 0x100, 0x201, 120, False),
        ({"Height": 3, "Depth": 5}, 0x100, 0x201, 360, False),
    ],
)
def test_what_is_told_of_a_copy(fields, target, source, nbytes, plain):
    found = described("memcpy", a_copy(**fields))
    assert (found.id, found.kind, found.target, found.source, found.nbytes) == (
        *(3, "memcpy"),
        *(target, source, nbytes),
    )
    assert found.settable == (("source", "target", "enabled") if plain else ("enabled",))
    read = told("memcpy", a_copy(**fields))
    known = target is not None and source is not None
    assert read.parameters().blocks == ((word(target), word(source)) if known else None)
    setter = read.setter(Handle(31, 11).handle, 11)
    assert setter.blocks == ((word(target), word(source)) if plain else ())
    assert setter.settable == found.settable
    assert setter.nbytes == 24
    assert not plain or (read.params.Height, read.params.Depth) == (1, 1)


@pytest.mark.parametrize(
    ("fields", "nbytes", "changes"),
    [
        ({}, 10, True),
        ({"height": 0}, 10, True),
        ({"height": 2}, 20, False),
        ({"elementSize": 4, "width": 3}, 12, True),
    ],
)
def test_what_is_told_of_a_fill(fields, nbytes, changes):
    found = described("memset", a_fill(**fields))
    assert (found.target, found.nbytes, found.value) == (0x300, nbytes, 7)
    assert found.settable == (("target", "value") if changes else ())
    setter = told("memset", a_fill(**fields)).setter(31, 11)
    assert (setter and (setter.nbytes, setter.blocks, setter.enable)) == (
        (nbytes, (word(0x300), bytes((7, 0, 0, 0))), None) if changes else None
    )


@pytest.mark.parametrize(("size", "most"), [(1, 0xFF), (2, 0xFFFF), (4, 0xFFFFFFFF)])
def test_a_value_fits_into_the_elements_of_a_fill(size, most):
    check = told("memset", a_fill(elementSize=size)).setter(31, 11).check
    check((word(0x300), most.to_bytes(4, "little")))
    if size < 4:
        with pytest.raises(ValueError, match=f"elements of {size} bytes, and {most + 1} does not fit"):
            check((word(0x300), (most + 1).to_bytes(4, "little")))


PLACES = {1: (HOST, 0), 2: (DEVICE, 11), 3: (DEVICE, 11), 4: (DEVICE, 12), 5: (DEVICE, 0), 6: (0, 0)}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (2, 2, ""),
        (2, 3, ""),
        (2, 5, ""),
        (5, 4, ""),
        (2, 1, "not of the kind"),
        (1, 3, "not of the kind"),
        (2, 6, "not of the kind"),
        (2, 4, "belongs to another context"),
        (4, 3, "belongs to another context"),
        (7, 7, ""),  # of the same memory nothing is asked
    ],
)
def test_memory_that_a_node_may_get_instead(old, new, said):
    fill = told("memset", a_fill(dst=driver.CUdeviceptr(old)), places=PLACES).setter(31, 11)
    copy = told("memcpy", a_copy(srcHost=old), places=PLACES | {0x100: PLACES[1]}).setter(31, 11)
    for check in (lambda: fill.check((word(new), bytes(4))), lambda: copy.check((word(0x100), word(new)))):
        with pytest.raises(ValueError, match=f"memory at {new:#x} {said}|{said}") if said else ok():
            check()


ok = contextlib.nullcontext


def test_what_is_told_of_kernels():
    which = [
        {"func": driver.CUfunction(9)},
        {"func": driver.CUfunction(0), "kern": driver.CUkernel(8)},
        {"func": driver.CUfunction(7)},
        {"func": driver.CUfunction(0), "kern": driver.CUkernel(6)},
    ]
    own = Told(
        [("kernel", a_kernel(**each)) for each in which * 2],
        layouts={9: [(0, 8), (8, 4)], 8: [], 7: None, 6: [(0, 2)]},
        names={9: b"nine", 8: b"eight\xff", 7: None, 6: b"six"},
    )
    read = node.Reader(own)
    found = [read(id(each)).listed(number) for number, each in enumerate(own.graphs[0])]
    assert [each.id for each in found] == [*range(8)]
    assert [each.name for each in found] == ["nine", "eight\N{REPLACEMENT CHARACTER}", "", "six"] * 2
    assert [each.arguments for each in found] == [(8, 4), (), None, (2,)] * 2
    both, only = ("arguments", "enabled"), ("enabled",)
    assert [each.settable for each in found] == [both, only, only, both] * 2
    assert {(each.grid, each.block, each.shared_bytes) for each in found} == {((2, 3, 4), (5, 6, 7), 8)}
    names = [each for each in own.asked if each[0].endswith("GetName")]
    assert names == [
        ("cuFuncGetName", 9),
        ("cuKernelGetName", 8),
        ("cuFuncGetName", 7),
        ("cuKernelGetName", 6),
    ]
    layouts = [each for each in own.asked if each[0].endswith("ParamInfo")]
    assert layouts[:4] == [("cuFuncGetParamInfo", 9)] * 3 + [("cuKernelGetParamInfo", 8)]


def test_what_is_told_of_the_bodies_of_a_condition(monkeypatch):
    monkeypatch.setattr(nodes, "raw_edges", lambda *_: (b"", b"", b""))

    class Newer:
        @property
        def name(self):
            raise ValueError("999 is not a valid CUgraphConditionalNodeType")

    known = SimpleNamespace(name="CU_GRAPH_COND_TYPE_WHILE")
    for kind, name in ((known, "while"), (Newer(), "")):
        params = SimpleNamespace(conditional=SimpleNamespace(type=kind, phGraph_out=[2, 1]))
        own = Told([("conditional", params)], [*PLAIN], [("memcpy", a_copy())])
        own.api = SimpleNamespace()
        ((whole,), _) = node.list_nodes(own, 0)
        assert whole == (0, "conditional", *whole._field_defaults.values())  # the binding is too old
        own.api = SimpleNamespace(cuGraphNodeGetParams=None)
        ((whole,), _) = node.list_nodes(own, 0)
        assert (whole.name, whole.settable) == (name, ())
        assert [[each.kind for each in body] for body, _ in whole.bodies] == [
            ["memcpy"],
            ["memset", "memcpy"],
        ]
        assert [[each.source for each in body] for body, _ in whole.bodies] == [[0x201], [None, 0x77]]
        assert {each.settable for body, _ in whole.bodies for each in body} == {()}


def test_a_node_of_which_the_driver_tells_nothing_is_listed_by_its_kind():
    for kind in ("memcpy", "memset", "mem_alloc", "host", "graph"):
        found = described(kind, UnsupportedError("the driver is too old."))
        assert found == (3, kind, *found._field_defaults.values())


def in_a_block(*entries):
    return (ctypes.c_void_p * (2 * len(entries) + 1))(*(part for each in entries for part in each), None)


def test_the_block_of_parameters_is_found_whatever_is_said_first():
    size = ctypes.c_size_t(24)
    address, place = (1, 0x500), (2, ctypes.addressof(size))
    for entries, expected in (
        ((address, place), (0x500, 24)),
        ((place, address), (0x500, 24)),
        ((address,), (0x500, 0)),
        (((9, 3), address, place), (0x500, 24)),
        ((), (0, 0)),
    ):
        array = in_a_block(*entries)
        assert node._block(ctypes.addressof(array)) == expected


def test_a_block_can_be_changed_without_knowing_what_is_in_it():
    content, size = ctypes.create_string_buffer(b"12345678abcd", 12), ctypes.c_size_t(12)
    array = in_a_block((1, ctypes.addressof(content)), (2, ctypes.addressof(size)))
    read = told("kernel", a_kernel(extra=ctypes.addressof(array)), layouts={9: None})
    assert read.parameters().blocks == (b"12345678abcd",)
    setter = read.setter(31, 11)
    assert (setter.blocks, setter.arguments, setter.settable) == ((b"12345678abcd",), None, ("enabled",))
    assert read.params.extra != ctypes.addressof(array)
    start, nbytes = node._block(int(read.params.extra))
    assert (ctypes.string_at(start, nbytes), start) == (b"12345678abcd", setter.address_of(0, 0))


def graphs_of(*inside):
    """A child graph whose nodes these are; what is told of a child graph is the number of its graph."""
    return Told([("graph", 1)], *inside, layouts={9: []})


PLAIN = ("memset", a_fill(value=1)), ("memcpy", a_copy(srcHost=0x77))


@pytest.mark.parametrize(
    ("inside", "blocks"),
    [
        ([[*PLAIN]], (0x300, 1, 0x100, 0x77)),
        ([[*PLAIN[::-1]]], (0x100, 0x77, 0x300, 1)),
        ([[PLAIN[0], ("host", None), ("empty", None), PLAIN[1]]], (0x300, 1, 0x100, 0x77)),
        ([[PLAIN[1], ("graph", 2)], [PLAIN[0]]], (0x100, 0x77, 0x300, 1)),
        ([[("graph", 2), PLAIN[1]], [PLAIN[0]]], (0x300, 1, 0x100, 0x77)),
        ([[("kernel", a_kernel()), PLAIN[0]]], (0x300, 1)),  # a kernel without arguments
        ([[]], ()),
        *(([[PLAIN[0], (kind, None)]], None) for kind in ("mem_alloc", "mem_free", "conditional")),
        ([[PLAIN[0], ("graph", 2)], [("mem_free", None)]], None),
        ([[PLAIN[0], ("memset", a_fill(height=2))]], None),
        ([[PLAIN[0], ("memcpy", a_copy(Height=2))]], None),
        ([[PLAIN[0], ("memcpy", a_copy(dstMemoryType=ARRAY))]], None),
    ],
)
def test_what_a_child_graph_lets_be_changed(inside, blocks):
    own = graphs_of(*inside)
    setter = node.node_setter(own, Graph(0, 11), Handle(31, 11), 0)
    found = setter and tuple(int.from_bytes(each, "little") for each in setter.blocks)
    assert found == blocks


@pytest.mark.parametrize(
    ("place", "programmatic"), [(0, False), (1, False), (2, True), (3, False), (7, False)]
)
def test_the_data_of_a_dependency_says_whether_it_is_programmatic(place, programmatic):
    data = bytearray(8)
    data[place] = 1
    assert nodes.is_programmatic(bytes(data)) is programmatic


def test_dependencies_are_told_by_the_numbers_of_their_nodes(monkeypatch):
    plain, programmatic = bytes(8), bytes((0, 0, 1, 0, 0, 0, 0, 0))
    own = Told([("empty", None), ("host", UnsupportedError("too old.")), ("event_record", None)])
    first, second, third = map(id, own.graphs[0])
    raw = struct.pack("3Q", first, first, second), struct.pack("3Q", third, second, third)
    asked = []
    monkeypatch.setattr(
        nodes, "raw_edges", lambda *args: asked.append(args) or (*raw, plain + programmatic + plain)
    )
    found, edges = node.list_nodes(own, 0)
    assert [(each.id, each.kind) for each in found] == [(0, "empty"), (1, "host"), (2, "event_record")]
    assert edges == [GraphEdge(0, 2), GraphEdge(0, 1, "programmatic"), GraphEdge(1, 2)]
    assert asked == [(own, 0)]


def test_what_is_told_of_hosts_allocations_and_releases():
    host = with_fields(driver.CUDA_HOST_NODE_PARAMS(), fn=driver.CUhostFn(0x51), userData=0x52)
    assert described("host", host).target == 0x51
    allocation = with_fields(driver.CUDA_MEM_ALLOC_NODE_PARAMS(), dptr=driver.CUdeviceptr(0x61), bytesize=77)
    found, read = described("mem_alloc", allocation), told("mem_alloc", allocation).parameters()
    assert (found.target, found.nbytes) == (0x61, 77)
    assert read == ("mem_alloc", (word(0x61),), 77, ())
    released = driver.CUdeviceptr(0x71)
    assert described("mem_free", released).target == 0x71
    assert told("mem_free", released).parameters() == ("mem_free", (word(0x71),), None, ())


@pytest.mark.parametrize(("kind", "make"), [("kernel", a_kernel), ("memcpy", a_copy)])
def test_a_node_is_left_out_in_its_context(kind, make):
    read = told(kind, make(), layouts={9: []})
    setter = read.setter(31, 11)
    for wanted in (False, True):
        setter.enable(wanted)
        assert read.driver.asked[-1] == (11, "cuGraphNodeSetEnabled", 31, read.handle, wanted)


def test_nodes_are_counted():
    own = Told([("empty", None), ("host", None), ("empty", 1)], [], [])
    assert (own.node_count(0), own.node_count(1)) == (3, 0)
    assert nodes.node_handles(own, 1) == []
    assert [nodes.node_handle(own, 0, number) for number in range(3)] == nodes.node_handles(own, 0)
