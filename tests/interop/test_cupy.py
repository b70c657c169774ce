"""CuPy: its streams, its memory and its kernels in captures, on a GPU of either vendor."""

import gc
from contextlib import nullcontext

import pytest

import accelerator_graph as ag
import lanes
from accelerator_graph import interop
from accelerator_graph._core import streams

pytestmark = lanes.require("cupy")

MODES = ("global", "thread_local", "relaxed")


def framework():
    return next(each for each in interop.loaded() if type(each).__name__ == "CuPy")


@pytest.fixture(name="cupy")
def cupy_fixture():
    import cupy

    for dtype in ("u1", "f4", "f8"):  # compiled now
        x = cupy.ones(1 << 10, dtype=dtype)
        x += 1
        _ = x * 2 + 1
    cupy.cuda.Device().synchronize()
    before = cupy.cuda.get_allocator(), cupy.cuda.get_current_stream().ptr
    yield cupy
    assert (cupy.cuda.get_allocator(), cupy.cuda.get_current_stream().ptr) == before
    assert not cupy.cuda.get_current_stream().is_capturing()
    assert float(cupy.ones(8).sum()) == 8


def test_streams_of_cupy(cupy):
    mine = cupy.cuda.Stream(non_blocking=True)
    assert streams.as_stream(mine).handle == mine.ptr
    assert framework().as_stream(object()) is None
    with mine:
        assert ag.current_stream().handle == mine.ptr


def test_a_stream_that_is_entered_becomes_cupys_current_one(cupy):
    with ag.Stream() as mine:
        assert cupy.cuda.get_current_stream().ptr == mine.handle
    x, g = cupy.zeros(8, dtype="u1"), ag.Graph()
    with ag.graph(g):
        assert cupy.cuda.get_current_stream().ptr == g.stream.handle
        assert cupy.cuda.get_current_stream().is_capturing()
        x += 1


def test_a_stream_of_cupys_is_captured_and_a_replay_goes_to_the_current_one(cupy):
    source = 'extern "C" __global__ void twice(int *x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }'
    kernel = cupy.RawKernel(source, "twice")
    kernel.compile()
    first, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    x = cupy.arange(8, dtype="i4")
    cupy.cuda.Device().synchronize()
    with first, ag.Graph() as g:
        kernel((1,), (8,), (x, cupy.int32(6)))
        kernel((1,), (8,), (x, cupy.int32(3)))
    assert g.num_nodes == 2
    assert x.tolist() == list(range(8))
    with second:
        g.replay()
    second.synchronize()
    g.replay(first)
    first.synchronize()
    assert x.tolist() == [0, 16, 32, 12, 16, 20, 6, 7]


def test_cupys_streams_fork_and_join_in_a_capture(cupy):
    x, y, z = (cupy.ones(1 << 10, dtype="f4") for _ in range(3))
    main, side = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    cupy.cuda.Device().synchronize()
    with main, ag.Graph() as g:
        x += 1
        side.wait_event(main.record())
        with side:
            y += x
        z += x
        main.wait_event(side.record())
        x += y
        x += z
    a = b = c = 1
    for _ in range(3):
        g.replay(main)
        main.synchronize()
        a += 1
        b, c = b + a, c + a
        a += b + c
        assert [set(each.tolist()) for each in (x, y, z)] == [{a}, {b}, {c}]


def test_arrays_are_memory_for_our_streams(cupy):
    x, y = cupy.arange(64, dtype="u1"), cupy.zeros(64, dtype="u1")
    cupy.cuda.Device().synchronize()
    with ag.Stream() as s, ag.Graph() as g:
        s.copy(y, x)
        s.fill(x, 7)
    g.replay()
    s.synchronize()
    assert y.tolist() == list(range(64))
    assert x.tolist() == [7] * 64


def test_graphed_over_cupys_arrays(cupy):
    f = ag.graphed(lambda x, y: cupy.sqrt(x * y) + 1, warmup=2)
    for context in (nullcontext(), cupy.cuda.Stream(non_blocking=True), ag.Stream()):
        with context:
            for n in range(4):
                x, y = cupy.arange(100.0) + n, cupy.arange(200.0)[::2]
                assert (f(x, y) == cupy.sqrt(x * y) + 1).all()
    assert f.cache_info().captures == 1


