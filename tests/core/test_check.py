"""`Graph.check`: every verdict of the guide's table, on the CPU backend and a double of torch's allocator."""

import ctypes
import sys
from types import ModuleType, SimpleNamespace

import pytest

import accelerator_graph as ag
from accelerator_graph import interop
from accelerator_graph._checking.pointers import addresses, parameter_types
from accelerator_graph._core import capture_table
from accelerator_graph.backends.base import GraphNode, NodeParameters, NodeSetter, word
from accelerator_graph.backends.cpu import CpuBackend
from interop.caching_allocator import CachingAllocator, framework

HERE = __file__


class Memory:
    """The driver's memory, on the host: what was freed stays there, and the driver says that it is gone."""

    def __init__(self):
        self.buffers = {}

    def allocate(self, nbytes):
        buffer = ctypes.create_string_buffer(nbytes + 4096)
        self.buffers[address := ctypes.addressof(buffer)] = [buffer, nbytes, True]
        return address

    def release(self, address):
        self.buffers[address][2] = False

    def at(self, address):
        for start, (_, nbytes, alive) in self.buffers.items():
            if start <= address < start + nbytes:
                return "there" if alive else "gone"
        return None


@pytest.fixture(name="memory")
def memory_fixture(monkeypatch):
    memory = Memory()
    monkeypatch.setattr(
        CpuBackend, "memory_at", lambda self, graph, addresses: [memory.at(each) for each in addresses]
    )
    return memory


@pytest.fixture(name="allocator")
def allocator_fixture(monkeypatch, memory):
    allocator = CachingAllocator(memory.allocate, memory.release)
    doubles = ModuleType("doubles")
    doubles.__file__ = "/nowhere/doubles/__init__.py"
    doubles.cuda = SimpleNamespace(memory=allocator)
    monkeypatch.setitem(sys.modules, "doubles", doubles)
    interop.register("doubles", allocator_kind := framework(allocator, "cpu"))
    allocator.kind = allocator_kind
    yield allocator
    interop.unregister("doubles")


@pytest.fixture(name="stream")
def stream_fixture():
    with ag.Stream(backend="cpu") as stream:
        yield stream


def captured(stream, *copies, **options):
    """A graph of copies between addresses, of 8 bytes each; of tensors, the framework reports the use."""
    g = ag.Graph(**{"keep_graph": True, "stream": stream, **options})
    with g:
        for pair in copies:
            for each in pair:
                used = getattr(sys.modules.get("doubles"), "used", None)
                if used is not None and not isinstance(each, int):
                    used(each)
            stream.copy(*map(address_of, pair), 8)
    return g


def address_of(obj):
    return obj if isinstance(obj, int) else obj.data_ptr()


def verdicts(g):
    check = g.check()
    assert ag.MemoryCheck.from_json(check.to_json()) == check
    assert str(check)
    return [each.verdict for each in check.findings]


def node(number, kind="kernel", **how):
    return GraphNode(number, kind, **how)


# ---- what is a pointer -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signature", "types"),
    [
        ("add(float*, float const*, int)", ["float*", "float const*", "int"]),
        ("void ns::f<4, (Kind)2>(std::array<char*, 2ul>, T<a, b>)", ["std::array<char*, 2ul>", "T<a, b>"]),
        ("f()", []),
        ("f(void (*)(int, int), unsigned long)", ["void (*)(int, int)", "unsigned long"]),
        ("g<h::operator()(int)::{lambda(int)#1}>(int*)", ["int*"]),
        ("triton_poi_fused_0", None),
        ("broken)", None),
    ],
)
def test_the_types_of_parameters(signature, types):
    assert parameter_types(signature) == types


FIRST, SECOND = 0x7F00_0000_0000, 0x7F00_0000_1000


@pytest.mark.parametrize(
    ("name", "blocks", "found"),
    [
        (
            "_Z3addPfPKfi",  # add(float*, float const*, int)
            [word(FIRST), word(SECOND), bytes(4)],
            [("argument 0", FIRST, True), ("argument 1", SECOND, True)],
        ),
        ("_Z1fm", [word(FIRST)], [("argument 0", FIRST, False)]),  # f(unsigned long)
        (
            "_Z1fSt5arrayIPcLm2EE",  # f(std::array<char*, 2ul>)
            [word(FIRST) + word(SECOND)],
            [("argument 0, byte 0", FIRST, True), ("argument 0, byte 8", SECOND, True)],
        ),
        ("_Z1f5Views", [word(FIRST)], [("argument 0", FIRST, False)]),
        ("_Z3addPfPKfi", [word(FIRST)], [("argument 0", FIRST, False)]),  # not as many as the name says
        ("plus", [word(FIRST), word(12), word(0)], [("argument 0", FIRST, False)]),
    ],
)
def test_a_kernels_words(name, blocks, found):
    kernel = node(0, name=name, arguments=tuple(map(len, blocks)))
    told = addresses([kernel], [NodeParameters("kernel", tuple(blocks))], {})
    assert [(each.argument, each.address, each.sure) for each in told.pointers] == found
    assert told.unread == 0


