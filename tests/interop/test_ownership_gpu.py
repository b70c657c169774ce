"""`Graph.check` with torch and CuPy on a GPU: planted faults, right programs, and what a check costs."""

import gc
import random
import statistics
import time

import pytest

import lanes

pytestmark = lanes.require("gpu", "torch")
torch = pytest.importorskip("torch")

import accelerator_graph as ag
from interop.test_ownership import verdict_of_unmapped

SIZE = 1 << 16
ARMED = pytest.mark.parametrize("armed", [False, True], ids=["unarmed", "armed"])
REUSED = pytest.mark.parametrize("reused", [False, True], ids=["free", "reused"])


def made(n=SIZE):
    return torch.ones(n, device="cuda")


def add(out, x):  # a kernel with an array of pointers
    torch.add(x, 1, out=out)


def copy(out, x):  # a copy
    out.copy_(x)


def reduce(out, x):  # a kernel with its pointers in a structure
    torch.sum(x, 0, out=out[0])


def captured(work, *args, armed, **how):
    g = ag.Graph(not armed, observe=ag.ownership() if armed else (), **how)
    torch.cuda.synchronize()
    with ag.graph(g):
        work(*args)
    return g


def found_at(g, start, nbytes=4 * SIZE):
    check = g.check()
    assert ag.MemoryCheck.from_json(check.to_json()) == check
    return {each.verdict for each in check.findings if start <= (each.address or 0) < start + nbytes}


def refused(g):
    with pytest.raises(ag.GraphStateError, match=r"gone, and a replay would use"):
        g.replay()


class Owner:
    """What holds an array, and how it loses it."""

    def __init__(self):
        self.x = made()

    def freed(self):
        del self.x

    def moved(self):
        self.x = self.x.to(torch.float64)

    def replaced(self):
        self.x = torch.zeros(2 * SIZE, device="cuda")


@ARMED
@REUSED
@pytest.mark.parametrize("work", [add, copy, reduce])
@pytest.mark.parametrize("loss", ["freed", "moved", "replaced"])
def test_memory_that_is_lost(loss, work, reused, armed):
    """An input, one moved by `.to()`, a parameter, a cache, a buffer of one step."""
    owner, out = Owner(), made()
    g = captured(work, out, owner.x, armed=armed)
    address = owner.x.data_ptr()
    assert found_at(g, address) <= {"note"}
    getattr(owner, loss)()
    torch.cuda.synchronize()
    kept = []
    while reused and not any(each.data_ptr() == address for each in kept):
        kept.append(made())
        assert len(kept) < 10_000
    sure = work is not reduce
    if armed:
        assert found_at(g, address) == {"freed"}
        refused(g)
    elif reused:
        assert found_at(g, address) == ({"note"} if sure else set())
    else:
        assert found_at(g, address) == ({"freed"} if sure else {"may"})


def test_a_module_moved_in_place():
    module = torch.nn.Linear(256, 256, bias=False).cuda()
    x, weight = made(256 * 256).view(256, 256), module.weight.data_ptr()
    with torch.no_grad():
        module(x)
        g = captured(module, x, armed=True)
        module.to(torch.float16)
    torch.cuda.synchronize()
    assert found_at(g, weight) <= {"freed"}
    refused(g)


@ARMED
@pytest.mark.parametrize("work", [add, copy])
def test_the_cache_was_emptied(work, armed):
    x = torch.ones(64 << 20, device="cuda")  # a segment of its own
    out = made(64 << 20)
    g = captured(work, out, x, armed=armed)
    address = x.data_ptr()
    del x
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert found_at(g, address) == {"freed" if armed else verdict_of_unmapped(address, work is add)}
    if not armed:
        assert "is not mapped" in str(g.check())


@ARMED
@pytest.mark.parametrize("whose", ["a pool mate's", "another's"])
def test_memory_of_pools(whose, armed):
    pool = ag.graph_pool_handle()
    kept = []
    first = captured(lambda: kept.append(made() + 1), armed=False, pool=pool)
    [y] = kept
    out = made()
    g = captured(add, out, y, armed=armed, pool=pool if whose == "a pool mate's" else None)
    address = y.data_ptr()
    assert found_at(g, address) <= {"note"}
    kept.clear()
    del y
    if whose == "a pool mate's":
        first.reset()
        assert found_at(g, address) == set()
    else:
        assert found_at(g, address) == {"freed" if armed else "another's"}


