"""Each framework that is installed, on a GPU: its streams, its memory, and several in one capture."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest

import accelerator_graph as ag
import lanes
from accelerator_graph import interop
from accelerator_graph._core import streams
from accelerator_graph._core.extension import fast

pytestmark = lanes.require("gpu")

MODES = ("global", "thread_local", "relaxed")


def framework(name):
    return next((each for each in interop.loaded() if type(each).__name__ == name), None)


# ---- torch ------------------------------------------------------------------------------------------------


@pytest.fixture(name="torch")
def torch_fixture():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU")
    x = torch.ones(8, device="cuda")
    torch.nn.functional.dropout(x * 2 + 1)
    torch.cuda.synchronize()
    yield torch
    assert gc.isenabled()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert works(torch)


def works(torch):
    """Say whether captures work as ever."""
    x, g = torch.zeros(8, device="cuda"), ag.Graph()
    with ag.graph(g):
        y = x + 1
        z = torch.rand(8, device="cuda")
    g.replay()
    first = z.clone()
    g.replay()
    torch.cuda.synchronize()
    return bool((y == 1).all()) and bool((z != first).any())


def decides_itself(torch):
    """Say whether generators join by themselves and replays run hooks: since torch 2.14."""
    return hasattr(torch.cuda.CUDAGraph, "register_replay_start_hook")


class Holder:
    """Holds a graph of torch's own, in a cycle."""

    def __init__(self, torch):
        self.graph, self.itself = torch.cuda.CUDAGraph(), self
        x = torch.zeros(8, device="cuda")
        with torch.cuda.graph(self.graph):
            x += 1


def test_a_foreign_graph_waits_for_the_end_of_a_capture_to_be_collected(torch):
    before = gc.get_threshold()
    gc.set_threshold(1_000_000)
    try:
        x, g, held = torch.zeros(8, device="cuda"), ag.Graph(), [Holder(torch)]
        gone = weakref.ref(held[0])
        with ag.graph(g):
            held.clear()
            gc.set_threshold(10)
            junk = [[] for _ in range(10_000)]
            waited = gone() is not None
            x += 1
        junk = [[] for _ in range(10_000)]
        collected = gone() is None
        del junk
    finally:
        gc.set_threshold(*before)
    g.replay()
    torch.cuda.synchronize()
    assert (waited, collected) == (True, True)
    assert x.tolist() == [1.0] * 8


@pytest.mark.filterwarnings("ignore:.*operation not permitted when stream is capturing")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["collect", "del"])
def test_a_foreign_graph_that_is_destroyed_in_the_body(torch, how, mode):
    """torch destroys it without a thought for captures: only a relaxed thread does so harmlessly."""
    x, g, held = torch.zeros(8, device="cuda"), ag.Graph(capture_error_mode=mode), Holder(torch)
    if how == "del":
        held = held.graph

    def body():
        nonlocal held
        with ag.graph(g):
            del held
            if how == "collect":
                gc.collect()
            y.add_(1)

    y = x
    if how == "del":
        gc.collect()  # the holder, which is in a cycle; the graph is held by the test alone
    if mode == "relaxed" or how == "collect":
        body()
        g.replay()
        torch.cuda.synchronize()
        assert x.tolist() == [1.0] * 8
    else:
        with pytest.raises(ag.CaptureError) as info:
            body()
        assert info.value.reason == "invalidated"
        assert g.state == "empty"


def test_a_memory_pool_of_torchs(torch):
    pool = torch.cuda.MemPool()
    number, there = pool.id, weakref.ref(pool)
    x, g, h = torch.zeros(1 << 20, device="cuda"), ag.Graph(pool=pool), ag.Graph()
    with ag.graph(g):
        y = x + 1
    assert pool.use_count() == 2
    assert any(segment["segment_pool_id"] == number for segment in torch.cuda.memory_snapshot())
    with ag.graph(h, pool=g.pool()):
        z = x + 2
    assert pool.use_count() == 3
    for each in (g, h):
        each.replay()
    torch.cuda.synchronize()
    assert (float(y[0]), float(z[0])) == (1, 2)
    del y, z
    h.reset()
    assert pool.use_count() == 2
    g.reset()
    assert pool.use_count() == 1
    g.graph_pool = None
    del pool, g
    assert there() is None


def test_a_memory_pool_of_torchs_that_only_the_graph_holds(torch):
    x, g = torch.zeros(1 << 20, device="cuda"), ag.Graph()
    with ag.graph(g, pool=torch.cuda.MemPool()):
        y = x + 1
    gc.collect()
    junk = [torch.full((1 << 20,), 7.0, device="cuda") for _ in range(4)]
    g.replay()
    torch.cuda.synchronize()
    assert float(y[0]) == 1
    del y, junk
    other = ag.Graph()
    with ag.graph(other):
        x += 1
        g.reset()  # and the pool with it, whose memory is freed
        x += 1
    other.replay()
    torch.cuda.synchronize()
    assert float(x[0]) == 2