def test_nodes_whose_memory_the_driver_does_not_report():
    nodes = [
        node(0),
        node(1, "memset"),
        node(2, "memcpy", target=FIRST),  # what it reads is not known
        node(3, "conditional"),
        node(4, "conditional", bodies=(([], []),)),
        node(5, "memset", target=FIRST),
        node(6, "host"),
    ]
    assert addresses(nodes, [NodeParameters(each.kind, None) for each in nodes], {}).unread == 4


def test_copies_without_parameters_are_those_of_the_description():
    copy = node(0, "memcpy", source=FIRST, target=SECOND)
    told = addresses([copy], [NodeParameters("memcpy", None)], {})
    assert [(each.argument, each.address) for each in told.pointers] == [
        ("target", SECOND),
        ("source", FIRST),
    ]


def test_the_present_parameters_count_also_inside_a_child_graph():
    inner = [node(0, "memset", target=FIRST), node(1, "memcpy", target=FIRST, source=FIRST)]
    parameters = [
        NodeParameters("memset", (word(FIRST), bytes(4))),
        NodeParameters("memcpy", (word(FIRST), word(FIRST))),
    ]
    child = node(0, "graph", bodies=((inner, []),))
    blocks = [ctypes.create_string_buffer(each, len(each)) for of in parameters for each in of.blocks]
    places = [(ctypes.addressof(each), len(each)) for each in blocks]
    setter = NodeSetter("graph", places, lambda: None)
    setter.write([word(SECOND), *setter.blocks[1:]])
    told = addresses([child], [NodeParameters("graph", inside=tuple(parameters))], {(0,): setter})
    assert [each.address for each in told.pointers] == [SECOND, FIRST, FIRST]
    copy = NodeSetter("memcpy", places[2:], lambda: None)
    copy.write([word(FIRST), word(SECOND)])
    told = addresses([child], [NodeParameters("graph", inside=tuple(parameters))], {(0, 1): copy})
    assert [each.address for each in told.pointers] == [FIRST, FIRST, SECOND]
    assert told.pointers[0].inside == (child,)


def test_a_disabled_node_reads_nothing_and_a_graphs_own_allocations_are_its_own():
    off = node(0, "memset", target=FIRST, enabled=False)
    own = node(1, "mem_alloc", target=SECOND, nbytes=64)
    told = addresses(
        [off, own], [NodeParameters("memset", (word(FIRST), bytes(4))), NodeParameters("mem_alloc", ())], {}
    )
    assert told.pointers == []
    assert told.own == [range(SECOND, SECOND + 64)]


# ---- the table of verdicts ---------------------------------------------------------------------


def test_what_the_graph_keeps_is_its_own(stream):
    a, b = bytearray(64), bytearray(64)
    with ag.Graph(keep_graph=True, stream=stream) as g:
        stream.fill(a, 1)
        stream.copy(b, a)
    with ag.Graph(keep_graph=True, stream=stream) as outer:
        g.replay(stream)
    for each in (g, outer):
        check = each.check()
        assert (check.addresses, check.findings, check.wrong) == (3, (), ())


def test_alive_and_known(stream, allocator):
    x, y, z = (allocator.tensor(64) for _ in range(3))
    g = captured(stream, (x, y), (z, y))
    g.retain([x, {"y": y}])
    g.watch(z)
    assert verdicts(g) == []


def test_alive_and_not_known_is_a_note_said_once(stream, allocator):
    x, y = allocator.tensor(64), allocator.tensor(64)
    g = captured(stream, (x, y), (y, x))
    assert verdicts(g) == ["note"] * 4
    assert g.check().wrong == ()
    lines = str(g.check()).splitlines()
    assert lines == [
        "memory of a graph of cpu, device 0: nothing is wrong",
        "note: 4 addresses of nodes 0 and 1: each lies in a live block of doubles's allocator, which nobody "
        "is known to keep for the graph",
    ]


