"""What frameworks have in a graph's pool, and which of it a graph uses: stand-ins on the software driver."""

import pytest

import lanes

pytestmark = lanes.require("software_cuda")

import accelerator_graph as ag
from accelerator_graph.interop import torch as interop_torch
from accelerator_graph.interop.base import PoolContents
from interop import fake_torch as interop_fake_torch
from interop.scene import Array, captured, clean_fixture, cupy_fixture, filled, torch_fixture  # noqa: F401


@pytest.fixture(name="segments")
def segments_fixture(monkeypatch):
    monkeypatch.setattr(interop_fake_torch, "segments", found := [])
    return found


def segment(array, pool, used, device=0):
    return {
        "device": device,
        "address": array.ptr,
        "total_size": array.nbytes,
        "allocated_size": used,
        "segment_pool_id": pool,
    }


def filling(torch, *arrays):
    """Return work that fills arrays."""

    def work():
        for array in arrays:
            torch.rand(array)

    return work


def test_torchs_segments_and_those_that_the_graph_touches(torch, segments):
    pool = ag.graph_pool_handle()
    first, second, third, elsewhere = (Array(256) for _ in range(4))
    large, small = ag.Graph(pool=pool, keep_graph=True), ag.Graph(pool=pool)
    captured(large, filling(torch, first, second, elsewhere))
    segments += [segment(each, pool, 64) for each in (third, second, first)]
    segments += [segment(elsewhere, (0, 0), 256), segment(elsewhere, pool, 256, device=1)]
    with ag.measure_memory():
        captured(small, filling(torch, second))
    memory = large.memory()
    assert memory.pool.id == pool
    assert memory.pool.graphs == 2
    assert memory.pool.held.nbytes == 3 * 256
    assert memory.pool.used.nbytes == 3 * 64
    assert [each.address for each in memory.pool.segments] == sorted(
        each.ptr for each in (first, second, third)
    )
    assert memory.touched_segments == tuple(sorted((first.ptr, second.ptr)))
    assert memory.touched.nbytes == 2 * 256
    report = ag.memory_report({"large": large, "small": small})
    assert {each.name: each.touched.nbytes for each in report.graphs} == {"large": 512, "small": 256}
    assert {each.name: report.freed_without(each) for each in report.graphs} == {"large": 256, "small": 0}
    assert len(report.pools) == 1
    assert report.on_devices == 768 + sum(each.executable.nbytes or 0 for each in report.graphs)


def test_what_an_address_points_into_may_be_anywhere_in_the_segment(torch, segments):
    class Part:
        def __init__(self, array):
            self.ptr, self.nbytes = array.ptr + 64, 64

    whole, other = Array(256), Array(256)
    g = ag.Graph(keep_graph=True)
    captured(g, filling(torch, Part(whole)))
    segments += [segment(whole, g.pool(), 0), segment(other, g.pool(), 0)]
    assert g.memory().touched_segments == (whole.ptr,)


def test_the_history_of_allocations_is_not_asked_for(torch, monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda **how: asked.append(how) or [])
    assert interop_torch.contents(torch, (0, 1), 0) == PoolContents()
    assert asked == [{"include_traces": False}]


def test_an_allocator_that_has_no_blocks_is_not_asked(torch, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda **_: pytest.fail("it would raise"))
    assert interop_torch.Torch().blocks() == []


def test_a_torch_whose_snapshot_takes_no_arguments(torch, segments, monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    array = Array(256)
    g = ag.Graph(keep_graph=True)
    captured(g, filling(torch, array))
    segments.append(segment(array, g.pool(), 0))
    assert g.memory().touched.nbytes == 256


def test_a_graph_that_was_not_kept_says_what_would_help(torch, segments):
    array = Array(256)
    g = ag.Graph()
    captured(g, filling(torch, array))
    segments.append(segment(array, g.pool(), 0))
    touched = g.memory().touched
    assert touched.nbytes is None
    assert "keep_graph=True, or inside `with accelerator_graph.measure_memory()`" in touched.note
    report = ag.memory_report([g])
    assert report.freed_without(report.graphs[0]) is None


def test_cupys_blocks(cupy):
    kept = []

    def work():
        kept.append(filled(cupy))
        filled(cupy, 128)

    g = ag.Graph(keep_graph=True)
    captured(g, work)
    memory = g.memory()
    assert memory.pool.held.nbytes == 64 + 128
    assert memory.pool.used.nbytes == 64
    assert memory.touched.nbytes == 64 + 128
    assert memory.touched_segments == tuple(each.address for each in memory.pool.segments)
    other = ag.Graph(keep_graph=True)
    captured(other, lambda: filled(cupy))
    assert other.memory().pool.held.nbytes == 64
    assert len(ag.memory_report([g, other]).pools) == 2


@pytest.mark.parametrize("where", ["a body for the device", "a body for the host", "a graph inside"])
def test_the_pools_of_parts_count(cupy, where):
    inner, g, flag = ag.Graph(keep_graph=True), ag.Graph(keep_graph=True), Array(4)
    captured(inner, lambda: filled(cupy, 256))

    def work():
        filled(cupy, 128)
        if where == "a graph inside":
            inner.replay(ag.current_stream())
        else:
            ag.cond((flag.ptr, "int32"), lambda: filled(cupy, 256), native=where.endswith("device"))

    captured(g, work)
    memory = g.memory()
    assert [each.held.nbytes for each in memory.pools] == [128, 256]
    assert memory.touched.nbytes == 128 + 256
    report = ag.memory_report([g])
    inside = where == "a graph inside"
    assert [each.graphs for each in report.pools] == [1, 1 + inside]
    assert report.freed_without(report.graphs[0]) == (None if inside else 128 + 256)
    inner.reset()
    assert [each.graphs for each in g.memory().pools] == [1, 1]
    [alone] = ag.memory_report([g]).graphs
    assert ag.MemoryReport((alone,), ()).freed_without(alone) == 128 + 256


def test_a_framework_that_does_not_tell(cupy, monkeypatch):
    from accelerator_graph.interop.base import Framework
    from accelerator_graph.interop.cupy import CuPy

    monkeypatch.setattr(CuPy, "pool_contents", Framework.pool_contents)
    g = ag.Graph(keep_graph=True)
    captured(g, lambda: filled(cupy))
    memory = g.memory()
    assert memory.pool.held.nbytes is memory.pool.used.nbytes is memory.touched.nbytes is None
    assert memory.pool.held.note == "a framework that takes part in captures does not report what it has"


@pytest.mark.promise("broken-framework-is-left-out")
def test_a_framework_that_fails_is_left_out(cupy, monkeypatch):
    from accelerator_graph.interop.cupy import CuPy

    monkeypatch.setattr(CuPy, "pool_contents", lambda *_: 7)
    g = ag.Graph()
    captured(g, lambda: filled(cupy))
    with pytest.warns(RuntimeWarning, match=r"its pool_contents\(\) failed with TypeError"):
        assert g.memory().pool.held.nbytes is None
