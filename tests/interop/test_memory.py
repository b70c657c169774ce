"""CuPy's allocations in captures: stand-ins on the software driver (see tests/simulators)."""

import gc
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace

import pytest

import lanes

pytestmark = lanes.require("software_cuda")

import accelerator_graph as ag
from accelerator_graph._core import ownership
from accelerator_graph.interop import registry
from accelerator_graph.interop.base import PoolContents
from interop.fake_warp import warp
from interop.fakes import calls, install
from interop.scene import Array, captured, clean_fixture, cupy_fixture, filled, value  # noqa: F401
from simulators.cuda.faults import Faults
from threads import in_thread


def memory_of(g):
    [there] = [each for each in registry.loaded() if type(each).__name__ == "CuPy"]
    return there._pools[g.pool()]


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_cupy_allocates_in_any_mode_and_from_the_pool(cupy, mode):
    before = cupy.cuda.get_allocator()
    g = ag.Graph()
    kept = []

    def work():
        kept.append(cupy.empty(64))
        kept[0].fill(5)
        cupy.empty(128).fill(1)

    captured(g, work, capture_error_mode=mode)
    assert cupy.cuda.get_allocator() == before
    g.replay()
    assert value(kept[0]) == 5
    assert memory_of(g).pool.used_bytes() == 64
    assert memory_of(g).pool.total_bytes() == 192
    assert cupy.get_default_memory_pool().total_bytes() == 0


def test_each_capture_into_a_pool_allocates_as_its_own_stream_permits(cupy):
    [there], pool, used = registry.loaded(), (0, 77), []

    @contextmanager
    def relaxed(capture):
        used.append(capture)
        yield

    for capture in ("first", "second"):
        leave = there.route(pool, 0, 0, partial(relaxed, capture))
        cupy.empty(64 * (len(used) + 1))
        leave()
    assert used == ["first", "second"]
    there.release(pool)


def test_the_memory_of_a_pool_is_freed_on_every_device_that_it_is_on(cupy):
    [there], pool = registry.loaded(), (0, 78)
    leave = there.route(pool, 0, 0, nullcontext)
    kept = [cupy.empty(64)]
    with cupy.cuda.Device(1):
        kept.append(cupy.empty(128))
    leave()
    assert [
        [(each.address, each.nbytes) for each in there.pool_contents(pool, device).segments]
        for device in (0, 1)
    ] == [[(kept[0].ptr, 64)], [(kept[1].ptr, 128)]]
    kept.clear()
    there.release(pool)
    assert calls["cudaFree"] == 2
    assert not there._ended


def test_what_a_pool_holds_on_each_device(cupy):
    [there], pool = registry.loaded(), (0, 78)
    assert there.pool_contents(pool, 0) == PoolContents()
    leave = there.route(pool, 0, 0, nullcontext)
    kept = {}
    for device, sizes in ((0, (64, 32, 128)), (1, (16, 8))):
        with cupy.cuda.Device(device):
            kept[device] = [cupy.empty(size) for size in sizes]
    leave()
    kept[0].pop()
    found = [there.pool_contents(pool, device) for device in (0, 1)]
    assert [each.used for each in found] == [96, 24]
    for each in found:
        assert [*each.segments] == sorted(each.segments)
    assert [sorted(part.nbytes for part in each.segments) for each in found] == [[32, 64, 128], [8, 16]]
    there._pools[pool]._segments.reverse()
    assert there.pool_contents(pool, 0) == found[0]
    kept.clear()
    there.release(pool)


def test_each_pool_is_freed_by_itself_and_where_its_first_capture_was(cupy):
    [there], first, second, log = registry.loaded(), (0, 78), (0, 79), []

    @contextmanager
    def noted(name):
        log.append((name, calls["cudaFree"]))
        yield
        log.append((f"{name} is over", calls["cudaFree"]))

    kept = []
    for pool in (first, second):
        for _ in range(2):
            leave = there.route(pool, 0, 0, partial(noted, pool))
            kept.append(cupy.empty(64))
            leave()
    log.clear()
    del kept[0]
    there.release(first)
    assert log == [(first, 0), (f"{first} is over", 1)]
    assert [*there._pools] == [second]
    there.release(second)
    assert log[2:] == [(second, 1), (f"{second} is over", 1)]
    assert len(there._ended) == 2
    del kept[1:]
    there.prepare(0)
    assert calls["cudaFree"] == 3
    assert len(there._ended) == 1
    kept.clear()
    there.prepare(0)
    assert (calls["cudaFree"], there._ended) == (4, set())
    there.release(first)  # it is not known any more


