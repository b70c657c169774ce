"""The software below AMD's runtime: asynchronous, in order, concurrent, and it counts what it can't do.

tests/simulators/test_amd.py runs this on both versions of the runtime.
"""

import array
import multiprocessing
import os
import sys
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p, string_at
from ctypes import create_string_buffer as memory_of
from functools import cache

import pytest

from backends.hip import bench
from processes import execute
from simulators.amd.accounts import Accounts

OF_THE_HOST, ON_DEVICE = 0, 3
OUT_OF_MEMORY, NOT_READY = 2, 600
KERNEL, MEMSET = 0, 2
MORE = rb"""
extern "C" __global__ void diffuse(const double *source, double *target, int size, int first, int last) {}
extern "C" __global__ void strange(unsigned *cell) { *cell = 1; }
"""


@cache
def kernels():
    return bench.loaded(bench.SOURCE + MORE)


def memory(nbytes, value=0):
    address = bench.made("hipMalloc", nbytes)
    bench.call("hipMemset", address, value, nbytes)
    bench.call("hipDeviceSynchronize")
    return address


def read(address, nbytes):
    found = memory_of(nbytes)
    bench.call("hipMemcpy", found, address, nbytes, bench.TO_HOST)
    return found.raw


def word(address):
    return int.from_bytes(read(address, 4), "little")


def launch(on, name, *args, **how):
    """Launch a kernel; integers are addresses."""
    places = (c_void_p(arg) if isinstance(arg, int) else arg for arg in args)
    bench.bare_launch(on, getattr(kernels(), name), *places, **how)


def step(on, cell, a, b):
    launch(on, "step", cell, c_uint32(a), c_uint32(b), c_uint64(0))


def is_done(on):
    code = bench.answer("hipStreamQuery", on)
    assert code in (0, NOT_READY)
    return code == 0


def finish(*streams):
    for on in streams:
        assert bench.until(lambda: is_done(on))  # noqa: B023


def captured(on, *others):
    """End the capture on a stream, after it has waited for the others."""
    for other in others:
        bench.fork(other, on)
    code, graph = bench.bare_end(on)
    assert code == 0
    return graph


def kinds_of(graph):
    return sorted(bench.number("hipGraphNodeGetType", node) for node in bench.nodes_of(graph))


def executable(graph):
    return bench.made("hipGraphInstantiateWithFlags", graph, 0)


@pytest.fixture(autouse=True, scope="module")
def initialised():
    bench.call("hipInit", 0)
    kernels()


@pytest.fixture
def streams():
    """Two streams, each on a queue of its own: the runtime has four, which more streams share."""
    both = bench.bare_stream(), bench.bare_stream()
    yield both
    for each in both:
        bench.call("hipStreamDestroy", each)


@pytest.fixture
def on(streams):
    return streams[0]


@pytest.fixture
def gate():
    gate = bench.Gate(kernels().meet)
    yield gate
    gate.open()


# ---- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [1, 3, 4096, 100_001, 5_000_003])
def test_memory_keeps_what_is_written(nbytes):
    data = os.urandom(nbytes)
    first, second = memory(nbytes), memory(nbytes)
    bench.call("hipMemcpy", first, data, nbytes, bench.TO_DEVICE)
    bench.call("hipMemcpy", second, first, nbytes, ON_DEVICE)
    bench.call("hipDeviceSynchronize")
    assert read(second, nbytes) == data
    bench.call("hipFree", first)
    bench.call("hipFree", second)


@pytest.mark.parametrize("count", [1, 2, 7, 64, 1000, 65_537])
@pytest.mark.parametrize("offset", [0, 4, 20])
@pytest.mark.parametrize(
    ("name", "size", "value"),
    [("hipMemsetAsync", 1, 0xA5), ("hipMemsetD16Async", 2, 0xA5B6), ("hipMemsetD32Async", 4, 0x01020304)],
)
def test_fills_write_their_bytes_and_no_more(on, name, size, value, count, offset):
    room = 32
    area = memory(count * size + 2 * room, 0x11)
    bench.call(name, area + room + offset, value, count, on)
    finish(on)
    found = read(area, count * size + 2 * room)
    filled = value.to_bytes(size, "little") * count
    assert found == b"\x11" * (room + offset) + filled + b"\x11" * (room - offset)
    bench.call("hipFree", area)


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("nbytes", [5, 4099, 3_000_001])
def test_asynchronous_copies_are_in_order(on, pinned, nbytes):
    data = os.urandom(nbytes)
    host, back = (bench.made("hipHostMalloc", nbytes, 0) if pinned else memory_of(nbytes) for _ in range(2))
    bench.call("hipMemcpy", host, data, nbytes, OF_THE_HOST)
    first, second = memory(nbytes), memory(nbytes)
    bench.call("hipMemcpyAsync", first, host, nbytes, bench.TO_DEVICE, on)
    bench.call("hipMemcpyAsync", second, first, nbytes, ON_DEVICE, on)
    bench.call("hipMemcpyAsync", back, second, nbytes, bench.TO_HOST, on)
    finish(on)
    found = memory_of(nbytes)
    bench.call("hipMemcpy", found, back, nbytes, OF_THE_HOST)
    assert found.raw == data


