"""The software below AMD's runtime: asynchronous, in order, concurrent, and it counts what it can't do.

Run by test_on_amd_runtime.py, on both versions of the runtime.
"""

from __future__ import annotations

import array
import multiprocessing
import os
import subprocess
import sys
from ctypes import byref, c_int, c_size_t, c_void_p, cast, string_at
from ctypes import create_string_buffer as memory_of

import pytest

from simulators.amd.accounts import Accounts
from simulators.amd.calls import (
    KERNEL,
    MEMSET,
    NOT_READY,
    ON_DEVICE,
    OUT_OF_MEMORY,
    THREAD_LOCAL,
    TIMEOUT,
    TO_DEVICE,
    TO_HOST,
    Cells,
    Gate,
    call,
    edges_of,
    event,
    executable,
    finish,
    hip,
    is_done,
    kernel,
    last,
    launch,
    made,
    memory,
    nodes_of,
    past,
    read,
    step,
    stream,
    word,
)


@pytest.fixture
def streams():
    """Two streams, each on a queue of its own: the runtime has four, which more streams share."""
    both = stream(), stream()
    yield both
    for each in both:
        call("hipStreamDestroy", each)


@pytest.fixture
def on(streams):
    return streams[0]


@pytest.fixture(autouse=True, scope="module")
def kernels():
    call("hipInit", 0)
    for name in ("step", "meet", "geometry", "diffuse", "strange"):
        kernel(name)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


# ---- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [1, 3, 4096, 100_001, 5_000_003])
def test_memory_keeps_what_is_written(nbytes):
    data = os.urandom(nbytes)
    first, second = memory(nbytes), memory(nbytes)
    call("hipMemcpy", first, data, c_size_t(nbytes), TO_DEVICE)
    call("hipMemcpy", second, first, c_size_t(nbytes), ON_DEVICE)
    call("hipDeviceSynchronize")
    assert read(second, nbytes) == data
    call("hipFree", first)
    call("hipFree", second)


@pytest.mark.parametrize("count", [1, 2, 7, 64, 1000, 65_537])
@pytest.mark.parametrize("offset", [0, 4, 20])
@pytest.mark.parametrize(
    ("name", "size", "value"),
    [("hipMemsetAsync", 1, 0xA5), ("hipMemsetD16Async", 2, 0xA5B6), ("hipMemsetD32Async", 4, 0x01020304)],
)
def test_fills_write_what_they_are_to_and_no_more(on, name, size, value, count, offset):
    room = 32
    area = memory(count * size + 2 * room, 0x11)
    call(name, past(area, room + offset), value, c_size_t(count), on)
    finish(on)
    found = read(area, count * size + 2 * room)
    filled = value.to_bytes(size, "little") * count
    assert found == b"\x11" * (room + offset) + filled + b"\x11" * (room - offset)
    call("hipFree", area)


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("nbytes", [5, 4099, 3_000_001])
def test_asynchronous_copies_are_in_order(on, pinned, nbytes):
    data = os.urandom(nbytes)
    host = made("hipHostMalloc", c_size_t(nbytes), 0) if pinned else cast(memory_of(nbytes), c_void_p)
    back = made("hipHostMalloc", c_size_t(nbytes), 0) if pinned else cast(memory_of(nbytes), c_void_p)
    call("hipMemcpy", host, data, c_size_t(nbytes), 0)  # from host to host
    first, second = memory(nbytes), memory(nbytes)
    call("hipMemcpyAsync", first, host, c_size_t(nbytes), TO_DEVICE, on)
    call("hipMemcpyAsync", second, first, c_size_t(nbytes), ON_DEVICE, on)
    call("hipMemcpyAsync", back, second, c_size_t(nbytes), TO_HOST, on)
    finish(on)
    found = memory_of(nbytes)
    call("hipMemcpy", found, back, c_size_t(nbytes), 0)
    assert found.raw == data