@pytest.mark.parametrize("device", [0, 1])
def test_preparing_frees_what_cupy_keeps_on_that_device(cupy, device):
    [there], default = registry.loaded(), cupy.get_default_memory_pool()
    for each in (0, 1):
        with cupy.cuda.Device(each):
            cupy.empty(64)
    there.prepare(device)
    left = []
    for each in (0, 1):
        with cupy.cuda.Device(each):
            left.append(default.total_bytes())
            default.free_all_blocks()
    assert left == [0 if each == device else 64 for each in (0, 1)]


@pytest.mark.parametrize(("which", "byte"), [(0, 1), (1, 0)])
def test_new_memory_is_filled_and_empty_memory_is_not(cupy, which, byte):
    [there], filled_with, settled = registry.loaded(), [], []

    def allocate(size):
        return SimpleNamespace(memset_async=lambda *what: filled_with.append((size, *what)))

    with cupy.cuda.using_allocator(allocate):
        leave = there.fill_new(which, lambda: settled.append(len(filled_with)))
        made = [cupy.cuda.get_allocator()(size) for size in (64, 0)]
        leave()
        assert cupy.cuda.get_allocator() is allocate
    assert None not in made
    assert filled_with == [(64, byte, 64)]
    assert settled == [1]


@pytest.mark.parametrize(
    ("name", "module", "on_array", "enqueues"),
    [
        ("ufunc", "cupy._core._kernel", False, True),
        ("ufunc", "numpy", True, False),
        ("RawKernel", "cupy._core.raw", False, True),
        ("Other", "cupy._core.raw", False, False),
        ("fill", "", True, True),
        ("fill", "", False, False),
        ("tolist", "", True, False),
    ],
)
def test_the_calls_that_enqueue(cupy, monkeypatch, name, module, on_array, enqueues):
    [there] = registry.loaded()
    monkeypatch.setattr(cupy, "ndarray", list, raising=False)
    if module:
        function = type(name, (), {"__module__": module})()
    else:
        function = lambda: None  # noqa: E731
        function.__name__ = name
    assert there.enqueues(function, [] if on_array else ()) is enqueues


@pytest.mark.parametrize("device", [0, 1])
def test_streams_of_a_cupy_that_knows_no_protocol(cupy, monkeypatch, device):
    [there] = registry.loaded()
    monkeypatch.delattr(cupy.cuda.Stream, "from_external")
    with cupy.cuda.Device(device):
        handle = ag.Stream(device, backend="cuda").handle
    undo = there.use_stream(handle, device)
    assert there.current_stream() == there.current_stream(device) == (handle, device)
    assert there.current_stream(1 - device) == (0, 1 - device)
    assert cupy.cuda.get_current_stream(device).device_id == device
    undo()
    assert there.current_stream() == (0, 0)
    assert there.current_stream(device) == (0, device)


@pytest.mark.parametrize("device", [0, 1])
def test_a_pool_ends_with_its_last_array_on_any_device(cupy, device):
    [there], pool = registry.loaded(), (0, 79)
    leave = there.route(pool, 0, 0, nullcontext)
    kept = []
    for each in (0, 1):
        with cupy.cuda.Device(each):
            kept.append(cupy.empty(64))
    leave()
    del kept[1 - device]
    there.release(pool)
    assert calls["cudaFree"] == 1
    assert there._ended
    kept.clear()
    there.prepare(0)
    assert calls["cudaFree"] == 2
    assert not there._ended


def test_without_routing_the_capture_would_break(cupy, monkeypatch):
    """What the routing is for: the test above could fail."""
    [there] = registry.loaded()
    monkeypatch.setattr(there, "route", lambda *_: None)
    with pytest.raises((ag.CaptureError, RuntimeError)):
        captured(ag.Graph(), lambda: cupy.empty(64).fill(1))