def test_memory_runs_out():
    def available():
        free, total = c_size_t(), c_size_t()
        bench.call("hipMemGetInfo", byref(free), byref(total))
        return free.value

    before = available()
    most = bench.made("hipMalloc", 6 << 30)
    assert available() <= before - (6 << 30)
    assert bench.answer("hipMalloc", byref(c_void_p()), 6 << 30) == OUT_OF_MEMORY
    bench.call("hipFree", most)
    bench.call("hipFree", bench.made("hipMalloc", 6 << 30))
    bench.answer("hipGetLastError")


# ---- kernels ---------------------------------------------------------------------------------------


def test_a_kernel_runs_as_its_twin(on):
    cell = memory(4)
    before = Accounts().launches
    for b in range(1, 5):
        step(on, cell, 10, b)
    finish(on)
    assert Accounts().launches == before + 4
    assert word(cell) == 1234


def test_a_kernel_knows_its_geometry(on):
    out = memory(28)
    launch(on, "geometry", out, grid=(3, 5), block=(32, 2), shared_bytes=64)
    finish(on)
    assert list(array.array("I", read(out, 28))) == [3, 5, 1, 32, 2, 1, 64]


def test_diffusion_is_the_demos_bit_for_bit(on):
    size = 9
    source = array.array("d", (1 / (1 + 3 * i % 17) for i in range(size * size)))
    expected = array.array("d", source)
    for y in range(2, 7):
        for x in range(1, size - 1):
            i = y * size + x
            here = source[i]
            around = source[i - 1] + source[i + 1] + source[i - size] + source[i + size]
            expected[i] = here + 0.2 * (around - 4.0 * here)
    nbytes = 8 * size * size
    grids = memory(nbytes), memory(nbytes)
    for grid in grids:
        bench.call("hipMemcpy", grid, source.tobytes(), nbytes, bench.TO_DEVICE)
    launch(on, "diffuse", *grids, c_int(size), c_int(2), c_int(7), block=(32, 8))
    finish(on)
    assert read(grids[1], nbytes) == expected.tobytes()


@pytest.fixture
def names(tmp_path, monkeypatch):
    path = tmp_path / "unknown"
    monkeypatch.setenv("SOFTWARE_HSA_UNKNOWN", str(path))
    return lambda: path.read_text().splitlines()


def test_what_it_does_not_have_is_counted_and_named(on, names):
    cell, accounts = memory(4), Accounts()
    unknown, calls = accounts.unknown_kernels, accounts.unknown_calls
    launch(on, "strange", cell)
    launch(on, "strange", cell)
    finish(on)
    assert word(cell) == 0
    assert (accounts.unknown_kernels, accounts.unknown_calls) == (unknown + 2, calls)
    assert bench.answer("hipIpcGetMemHandle", memory_of(64), cell) != 0
    assert (accounts.unknown_kernels, accounts.unknown_calls) == (unknown + 2, calls + 1)
    assert names() == ["twin of kernel strange", "function hsa_amd_ipc_memory_create"]
    bench.answer("hipGetLastError")


# ---- order -----------------------------------------------------------------------------------------


def test_work_runs_while_the_host_goes_on(on, gate):
    cells = bench.Cells(1)
    gate.close(on)
    step(on, cells.start, 1, 7)
    assert not is_done(on)
    assert cells[0] == 0
    gate.open()
    finish(on)
    assert cells[0] == 7