@ARMED
def test_a_cupy_array(armed):
    cupy = pytest.importorskip("cupy")
    x = cupy.ones(SIZE, dtype=cupy.float32)
    address = x.data.ptr
    g = ag.Graph(keep_graph=True)
    cupy.cuda.Device().synchronize()
    with ag.graph(g):
        x *= 2
        if armed:
            g.watch(x)
    assert found_at(g, address) <= {"unknown", "note"}
    del x
    cupy.get_default_memory_pool().free_all_blocks()
    assert found_at(g, address) == {"freed"} or not armed  # its kernels have no C++ signature


def test_the_lines_are_named_if_torch_records_them():
    torch.cuda.memory._record_memory_history()
    try:
        x, out = made(), made()
        g = captured(add, out, x, armed=False)
        del x
        [wrong] = g.check().wrong
        assert __file__ in wrong.history.allocated
        assert __file__ in wrong.history.freed
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


# ---- right programs ----------------------------------------------------------------------------


def elementwise(x):
    return (x * 2 + 1).relu()


def matmul(x):
    y = x.view(256, -1)
    return y @ y.t()


def norm(x):
    return torch.nn.functional.layer_norm(x.view(64, -1), (x.numel() // 64,)).softmax(-1)


def conv(x):
    return torch.nn.functional.conv1d(x.view(1, 4, -1), made(4 * 4 * 3).view(4, 4, 3))


def indexed(x):
    return x[torch.argsort(x)[: x.numel() // 2]].cumsum(0)


def random_numbers(x):
    return x + torch.rand_like(x)


PROGRAMS = [elementwise, matmul, norm, conv, indexed, random_numbers]


@ARMED
def test_right_programs_in_one_process(armed):
    """Forty, with the former's tensors freed between them and the cache emptied at random."""
    choose = random.Random(armed)
    graphs = []
    pool, weights = torch.cuda.MemPool(), []
    with torch.cuda.use_mem_pool(pool):
        weights.append(made())  # a pool that holds weights is a pool, too
    for program in range(40):
        function = choose.choice(PROGRAMS)
        x = choose.choice([weights[0], made()])
        function(x)
        shared = choose.choice([None, graphs[-1][0].pool()]) if graphs else None
        outputs = []
        g = captured(lambda f, x, out: out.append(f(x)), function, x, outputs, armed=armed, pool=shared)
        if choose.random() < 0.5:
            outputs.clear()  # the next piece keeps them weakly, as engines do
        graphs.append((g, x, outputs))
        if len(graphs) > 5:
            graphs.pop(choose.randrange(len(graphs) - 1))
        gc.collect()
        if choose.random() < 0.3:
            torch.cuda.empty_cache()
        for each, *_ in graphs:
            check = each.check()
            assert check.wrong == (), f"program {program}, {function.__name__}:\n{check}"
            each.replay()
    torch.cuda.synchronize()


def test_a_bound_graph_after_its_inputs_moved():
    @ag.graphed(warmup=1, inputs="bind", check=True)
    def f(x):
        return x * 2 + 1

    with torch.cuda.stream(torch.cuda.Stream()):
        for i in range(8):
            x = torch.full((SIZE,), float(i), device="cuda")
            assert (f(x) == 2 * i + 1).all()
            del x
            torch.cuda.empty_cache()


# ---- what it costs -----------------------------------------------------------------------------


def least(call, runs=7):
    found = []
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def test_a_check_costs_at_most_two_descriptions_and_a_snapshot():
    x, out = made(), made()

    def work():
        for _ in range(200):
            torch.add(x, 1, out=out)

    g = captured(work, armed=True)
    check, describe = least(g.check), least(g.describe)
    snapshot = least(torch.cuda.memory_snapshot)
    assert check < 1.2 * (2 * describe + snapshot), (check, describe, snapshot)