def test_memory_runs_out():
    def available():
        free, total = c_size_t(), c_size_t()
        call("hipMemGetInfo", byref(free), byref(total))
        return free.value

    before = available()
    most = made("hipMalloc", c_size_t(6 << 30))
    assert available() <= before - (6 << 30)
    assert hip.hipMalloc(byref(c_void_p()), c_size_t(6 << 30)) == OUT_OF_MEMORY
    call("hipFree", most)
    again = made("hipMalloc", c_size_t(6 << 30))
    call("hipFree", again)
    hip.hipGetLastError()


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
    launch(on, "geometry", out, grid=(3, 5), block=(32, 2), shared=64)
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
    nbytes = c_size_t(8 * size * size)
    grids = memory(nbytes.value), memory(nbytes.value)
    for grid in grids:
        call("hipMemcpy", grid, source.tobytes(), nbytes, TO_DEVICE)
    numbers = (c_int(size), c_int(2), c_int(7))
    launch(on, "diffuse", *grids, *numbers, grid=(1, 1), block=(32, 8))
    finish(on)
    assert read(grids[1], nbytes.value) == expected.tobytes()


@pytest.fixture
def names(tmp_path, monkeypatch):
    path = tmp_path / "unknown"
    monkeypatch.setenv("SOFTWARE_HSA_UNKNOWN", str(path))
    return lambda: path.read_text().splitlines()


def test_what_it_does_not_have_is_counted_and_named(on, names):
    cell, accounts = memory(4), Accounts()
    kernels, calls = accounts.unknown_kernels, accounts.unknown_calls
    launch(on, "strange", cell)
    launch(on, "strange", cell)
    finish(on)
    assert word(cell) == 0
    assert (accounts.unknown_kernels, accounts.unknown_calls) == (kernels + 2, calls)
    assert hip.hipIpcGetMemHandle(memory_of(64), cell) != 0
    assert (accounts.unknown_kernels, accounts.unknown_calls) == (kernels + 2, calls + 1)
    assert names() == ["twin of kernel strange", "function hsa_amd_ipc_memory_create"]
    hip.hipGetLastError()


# ---- order -----------------------------------------------------------------------------------------


def test_work_runs_while_the_host_goes_on(on, gate):
    cells = Cells(1)
    gate.close(on)
    step(on, cells.start, 1, 7)
    assert not is_done(on)
    assert cells[0] == 0
    gate.open()
    finish(on)
    assert cells[0] == 7


