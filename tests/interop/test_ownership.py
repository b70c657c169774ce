"""`Graph.check` on CUDA's driver: planted faults, and right programs that must not be accused.

Blocks are those of a double of torch's caching allocator, on the driver's memory.
"""

import ctypes
import random
import sys
from types import ModuleType, SimpleNamespace

import pytest

import lanes

pytestmark = lanes.require("cuda")

from cuda.bindings import driver

import accelerator_graph as ag
from accelerator_graph import interop
from accelerator_graph.backends import memory
from accelerator_graph.interop import registry
from interop.caching_allocator import CachingAllocator, framework
from interop.fakes import call

NBYTES = 512
PTX = r"""
.version 6.0
.target sm_50
.address_size 64
"""
ENTRY = r"""
.visible .entry %s(%s)
{
    .reg .b64 %%rd<5>;
    .reg .f64 %%f<2>;
    ld.param.u64 %%rd1, [%s];
    ld.param.u64 %%rd2, [%s];
    cvta.to.global.u64 %%rd3, %%rd1;
    cvta.to.global.u64 %%rd4, %%rd2;
    ld.global.f64 %%f1, [%%rd4];
    st.global.f64 [%%rd3], %%f1;
    ret;
}
"""
PTX += ENTRY % ("_Z6assignPdPKd", ".param .u64 a, .param .u64 b", "a", "b")
PTX += ENTRY % ("_Z6assign5Views", ".param .align 8 .b8 p[16]", "p", "p+8")
PTX += ENTRY % ("_Z6assign3Map", ".param .align 64 .b8 p[128]", "p", "p+8")


class Views(ctypes.Structure):
    _fields_ = (("out", ctypes.c_void_p), ("x", ctypes.c_void_p))


class Map(ctypes.Structure):
    _fields_ = (("out", ctypes.c_void_p), ("x", ctypes.c_void_p), ("rest", ctypes.c_char * 112))


class Bench:
    """A stream, an allocator, and every way in which a graph can hold an address."""

    def __init__(self, stream, allocator, module):
        self.stream, self.allocator, self.kept = stream, allocator, []
        self.kernels = {
            name: call(driver.cuModuleGetFunction, module, name.encode())
            for name in ("_Z6assignPdPKd", "_Z6assign5Views", "_Z6assign3Map")
        }

    def tensor(self, pool=(0, 0)):
        return self.allocator.tensor(NBYTES, pool)

    def copy(self, out, x):
        self.stream.copy(out, x, 8)

    def kernel(self, out, x):
        self._launch("_Z6assignPdPKd", ctypes.c_void_p(out), ctypes.c_void_p(x))

    def struct(self, out, x):
        self._launch("_Z6assign5Views", Views(out, x))

    def tensor_map(self, out, x):
        self._launch("_Z6assign3Map", Map(out, x))

    def _launch(self, name, *args):
        self.stream.launch(self.kernels[name], *args, grid=1, block=1)

    def capture(self, how, out, x, *, armed, pool=None, reports=True):
        """A graph that assigns one tensor to another, in one of these ways."""
        g = ag.Graph(not armed, pool=pool, stream=self.stream, observe=ag.ownership() if armed else ())
        with g:
            if armed and reports:
                self.allocator.kind.used(x), self.allocator.kind.used(out)
            getattr(self, how)(out.data_ptr(), x.data_ptr())
        return g


@pytest.fixture(name="bench")
def bench_fixture(monkeypatch):
    monkeypatch.setattr(registry, "_made", {})
    for name in registry.BUILTINS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    with ag.Stream(backend="cuda") as stream:
        call(driver.cuInit, 0)
        before = call(driver.cuCtxGetCurrent)
        call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, 0))
        module = call(driver.cuModuleLoadData, PTX.encode() + b"\0")
        allocator = CachingAllocator(
            lambda nbytes: int(call(driver.cuMemAlloc, nbytes)),
            lambda address: call(driver.cuMemFree, address),
        )
        probe = int(call(driver.cuMemAlloc, 64))
        if memory.is_readable(probe):  # the software driver's memory is the host's
            monkeypatch.setattr(memory, "is_readable", lambda address: False)
        call(driver.cuMemFree, probe)
        doubles = ModuleType("doubles")
        doubles.__file__ = "/nowhere/doubles/__init__.py"
        doubles.cuda = SimpleNamespace(memory=allocator)
        monkeypatch.setitem(sys.modules, "doubles", doubles)
        allocator.kind = framework(allocator, "cuda")
        interop.register("doubles", allocator.kind)
        bench = Bench(stream, allocator, module)
        yield bench
        interop.unregister("doubles")
        stream.synchronize()
        bench.kept.clear()
        for segment in allocator.segments:
            call(driver.cuMemFree, segment["address"])
        call(driver.cuModuleUnload, module)
        call(driver.cuDevicePrimaryCtxRelease, 0)
        call(driver.cuCtxSetCurrent, before)