def test_what_is_freed_in_a_capture_is_used_again_in_the_pool_alone(cupy):
    seen = []

    def work():
        for _ in range(3):
            seen.append(filled(cupy).ptr)

    s = ag.Stream(backend="cuda")
    a, b, other = ag.Graph(), ag.Graph(), ag.Graph()
    captured(a, work, stream=s)
    captured(b, work, stream=s, pool=a.pool())
    captured(other, work, stream=s)
    assert seen[:6] == [seen[0]] * 6
    assert seen[6] != seen[0]
    with s:
        assert cupy.empty(64).ptr not in seen


def test_memory_lives_until_the_last_graph_of_the_pool_is_reset(cupy):
    a, b = ag.Graph(), ag.Graph()
    captured(a, lambda: cupy.empty(64).fill(1))
    memory = memory_of(a)
    captured(b, lambda: cupy.empty(64).fill(1), pool=a.pool())
    a.reset()
    assert memory.pool.total_bytes() >= 64
    assert calls["cudaFree"] == 0
    b.reset()
    assert memory.pool.total_bytes() == 0
    assert calls["cudaFree"] >= 1


def test_frameworks_are_told_once_and_after_the_executables_are_gone(cupy, monkeypatch):
    install(monkeypatch, "warp", warp())
    told, count = [], Faults("libcuda.so.1").calls
    for there in registry.loaded():

        def release(pool, real=there.release):
            told.append((pool, count()["cuGraphExecDestroy"] - before))
            real(pool)

        monkeypatch.setattr(there, "release", release)
    a, b = ag.Graph(), ag.Graph()
    captured(a, lambda: filled(cupy))
    captured(b, lambda: filled(cupy), pool=a.pool())
    pool, before = a.pool(), count()["cuGraphExecDestroy"]
    a.reset()
    assert told == []
    b.reset()
    assert told == [(pool, 2)] * 2  # each of both


def test_memory_of_a_graph_that_is_collected(cupy):
    g = ag.Graph()
    captured(g, lambda: cupy.empty(64).fill(1))
    del g
    gc.collect()
    ownership.drain()
    assert calls["cudaFree"] == 1


def test_arrays_outlive_their_pool(cupy):
    g, kept = ag.Graph(), []
    captured(g, lambda: kept.extend(filled(cupy) for _ in range(2)))
    g.reset()
    assert calls["cudaFree"] == 0
    kept[0].fill(3)
    assert value(kept[0]) == 3
    kept.clear()
    other = ag.Graph()
    captured(other, lambda: cupy.empty(32).fill(1))
    assert calls["cudaFree"] == 2


def test_memory_is_freed_in_somebodys_capture_without_breaking_it(cupy):
    old, g = ag.Graph(), ag.Graph()
    captured(old, lambda: cupy.empty(64).fill(1))
    x = Array()
    with ag.graph(g):
        ag.current_stream().fill(x.ptr, 5, 64)
        old.reset()
        assert calls["cudaFree"] == 1
    g.replay()
    assert value(x) == 5


def test_when_memory_is_short_nothing_of_a_graph_is_freed(cupy):
    s, a, b = ag.Stream(backend="cuda"), ag.Graph(), ag.Graph()
    captured(a, lambda: cupy.empty(64).fill(1), stream=s)
    Faults("libcuda.so.1").fail("cuMemAlloc", code=2)
    with pytest.raises(MemoryError, match=r"128 bytes \(allocated so far: 64 bytes"):
        captured(b, lambda: cupy.empty(128).fill(1), stream=s, pool=a.pool())
    assert calls["cudaFree"] == 0
    Faults("libcuda.so.1").fail("cuMemAlloc", code=1)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        captured(b, lambda: cupy.empty(128).fill(1), stream=s, pool=a.pool())
    assert calls["cudaFree"] == 0


def test_preparing_frees_what_cupy_keeps(cupy):
    cupy.empty(64)
    assert cupy.get_default_memory_pool().total_bytes() == 64
    g = ag.Graph()
    captured(g, lambda: cupy.empty(8).fill(1), prepare=True)
    assert cupy.get_default_memory_pool().total_bytes() == 0


def test_other_threads_are_not_routed(cupy):
    with ag.graph(ag.Graph()):
        here = cupy.cuda.get_allocator()
        there = in_thread(cupy.cuda.get_allocator)
        cupy.empty(8).fill(1)
    assert there == cupy.get_default_memory_pool().malloc
    assert here != there