@pytest.mark.parametrize("kind", [bench.TO_DEVICE, bench.TO_HOST, ON_DEVICE])
def test_copies_wait_for_the_work_before_them(on, gate, kind):
    nbytes = 1 << 20
    source = bench.Cells(nbytes // 4).start if kind == bench.TO_DEVICE else memory(nbytes)
    target = bench.Cells(nbytes // 4).start if kind == bench.TO_HOST else memory(nbytes)
    bench.call("hipMemset", source, 7, nbytes)
    bench.call("hipDeviceSynchronize")
    gate.close(on)
    bench.call("hipMemcpyAsync", target, source, nbytes, kind, on)
    assert not is_done(on)
    assert string_at(target, nbytes) == bytes(nbytes)  # the host sees all memory
    gate.open()
    finish(on)
    assert string_at(target, nbytes) == b"\7" * nbytes


def test_streams_run_at_once(streams):
    """Each of two kernels waits until the other runs."""
    (first, second), cells = streams, bench.Cells(2)
    launch(first, "meet", cells.at(0), cells.at(1))
    launch(second, "meet", cells.at(1), cells.at(0))
    finish(first, second)


def test_events_order_streams(streams, gate):
    (first, second), cells, mark = (
        streams,
        bench.Cells(1),
        bench.made("hipEventCreateWithFlags", bench.NO_TIMING),
    )
    gate.close(first)
    step(first, cells.start, 10, 1)
    bench.call("hipEventRecord", mark, first)
    bench.call("hipStreamWaitEvent", second, mark, 0)
    step(second, cells.start, 10, 2)
    assert bench.answer("hipEventQuery", mark) == NOT_READY
    assert not is_done(second)
    gate.open()
    finish(second)
    assert cells[0] == 12
    bench.call("hipEventQuery", mark)


# ---- captures --------------------------------------------------------------------------------------


def test_a_fork_is_captured_and_replayed(streams):
    (first, second), cells = streams, memory(8)
    assert bench.bare_begin(first, "thread_local") == 0
    bench.call("hipMemsetAsync", cells, 0, 8, first)
    bench.fork(first, second)
    step(first, cells, 1, 2)
    step(second, cells + 4, 1, 3)
    bench.fork(second, first)
    step(first, cells, 5, 1)
    graph = captured(first)
    assert kinds_of(graph) == [KERNEL, KERNEL, KERNEL, MEMSET]
    assert len(bench.edges_of(graph)) == 4
    assert read(cells, 8) == bytes(8)
    run, before = executable(graph), Accounts().launches
    for _ in range(5):
        bench.call("hipGraphLaunch", run, first)
    finish(first)
    assert (word(cells), word(cells + 4)) == (11, 3)
    assert Accounts().launches >= before + 15
    bench.call("hipGraphExecDestroy", run)
    bench.call("hipGraphDestroy", graph)


def test_branches_of_a_graph_run_at_once(streams):
    """Each of two kernels waits until the other runs."""
    (first, second), cells = streams, bench.Cells(2)
    assert bench.bare_begin(first, "thread_local") == 0
    bench.fork(first, second)
    launch(first, "meet", cells.at(0), cells.at(1))
    launch(second, "meet", cells.at(1), cells.at(0))
    run = executable(captured(first, second))
    bench.call("hipGraphLaunch", run, first)
    finish(first)


def test_a_replay_waits_for_its_stream(on, gate):
    cells = bench.Cells(1)
    assert bench.bare_begin(on, "thread_local") == 0
    step(on, cells.start, 10, 1)
    run = executable(captured(on))
    gate.close(on)
    for _ in range(3):
        bench.call("hipGraphLaunch", run, on)
    assert not is_done(on)
    assert cells[0] == 0
    gate.open()
    finish(on)
    assert cells[0] == 111


def test_memory_is_allocated_in_a_graph(on):
    back = memory(4)
    assert bench.bare_begin(on, "thread_local") == 0
    inside = bench.made("hipMallocAsync", 4096, on)
    bench.call("hipMemsetAsync", inside, 9, 4096, on)
    bench.call("hipMemcpyAsync", back, inside + 4092, 4, ON_DEVICE, on)
    bench.call("hipFreeAsync", inside, on)
    graph = captured(on)
    assert len(bench.nodes_of(graph)) == 4
    run = executable(graph)
    for _ in range(3):
        bench.call("hipMemset", back, 0, 4)
        bench.call("hipDeviceSynchronize")
        bench.call("hipGraphLaunch", run, on)
        finish(on)
        assert read(back, 4) == b"\t" * 4
    bench.call("hipGraphExecDestroy", run)
    bench.call("hipGraphDestroy", graph)


# ---- processes and devices -------------------------------------------------------------------------


def devices():
    return bench.number("hipGetDeviceCount")


def test_children_are_on_the_runtime():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(devices) == devices()


def test_two_devices():
    """In a process of its own: a kernel on each, and a copy from one to the other."""
    script = "from simulators.amd import itself; itself.on_two_devices(); print('done')"
    done = execute(
        [sys.executable, "-c", script],
        env=dict(os.environ, SOFTWARE_HSA_DEVICES="2", SOFTWARE_HSA_HARSH=""),
        timeout=bench.TIMEOUT,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def on_two_devices():
    assert devices() == 2
    cells = []
    for device in range(2):
        kernels.cache_clear()  # a module is its device's
        bench.call("hipSetDevice", device)
        on, cell = bench.bare_stream(), memory(4)
        assert bench.number("hipStreamGetDevice", on) == device
        step(on, cell, 1, 40 + device)
        finish(on)
        cells.append(cell)
    assert [word(cell) for cell in cells] == [40, 41]
    bench.call("hipMemcpyPeer", cells[0], 0, cells[1], 1, 4)
    bench.call("hipDeviceSynchronize")
    assert word(cells[0]) == 41


def test_hip_python_is_on_the_same_runtime():
    from hip import hip

    assert hip.hipRuntimeGetVersion() == (0, bench.number("hipRuntimeGetVersion"))
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = {line.split()[-1] for line in maps if "libamdhip64.so" in line}
    assert len(mapped) == 1


def test_nothing_else_was_missing():
    """Last: this module needs nothing that is not there, but for what it asks for on purpose."""
    accounts = Accounts()
    assert (accounts.unknown_kernels, accounts.unknown_calls) == (2, 1)