# ---- planted faults ----------------------------------------------------------------------------


class Owner:
    """What a program holds: an input, a module's parameter, a cache, a buffer of one step."""

    def __init__(self, x):
        self.x = x

    def freed(self, bench):
        del self.x

    def moved(self, bench):
        self.x = bench.tensor()  # as `.to()` does, which copies and lets go

    def replaced(self, bench):
        self.x, old = bench.tensor(), self.x
        bench.kept.append(bench.tensor())
        del old


LOSSES = {"an input": "freed", "an input, by to()": "moved", "a parameter": "replaced", "a cache": "replaced"}
LOSSES |= {"a step's buffer": "freed"}
WAYS = ["copy", "kernel", "struct", "tensor_map"]


def found_at(g, address):
    """The verdicts about an address, with what is surely said of none left out."""
    check = g.check()
    assert ag.MemoryCheck.from_json(check.to_json()) == check
    return {each.verdict for each in check.findings if each.address == address}


def verdict_of_unmapped(address, kernel=True):
    """What is said of an address that the driver doesn't know, and that nothing but the driver knows of.

    Where other memory ends there, a kernel may have it as the end of that.
    """
    memory_type = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    code, kinds = driver.cuPointerGetAttributes(1, [memory_type], address - 1)
    return "may" if kernel and not code and int(kinds[0]) else "freed"


@pytest.mark.promise("verdicts-of-a-check", "what-may-be-an-address")
@pytest.mark.parametrize("armed", [False, True], ids=["unarmed", "armed"])
@pytest.mark.parametrize("reused", [False, True], ids=["free", "reused"])
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("what", LOSSES)
def test_memory_that_is_lost(bench, what, how, reused, armed):
    owner, out = Owner(bench.tensor()), bench.tensor()
    g = bench.capture(how, out, owner.x, armed=armed)
    address = owner.x.data_ptr()
    assert found_at(g, address) <= {"note"}
    getattr(owner, LOSSES[what])(bench)
    while reused and address not in [each.data_ptr() for each in bench.kept]:
        bench.kept.append(bench.tensor())
    sure = how in ("copy", "kernel")
    if armed:
        assert found_at(g, address) == {"freed"}
        with pytest.raises(ag.GraphStateError, match="is gone, and a replay would use"):
            g.replay()
    elif reused:
        assert found_at(g, address) == ({"note"} if sure else set())
    else:
        assert found_at(g, address) == ({"freed"} if sure else {"may"})
    if not armed and not sure:
        assert g.check().wrong == ()


def test_all_segments_of_a_graph_with_breaks_are_looked_at(bench):
    out, between, x = (bench.tensor() for _ in range(3))  # else x begins where out ends
    g, made = ag.Graph(True, stream=bench.stream), [between]

    @ag.eager
    def call():
        made.append(bench.tensor())
        return made[-1]

    with ag.graph(g, breaks=True):
        bench.copy(out.data_ptr(), out.data_ptr() + 8)
        result = call()
        bench.copy(out.data_ptr(), result.data_ptr())
        ag.graph_break()
        with ag.label("last"):
            bench.kernel(out.data_ptr(), x.data_ptr())
    address, kept = x.data_ptr(), result.data_ptr()
    del x, result
    made.clear()
    assert found_at(g, kept) == set()
    (finding,) = g.check().wrong
    assert (finding.address, finding.node, finding.label) == (address, 3, "last")
    assert g.describe().nodes[finding.node].kind == "kernel"


@pytest.mark.parametrize("armed", [False, True], ids=["unarmed", "armed"])
@pytest.mark.parametrize("how", WAYS)
def test_the_cache_was_emptied(bench, how, armed):
    x, out = bench.tensor(), bench.tensor()
    g = bench.capture(how, out, x, armed=armed)
    address = x.data_ptr()
    del x, out
    bench.allocator.empty_cache()
    sure = how in ("copy", "kernel")
    verdict = "freed" if armed else verdict_of_unmapped(address, how == "kernel")
    assert found_at(g, address) == ({verdict} if armed or sure else set())
    if sure and not armed:
        assert "is not mapped" in str(g.check())


@pytest.mark.parametrize("armed", [False, True], ids=["unarmed", "armed"])
@pytest.mark.parametrize("how", WAYS)
def test_a_pool_mates_block_after_its_reset(bench, how, armed):
    pool = ag.graph_pool_handle()
    x, out = bench.tensor(pool), bench.tensor(pool)
    mate = bench.capture("copy", x, x, armed=False, pool=pool)
    g = bench.capture(how, out, x, armed=armed, pool=pool, reports=False)  # arrays of the pool are left out
    del x, out
    mate.reset()
    assert g.check().findings == ()
    g.replay()