@pytest.mark.parametrize("inputs", ["copy", "node"])
def test_what_a_graphed_function_writes_to_cupys_arrays_reaches_the_caller(cupy, inputs):
    def step(state, part, other):
        state *= -1
        part += 1
        return other + part.sum()

    f = ag.graphed(step, warmup=1, inputs=inputs)
    with ag.Stream():
        ours, theirs = cupy.zeros(64), cupy.zeros(64)
        for _ in range(5):
            f(ours[:8], ours[32:64:2], ours[30:40])
            theirs[:8] *= -1
            theirs[32:64:2] += 1
            assert ours.get().tobytes() == theirs.get().tobytes()
    assert f.cache_info().captures == 1


@pytest.mark.parametrize("mode", MODES)
def test_cupy_allocates_in_a_capture(cupy, mode):
    x = cupy.arange(1 << 16, dtype="f4")
    g = ag.Graph(capture_error_mode=mode)
    with ag.graph(g):
        y = x * 2 + 1
        z = y * 2 + 1  # its temporary is freed in the capture and used again
    for _ in range(3):
        x += 1
        cupy.cuda.Device().synchronize()
        g.replay()
        cupy.cuda.Device().synchronize()
        junk = [cupy.full(1 << 16, 7, dtype="f4") for _ in range(4)]  # may not get the graph's memory
        assert (y == x * 2 + 1).all()
        assert (z == y * 2 + 1).all()
        del junk


def test_cupys_memory_comes_back_with_the_last_graph(cupy):
    runtime = cupy.cuda.runtime
    cupy.get_default_memory_pool().free_all_blocks()
    a, b = ag.Graph(), ag.Graph()
    with ag.graph(a):
        cupy.ones(1 << 28, dtype="u1")
    with ag.graph(b, pool=a.pool()):
        cupy.ones(1 << 20, dtype="u1")
    held = runtime.memGetInfo()[0]
    a.reset()
    assert runtime.memGetInfo()[0] < held + (1 << 27)
    b.reset()
    assert runtime.memGetInfo()[0] >= held + (1 << 27)


def test_cupys_arrays_outlive_the_graph(cupy):
    g = ag.Graph()
    with ag.graph(g):
        y = cupy.ones(1 << 20, dtype="f4")
    g.replay()
    cupy.cuda.Device().synchronize()
    g.reset()
    junk = [cupy.zeros(1 << 20, dtype="f4") for _ in range(8)]
    assert float(y.sum()) == 1 << 20
    del junk


@pytest.mark.parametrize("mode", MODES)
def test_cupys_memory_is_freed_in_somebodys_capture(cupy, mode):
    x = cupy.zeros(1 << 10, dtype="f4")
    old, g = ag.Graph(), ag.Graph(capture_error_mode=mode)
    with ag.graph(old):
        cupy.ones(1 << 20, dtype="f4")
    cupy.cuda.Device().synchronize()
    with ag.graph(g):
        x += 1
        old.reset()
        gc.collect()
        x += 1
    g.replay()
    cupy.cuda.Device().synchronize()
    assert (x == 2).all()


@pytest.mark.promise("cupy-body-raises")
def test_an_error_with_cupy_leaves_no_trace(cupy):
    g = ag.Graph()
    for _ in range(2):
        with pytest.raises(KeyError), ag.graph(g):  # noqa: PT012
            cupy.ones(1 << 10)
            raise KeyError
        with pytest.raises(ag.CaptureError), ag.graph(g):
            cupy.cuda.Device().synchronize()
    g.reset()  # an ordinary call
    assert not framework()._pools


def test_a_replay_that_would_use_freed_memory_is_refused(cupy):
    x = cupy.ones(1 << 10, dtype="f4")
    g = ag.Graph(observe=ag.ownership())
    with ag.graph(g):
        y = x * 2
    g.watch(x)
    g.replay()
    cupy.cuda.Device().synchronize()
    assert set(y.tolist()) == {2}
    del x
    with pytest.raises(ag.GraphStateError, match=r"cupy\.ndarray of shape \(1024,\), float32"):
        g.replay()


@pytest.mark.needs("gpu")
def test_torchs_and_cupys_memory_in_one_graph(cupy):
    torch = pytest.importorskip("torch")
    torch.cuda.init()
    x = torch.ones(1 << 12, device="cuda")
    view = cupy.from_dlpack(x)
    torch.cuda.synchronize()
    g = ag.Graph()
    with ag.graph(g):
        a = x * 2
        b = view * 2 + 1
        c = a + torch.from_dlpack(b)
        d = torch.nn.functional.dropout(c)
    for n in range(3):
        x.fill_(n + 1)
        torch.cuda.synchronize()
        g.replay()
        torch.cuda.synchronize()
        assert c.tolist() == [4.0 * (n + 1) + 1] * (1 << 12)
        assert set(d.tolist()) == {0.0, 2 * (4.0 * (n + 1) + 1)}