def test_torch_takes_our_pools_and_we_take_torchs(torch):
    x, g, h, foreign = torch.zeros(8, device="cuda"), ag.Graph(), ag.Graph(), torch.cuda.CUDAGraph()
    with ag.graph(g):
        a = x + 1
    with torch.cuda.graph(foreign, pool=g.pool()):
        b = a + 1
    with ag.graph(h, pool=foreign.pool()):
        c = b + 1
    assert g.pool() == foreign.pool() == h.pool()
    for each in (g, foreign, h):
        each.replay()
    torch.cuda.synchronize()
    assert c.tolist() == [3.0] * 8
    k = ag.Graph(pool=torch.cuda.graph_pool_handle())
    with ag.graph(k):
        d = x + 4
    k.replay()
    torch.cuda.synchronize()
    assert d.tolist() == [4.0] * 8


def test_a_stream_of_torch_is_current_as_itself(torch):
    stream, x = torch.cuda.Stream(), torch.zeros(8, device="cuda")
    with ag.graph(ag.Graph(), stream=stream):
        assert torch.cuda.current_stream() == stream
        x += 1


def test_dlpack_tells_torchs_current_stream(torch):
    exchange = (*framework("Torch").exchange, 0)
    if fast is None or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("torch has no function that tells it, or there is no extension")
    made = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    every = *made, torch.cuda.default_stream(), torch.cuda.ExternalStream(made[0].cuda_stream)
    asked, seen = [], []

    def current(device):
        asked.append(torch._C._cuda_getCurrentRawStream(device))
        return asked[-1]

    launchers = {each.cuda_stream: partial(seen.append, each.cuda_stream) for each in every}
    follow = fast.Follower(launchers, None, current, 0, exchange)
    for each in every * 2:
        with torch.cuda.stream(each):
            follow()
            follow()
    assert seen == [each.cuda_stream for each in every * 2 for _ in range(2)]
    assert asked == [each.cuda_stream for each in (*every[:3], every[0], *every[1:3], every[0])]


def test_torchs_default_stream_is_entered_as_itself(torch):
    undo = framework("Torch").use_stream(0, torch.cuda.current_device())
    try:
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
    finally:
        undo()


@pytest.mark.promise("memory-pool-is-no-pool")
def test_a_pool_of_cupys_is_none():
    cupy = pytest.importorskip("cupy")
    with pytest.raises(TypeError, match=r"such as a torch\.cuda\.MemPool, not <cupy"):
        ag.Graph(pool=cupy.cuda.MemoryPool())


def failing(torch, x, why, pool):
    g = ag.Graph(pool=pool)
    with pytest.raises(ag.CaptureError if why == "driver" else KeyError), ag.graph(g):  # noqa: PT012
        y = x + 1
        if why == "body":
            raise KeyError
        torch.cuda.synchronize()
    return y


def used(torch, x, pool):
    g = ag.Graph(pool=pool)
    with ag.graph(g):
        y = x + 1
    g.replay()
    torch.cuda.synchronize()
    assert y.tolist() == [1.0] * 8
    return g, y


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("why", ["driver", "body"])
def test_a_pool_can_be_used_after_a_capture_that_failed(torch, why, shared):
    x, pool = torch.zeros(8, device="cuda"), ag.graph_pool_handle()
    kept = [used(torch, x, pool)] if shared else []
    for _ in range(3):
        kept.append(failing(torch, x, why, pool))  # its memory is still in use
    kept.append(used(torch, x, pool))
    foreign = torch.cuda.CUDAGraph()
    with torch.cuda.graph(foreign, pool=kept[-1][0].pool()):
        z = x + 2
    foreign.replay()
    torch.cuda.synchronize()
    assert z.tolist() == [2.0] * 8


@pytest.mark.promise("pool-gets-another-id")
def test_a_pool_can_be_used_after_its_last_graph(torch):
    x, pool = torch.zeros(8, device="cuda"), ag.graph_pool_handle()
    g, y = used(torch, x, pool)
    g.reset()
    used(torch, x, pool)
    assert y.tolist() == [1.0] * 8


def test_a_pool_object_after_a_capture_that_failed(torch):
    x, pool = torch.zeros(8, device="cuda"), torch.cuda.MemPool()
    for _ in range(3):
        failing(torch, x, "body", pool)
        gc.collect()
        assert pool.use_count() == 1
    used(torch, x, pool)
    failing(torch, x, "driver", pool)
    try:
        used(torch, x, pool)
    except ag.CaptureError as error:  # up to torch 2.13
        assert "make another torch.cuda.MemPool" in str(error)  # noqa: PT017


def test_a_generator_of_the_users_own(torch):
    mine, g = torch.Generator("cuda"), ag.Graph()
    g.register_generator_state(mine)
    with ag.graph(g):
        y = torch.rand(64, device="cuda", generator=mine)
    assert all_differ(g, y)