@pytest.mark.promise("verdicts-of-a-check", "armed-graphs-are-checked")
@pytest.mark.parametrize("armed", [False, True])
@pytest.mark.parametrize("how", ["free", "reused", "unmapped"])
def test_freed(stream, allocator, armed, how):
    x, y = allocator.tensor(64), allocator.tensor(8000)
    kept = [y]
    g = ag.Graph(True, stream=stream, observe=ag.ownership() if armed else ())
    with g:
        if armed:
            assert allocator.kind.used is not None
            allocator.kind.used(x), allocator.kind.used(y)
        stream.copy(y.data_ptr(), x.data_ptr(), 8)
    g.instantiate()
    where = x.data_ptr()
    del x
    if how == "reused":
        kept.append(allocator.tensor(64))
        assert kept[-1].data_ptr() == where
    if how == "unmapped":
        kept.clear()
        del y
        allocator.empty_cache()
        assert not allocator.segments
    check = g.check()
    found = {each.argument: each.verdict for each in check.findings}
    if how == "reused" and not armed:
        assert found["source"] == "note"  # nobody can know
        assert check.wrong == ()
        return
    assert found["source"] == "freed"
    [wrong] = [each for each in check.wrong if each.argument == "source"]
    assert (wrong.node, wrong.address) == (0, where)
    assert str(wrong) in str(check)
    if armed:
        assert "doubles.Tensor of shape (512,), uint8, at 0x" in wrong.array
        assert wrong.history.freed.startswith(f"{HERE}:")
        with pytest.raises(ag.GraphStateError, match=r"node 0 \(memcpy\), source: 0x"):
            g.replay()
    else:
        said = {"free": "lies in a free block of doubles's allocator", "unmapped": "is not mapped"}
        assert said[how] in str(wrong)
        g.replay()
        stream.synchronize()


def test_the_lines_that_allocated_and_freed_it_if_that_is_recorded(stream, allocator):
    allocator.traces = []
    x = allocator.tensor(64)
    g = captured(stream, (x, x))
    assert verdicts(g) == ["note"] * 2
    del x
    wrong = g.check().wrong
    assert len(wrong) == 2
    assert all(
        each.history.allocated.startswith(f"{HERE}:") and each.history.freed.startswith(f"{HERE}:")
        for each in wrong
    )
    assert f"allocated at {HERE}:" in str(wrong[0])


def test_the_graphs_own_pool_is_fine_until_its_segment_is_gone(stream, allocator):
    pool = ag.graph_pool_handle()
    x = allocator.tensor(64, pool)
    g = captured(stream, (x, x), pool=pool)
    assert verdicts(g) == []
    del x
    assert verdicts(g) == []
    allocator.empty_cache()  # torch would not: the pool is in use
    assert verdicts(g) == ["freed"] * 2


@pytest.mark.parametrize("whose", ["another's", "torch's", "nobody's"])
def test_other_pools(stream, allocator, whose):
    pool = {"torch's": (7, 0), "nobody's": (0, 7)}.get(whose) or ag.graph_pool_handle()
    other = captured(stream, (1 << 40, 1 << 40), pool=pool) if whose == "another's" else None
    x = allocator.tensor(64, pool)
    g = captured(stream, (x, x))
    assert verdicts(g) == ["note"] * 2  # pools of weights and caches are pools, too
    del x
    assert verdicts(g) == ["unknown" if whose == "nobody's" else "another's"] * 2
    assert other is None or other.pool() == pool


def test_a_pool_mates_block_after_its_reset(stream, allocator):
    pool = ag.graph_pool_handle()
    x = allocator.tensor(64, pool)
    mate, g = captured(stream, (x, x), pool=pool), captured(stream, (x, x), pool=pool)
    del x
    mate.reset()
    assert verdicts(g) == []


@pytest.mark.parametrize("where", ["the body of a loop", "a graph inside", "a segment"])
def test_pools_of_parts_are_the_graphs_own(stream, allocator, where):
    """Even once their blocks are free, and nobody else has the pool."""

    def work():
        [capture] = capture_table.thread.unfinished.values()
        x = allocator.tensor(64, capture.lease.id)
        stream.copy(x.data_ptr(), x.data_ptr(), 8)
        pools.append(capture.lease.id)

    pools, inner, g = [], ag.Graph(True, stream=stream), ag.Graph(True, stream=stream)
    with inner:
        work()
    with ag.graph(g, breaks=where == "a segment"):
        if where == "the body of a loop":
            ag.while_((bytearray(1), "bool"), work)
        elif where == "a graph inside":
            inner.replay(stream)
        else:
            work()
            ag.graph_break()
            work()
    inner.reset()
    assert len({*pools}) == (1 if where == "a graph inside" else 2)
    assert (g.pool() in pools) is (where == "a segment")
    assert g.check().addresses >= 2
    assert verdicts(g) == []


def test_memory_of_no_allocator(stream, memory):
    where = memory.allocate(64)
    g = captured(stream, (where, where), (1 << 40, where))
    assert verdicts(g) == ["unknown"] * 4
    memory.release(where)
    assert sorted(verdicts(g)) == ["freed"] * 3 + ["unknown"]