@pytest.mark.parametrize("kind", [TO_DEVICE, TO_HOST, ON_DEVICE])
def test_copies_wait_for_the_work_before_them(on, gate, kind):
    nbytes = 1 << 20
    source = Cells(nbytes // 4).start if kind == TO_DEVICE else memory(nbytes)
    target = Cells(nbytes // 4).start if kind == TO_HOST else memory(nbytes)
    call("hipMemset", source, 7, c_size_t(nbytes))
    call("hipDeviceSynchronize")
    gate.close(on)
    call("hipMemcpyAsync", target, source, c_size_t(nbytes), kind, on)
    assert not is_done(on)
    assert string_at(target.value, nbytes) == bytes(nbytes)  # the host sees all memory
    gate.open()
    finish(on)
    assert string_at(target.value, nbytes) == b"\7" * nbytes


def test_streams_run_at_once(streams):
    """Each of two kernels waits until the other runs."""
    (first, second), cells = streams, Cells(2)
    launch(first, "meet", cells.at(0), cells.at(1))
    launch(second, "meet", cells.at(1), cells.at(0))
    finish(first, second)


def test_events_order_streams(streams, gate):
    (first, second), cells, mark = streams, Cells(1), event()
    gate.close(first)
    step(first, cells.start, 10, 1)
    call("hipEventRecord", mark, first)
    call("hipStreamWaitEvent", second, mark, 0)
    step(second, cells.start, 10, 2)
    assert hip.hipEventQuery(mark) == NOT_READY
    assert not is_done(second)
    gate.open()
    finish(second)
    assert cells[0] == 12
    call("hipEventQuery", mark)


# ---- captures --------------------------------------------------------------------------------------


def test_a_fork_is_captured_and_replayed(streams):
    (first, second), cells, forked, joined = streams, memory(8), event(), event()
    call("hipStreamBeginCapture", first, THREAD_LOCAL)
    call("hipMemsetAsync", cells, 0, c_size_t(8), first)
    call("hipEventRecord", forked, first)
    call("hipStreamWaitEvent", second, forked, 0)
    step(first, cells, 1, 2)
    step(second, past(cells, 4), 1, 3)
    call("hipEventRecord", joined, second)
    call("hipStreamWaitEvent", first, joined, 0)
    step(first, cells, 5, 1)
    graph = last("hipStreamEndCapture", first)
    assert nodes_of(graph) == [KERNEL, KERNEL, KERNEL, MEMSET]
    assert edges_of(graph) == 4
    assert read(cells, 8) == bytes(8)
    run, before = executable(graph), Accounts().launches
    for _ in range(5):
        call("hipGraphLaunch", run, first)
    finish(first)
    assert (word(cells), word(past(cells, 4))) == (11, 3)
    assert Accounts().launches >= before + 15
    call("hipGraphExecDestroy", run)
    call("hipGraphDestroy", graph)


def test_branches_of_a_graph_run_at_once(streams):
    """Each of two kernels waits until the other runs."""
    (first, second), cells, forked, joined = streams, Cells(2), event(), event()
    call("hipStreamBeginCapture", first, THREAD_LOCAL)
    call("hipEventRecord", forked, first)
    call("hipStreamWaitEvent", second, forked, 0)
    launch(first, "meet", cells.at(0), cells.at(1))
    launch(second, "meet", cells.at(1), cells.at(0))
    call("hipEventRecord", joined, second)
    call("hipStreamWaitEvent", first, joined, 0)
    graph = last("hipStreamEndCapture", first)
    run = executable(graph)
    call("hipGraphLaunch", run, first)
    finish(first)


def test_a_replay_waits_for_its_stream(on, gate):
    cells = Cells(1)
    call("hipStreamBeginCapture", on, THREAD_LOCAL)
    step(on, cells.start, 10, 1)
    run = executable(last("hipStreamEndCapture", on))
    gate.close(on)
    for _ in range(3):
        call("hipGraphLaunch", run, on)
    assert not is_done(on)
    assert cells[0] == 0
    gate.open()
    finish(on)
    assert cells[0] == 111


def test_memory_is_allocated_in_a_graph(on):
    back = memory(4)
    call("hipStreamBeginCapture", on, THREAD_LOCAL)
    inside = made("hipMallocAsync", c_size_t(4096), on)
    call("hipMemsetAsync", inside, 9, c_size_t(4096), on)
    call("hipMemcpyAsync", back, past(inside, 4092), c_size_t(4), ON_DEVICE, on)
    call("hipFreeAsync", inside, on)
    graph = last("hipStreamEndCapture", on)
    assert len(nodes_of(graph)) == 4
    run = executable(graph)
    for _ in range(3):
        call("hipMemset", back, 0, c_size_t(4))
        call("hipDeviceSynchronize")
        call("hipGraphLaunch", run, on)
        finish(on)
        assert read(back, 4) == b"\t" * 4
    call("hipGraphExecDestroy", run)
    call("hipGraphDestroy", graph)


# ---- processes and devices -------------------------------------------------------------------------


def devices():
    count = c_int()
    call("hipGetDeviceCount", byref(count))
    return count.value


def test_children_are_on_the_runtime():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(devices) == devices()


def test_two_devices():
    """In a process of its own: a kernel on each, and a copy from one to the other."""
    script = "from simulators.amd import itself; itself.on_two_devices(); print('done')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=dict(os.environ, SOFTWARE_HSA_DEVICES="2"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def on_two_devices():
    assert devices() == 2
    cells = []
    for device in range(2):
        kernel.cache_clear()  # a module is its device's
        call("hipSetDevice", device)
        on, cell = stream(), memory(4)
        found = c_int()
        call("hipStreamGetDevice", on, byref(found))
        assert found.value == device
        step(on, cell, 1, 40 + device)
        finish(on)
        cells.append(cell)
    assert [word(cell) for cell in cells] == [40, 41]
    call("hipMemcpyPeer", cells[0], 0, cells[1], 1, c_size_t(4))
    call("hipDeviceSynchronize")
    assert word(cells[0]) == 41


def test_hip_python_is_on_the_same_runtime():
    bindings = pytest.importorskip("hip").hip
    ours = c_int()
    call("hipRuntimeGetVersion", byref(ours))
    assert bindings.hipRuntimeGetVersion() == (0, ours.value)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = {line.split()[-1] for line in maps if "libamdhip64.so" in line}
    assert len(mapped) == 1


def test_nothing_else_was_missing():
    """Last: this module needs nothing that is not there, but for what it asks for on purpose."""
    accounts = Accounts()
    assert (accounts.unknown_kernels, accounts.unknown_calls) == (2, 1)