def all_differ(g, y):
    return len({(g.replay(), *y.tolist()) for _ in range(3)}) == 3


def test_a_generator_that_nobody_told_us_of(torch):
    mine, g = torch.Generator("cuda"), ag.Graph()
    if not decides_itself(torch):
        with pytest.raises(RuntimeError), ag.graph(g):
            torch.rand(64, device="cuda", generator=mine)
        return
    with ag.graph(g):
        y = torch.rand(64, device="cuda", generator=mine)
    assert all_differ(g, y)


def test_replays_go_around_torch_only_where_that_makes_no_difference(torch):
    x, calm, drawing = torch.zeros(8, device="cuda"), ag.Graph(), ag.Graph()
    with ag.graph(calm):
        x += 1
    with ag.graph(drawing):
        torch.nn.functional.dropout(x)
    for each in (calm, drawing):
        each.replay()
        each.replay()
    torch.cuda.synchronize()
    assert calm._runner.executable.value.needs_torch is decides_itself(torch)
    assert drawing._runner.executable.value.needs_torch is True
    assert x.tolist() == [2.0] * 8


def test_hooks_of_torchs_see_every_replay(torch):
    if not decides_itself(torch):
        pytest.skip("this torch has no hooks")
    x, g, seen = torch.zeros(8, device="cuda"), ag.Graph(), []
    with ag.graph(g):
        x += 1
    g.replay()
    handle = torch.cuda.graphs.register_graph_replay_start_hook(seen.append)
    try:
        g.replay()
        g.bind()()
    finally:
        handle.remove()
    assert len(seen) == 2


# ---- cuda.core, numba-cuda, Warp --------------------------------------------------------------------------


def test_streams_of_cuda_core():
    core = pytest.importorskip("cuda.core", exc_type=ImportError)
    if not hasattr(core, "Device"):
        core = pytest.importorskip("cuda.core.experimental")
    device = core.Device()
    device.set_current()
    mine = device.create_stream()
    assert framework("CudaCore").as_stream(mine) == int(mine.handle)
    buffer = device.allocate(64, stream=mine)
    mine.sync()
    g = ag.Graph(stream=mine)
    with g:
        g.stream.fill(int(buffer.handle), 5, 64)
    assert g.stream.handle == int(mine.handle)
    g.replay()
    mine.sync()
    builder = device.create_graph_builder()
    assert streams.as_stream(builder).handle == int(builder.stream.handle)
    builder.close()
    buffer.close(mine)


@pytest.mark.filterwarnings("ignore")
def test_kernels_of_numba():
    cuda = pytest.importorskip("numba.cuda", exc_type=ImportError)
    numpy = pytest.importorskip("numpy")

    @cuda.jit
    def add(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] += 1

    x = cuda.to_device(numpy.zeros(64, dtype="f4"))
    try:
        add[1, 64](x)
    except AttributeError as error:
        pytest.skip(f"this Numba does not go with this NumPy: {error}")
    cuda.synchronize()
    mine = cuda.stream()
    assert streams.as_stream(mine).handle == int(mine)
    g, h = ag.Graph(stream=mine), ag.Graph()
    with g:
        add[1, 64, mine](x)
    with ag.graph(h):
        add[1, 64, cuda.external_stream(ag.current_stream().handle)](x)
    g.replay()
    mine.synchronize()
    h.replay()
    cuda.synchronize()
    assert x.copy_to_host().tolist() == [3.0] * 64


@pytest.mark.filterwarnings("ignore")
def test_kernels_of_warp():
    wp = pytest.importorskip("warp")
    wp.init()
    if not wp.is_cuda_available():
        pytest.skip("Warp has no GPU")

    @wp.kernel
    def add(x: wp.array(dtype=float)):
        i = wp.tid()
        x[i] = x[i] + 1.0

    before = wp.get_stream("cuda:0")
    x = wp.zeros(64, dtype=float, device="cuda:0")
    wp.launch(add, dim=64, inputs=[x], device="cuda:0")
    wp.synchronize()
    mine = wp.Stream("cuda:0")
    assert streams.as_stream(mine).handle == mine.cuda_stream
    for how in ({}, {"stream": mine}, {"stream": before}):
        g = ag.Graph()
        x.zero_()
        wp.synchronize()
        with ag.graph(g, **how):
            wp.launch(add, dim=64, inputs=[x], device="cuda:0")
        assert wp.get_stream("cuda:0") is before
        for _ in range(3):
            g.replay()
        wp.synchronize()
        assert x.numpy().tolist() == [3.0] * 64
    with ag.Stream(backend="cuda") as s:
        assert wp.get_stream("cuda:0").cuda_stream == s.handle
        wp.launch(add, dim=64, inputs=[x], device="cuda:0")
    wp.synchronize()
    assert x.numpy().tolist() == [4.0] * 64