@pytest.mark.parametrize("armed", [False, True], ids=["unarmed", "armed"])
@pytest.mark.parametrize("alive", [False, True], ids=["free", "alive"])
@pytest.mark.parametrize("how", WAYS)
def test_a_block_of_another_graphs_pool(bench, how, alive, armed):
    pool = ag.graph_pool_handle()
    other = bench.capture("copy", *[bench.tensor(pool)] * 2, armed=False, pool=pool)
    x, out = bench.tensor(pool), bench.tensor()
    g = bench.capture(how, out, x, armed=armed)
    address = x.data_ptr()
    if not alive:
        del x
    sure = how in ("copy", "kernel")
    expected = {"note"} if alive else {"another's"} if sure else {"may"}
    if armed:
        expected = set() if alive else {"freed"}
    elif alive and not sure:
        expected = set()
    assert found_at(g, address) == expected
    assert other.check().wrong == ()


@pytest.mark.parametrize("armed", [False, True], ids=["unarmed", "armed"])
def test_a_cupy_array(bench, armed):
    """CuPy does not tell its blocks: the driver does, and a weak reference."""

    class Memory:
        def __init__(self):
            self.ptr, self.size = int(call(driver.cuMemAlloc, NBYTES)), NBYTES

        def __del__(self):
            driver.cuMemFree(self.ptr)

    class Array:
        __cuda_array_interface__ = property(lambda self: pytest.fail("it may synchronise"))

        def __init__(self):
            self.data = SimpleNamespace(mem=Memory())
            self.data.ptr, self.shape = self.data.mem.ptr, (NBYTES,)

    x = Array()
    with ag.Graph(True, stream=bench.stream) as g:
        bench.kernel(x.data.ptr, x.data.ptr)
        if armed:
            g.watch(x)
    address = x.data.ptr
    assert found_at(g, address) == (set() if armed else {"unknown"})
    del x
    assert found_at(g, address) == {"freed" if armed else verdict_of_unmapped(address)}


def test_an_end_pointer_is_not_accused(bench):
    """A kernel may get the end of an array, which is where the next block begins, or nothing."""
    x, behind = bench.tensor(), bench.tensor()
    assert behind.data_ptr() == x.data_ptr() + NBYTES
    with ag.Graph(True, stream=bench.stream) as g:
        bench.kernel(x.data_ptr() + NBYTES, x.data_ptr())
    with ag.Graph(True, stream=bench.stream) as other:
        bench.kernel(behind.data_ptr(), behind.data_ptr())
    address = behind.data_ptr()
    del behind
    assert found_at(g, address) == {"may"}
    assert found_at(other, address) == {"freed"}
    memory = int(call(driver.cuMemAlloc, NBYTES))
    with ag.Graph(True, stream=bench.stream) as g:
        bench.kernel(memory + NBYTES, memory)
    assert found_at(g, memory + NBYTES) <= {"may", "unknown"}
    call(driver.cuMemFree, memory)


# ---- right programs ----------------------------------------------------------------------------


@pytest.mark.promise("verdicts-of-a-check")
@pytest.mark.parametrize("seed", [1, 2])
def test_right_programs_in_one_process(bench, seed):
    """No false "freed" and no false "another's", whatever was freed and emptied in between."""
    choose = random.Random(seed)
    graphs, pools = [], [ag.graph_pool_handle() for _ in range(2)]
    weights = [bench.tensor((0, 77)) for _ in range(3)]  # a pool that holds weights
    for program in range(40):
        armed = choose.random() < 0.5
        pool = choose.choice([None, *pools])
        own = pool or (0, 0)
        kept = [bench.tensor() for _ in range(choose.randint(1, 4))]
        inner = [bench.tensor(own) for _ in range(choose.randint(0, 3))]
        g = ag.Graph(not armed, pool=pool, stream=bench.stream, observe=ag.ownership() if armed else ())
        with g:
            for _ in range(choose.randint(1, 6)):
                out, x = choose.choice(kept + inner), choose.choice(kept + inner + weights)
                if armed:
                    for each in (out, x):
                        if each not in inner:
                            bench.allocator.kind.used(each)
                getattr(bench, choose.choice(WAYS))(out.data_ptr(), x.data_ptr())
        if pool is None:
            kept += inner  # what is not in the graph's own pool has to live
        inner = None
        how = choose.choice(["nothing", "retain", "watch"])
        if how != "nothing":
            getattr(g, how)(kept[0])
        graphs.append((g, kept))
        if choose.random() < 0.4 and len(graphs) > 3:
            graphs.pop(choose.randrange(len(graphs)))
        if choose.random() < 0.3:
            bench.allocator.empty_cache({each.pool() for each, _ in graphs})
        for each, _ in graphs:
            check = each.check()
            assert check.wrong == (), (program, str(check))
            if choose.random() < 0.5:
                each.replay()
    bench.stream.synchronize()
    assert len(graphs) > 10
