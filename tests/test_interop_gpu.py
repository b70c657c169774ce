"""Each framework that is installed, on a GPU: its streams, its memory, and several in one capture."""

from __future__ import annotations

import gc

import pytest

import accelerator_graph as ag
from accelerator_graph import interop, streams
from accelerator_graph.backends.cuda import CudaBackend

there = CudaBackend.probe()
if not there.usable:
    pytest.skip(f"backend 'cuda' is not available: {there.reason}", allow_module_level=True)

MODES = ("global", "thread_local", "relaxed")


def framework(name):
    return next((each for each in interop.loaded() if type(each).__name__ == name), None)


# ---- CuPy -------------------------------------------------------------------------------------------------


@pytest.fixture(name="cupy")
def cupy_fixture():
    cupy = pytest.importorskip("cupy")
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
    assert framework("CuPy").as_stream(object()) is None
    with mine:
        assert ag.current_stream().handle == mine.ptr


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


def test_an_error_with_cupy_leaves_no_trace(cupy):
    g = ag.Graph()
    for _ in range(2):
        with pytest.raises(KeyError), ag.graph(g):  # noqa: PT012
            cupy.ones(1 << 10)
            raise KeyError
        with pytest.raises(ag.CaptureError), ag.graph(g):
            cupy.cuda.Device().synchronize()
    g.reset()  # an ordinary call
    assert not framework("CuPy")._pools


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