def test_what_set_node_has_written_counts(stream, allocator):
    x, y = allocator.tensor(64), allocator.tensor(64)
    g = ag.Graph(True, stream=stream, observe=ag.ownership())
    with g:
        allocator.kind.used(x)
        stream.copy(x.data_ptr(), x.data_ptr(), 8)
    g.instantiate()
    g.set_node(0, source=y.data_ptr(), target=y.data_ptr())
    del x
    assert verdicts(g) == ["note"] * 2
    g.replay()  # the array that is gone is not used any more
    stream.synchronize()
    g.instantiate()  # without the change
    assert verdicts(g) == ["freed"] * 2
    with pytest.raises(ag.GraphStateError, match=r"^2 arrays that the graph uses are gone, "):
        g.replay()


def test_memory_that_moved(stream, allocator):
    x = allocator.tensor(64)
    g = captured(stream, (x, x))
    g.watch(x)
    assert verdicts(g) == []
    storage = x.untyped_storage()
    storage._address += 1 << 20
    assert verdicts(g) == ["freed"] * 2
    assert "given other memory" in str(g.check())


def test_an_array_that_no_word_points_to(stream, allocator):
    x, y = allocator.tensor(64), allocator.tensor(64)
    g = captured(stream, (y, y))
    g.watch(x)
    g.retain(y)
    del x
    [finding] = g.check().wrong
    assert (finding.node, finding.address) == (None, None)
    assert finding.array.startswith("doubles.Tensor")


def test_the_label_of_a_node(stream, allocator):
    x = allocator.tensor(64)
    with ag.Graph(True, stream=stream) as g, ag.label("attention"):
        stream.copy(x.data_ptr(), x.data_ptr(), 8)
    del x
    assert {each.label for each in g.check().wrong} == {"attention"}
    assert "in 'attention'" in str(g.check())


# ---- armed and unarmed -------------------------------------------------------------------------


def test_a_graph_that_was_not_kept_can_not_be_read(stream):
    g = captured(stream, (1 << 40, 1 << 40), keep_graph=False)
    with pytest.raises(ag.GraphStateError, match=r"^Graph\.check\(\): the graph was not kept; "):
        g.check()


def test_an_armed_graph_is_kept(stream, allocator):
    x = allocator.tensor(64)
    g = captured(stream, (x, x), keep_graph=False, observe=ag.ownership())
    g.replay()
    assert verdicts(g) == ["note"] * 2


@pytest.mark.promise("armed-replays-cost-nothing")
@pytest.mark.parametrize(("every", "checks"), [(0, 1), (1, 7), (3, 3)])
def test_how_often_replays_are_checked(stream, allocator, monkeypatch, every, checks):
    x = allocator.tensor(64)
    g = captured(stream, (x, x), observe=ag.ownership(every))
    launch = g.bind()
    for _ in range(3):
        g.replay(), launch()
    g.replay(stream)
    stream.synchronize()
    assert allocator.snapshots == checks


@pytest.mark.parametrize(("every", "error"), [(-1, ValueError), ("1", TypeError), (True, TypeError)])
def test_every_is_a_number(every, error):
    with pytest.raises(error, match=r"^ownership: every must"):
        ag.ownership(every)


def test_the_variable_says_how_often(stream, allocator, monkeypatch):
    monkeypatch.setenv("ACCELERATOR_GRAPH_CHECK", "every:2")
    x = allocator.tensor(64)
    g = captured(stream, (x, x), keep_graph=False)
    for _ in range(4):
        g.replay()
    stream.synchronize()
    assert allocator.snapshots == 2


def test_the_first_replay_finds_what_no_framework_has_seen(stream, allocator):
    x = allocator.tensor(64)
    g = captured(stream, (x, x), observe=ag.ownership())
    del x
    with pytest.raises(ag.GraphStateError, match="Memory that the graph uses is gone, and a replay"):
        g.replay()


def test_what_a_check_costs(stream, allocator, monkeypatch):
    """At most two descriptions and one snapshot; nothing is asked for the history if nothing is wrong."""
    x = allocator.tensor(64)
    g = captured(stream, *[(x, x)] * 50)
    asked = []
    for name in ("nodes", "parameters"):
        method = getattr(CpuBackend, name)
        monkeypatch.setattr(
            CpuBackend, name, lambda self, graph, f=method, n=name: (asked.append(n), f(self, graph))[1]
        )
    monkeypatch.setattr(allocator.kind, "history", lambda *_: pytest.fail("nothing is wrong"))
    allocator.snapshots = 0
    g.check()
    assert sorted(asked) == ["nodes", "parameters"]
    assert allocator.snapshots == 1
    g.check()  # a later one reads no definition
    assert len(asked) == 2
    assert allocator.snapshots == 2
