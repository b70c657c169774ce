"""The shim itself: on a GPU, or on the software CUDA driver.

Run by ``python -m simulators.hip_on_cuda``.
"""

import ctypes
import os
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p

import pytest
from hip import hip, hiprtc

from accelerator_graph.testing.works.hip import SOURCE
from backends.hip import bench
from processes import execute
from threads import in_thread

KERNEL, FILL = 0, 2
RELAXED = 2


@pytest.fixture(scope="module")
def kernels():
    return bench.loaded(SOURCE)


@pytest.fixture
def stream():
    stream = bench.bare_stream()
    yield stream
    bench.call("hipStreamDestroy", stream)


@pytest.fixture
def other():
    stream = bench.bare_stream()
    yield stream
    bench.call("hipStreamDestroy", stream)


@pytest.fixture
def cells():
    """Address of 64 zeros on the device, four bytes each."""
    cells = bench.made("hipMalloc", 256)
    bench.call("hipMemset", cells, 0, 256)
    bench.call("hipDeviceSynchronize")
    yield cells
    bench.call("hipFree", cells)


def words(address, count):
    found = (c_uint32 * count)()
    bench.call("hipMemcpy", found, address, 4 * count, bench.TO_HOST)
    return list(found)


def step(kernels, stream, cell, a, b):
    bench.bare_launch(stream, kernels.step, c_void_p(cell), c_uint32(a), c_uint32(b), c_uint64(0))


def fill(stream, cell):
    assert bench.answer("hipMemsetAsync", cell, 1, 4, stream) == 0


def begin(stream, mode="thread_local"):
    assert bench.bare_begin(stream, mode) == 0


def end(stream):
    code, graph = bench.bare_end(stream)
    assert code == 0
    return graph


# ---- kernels and memory --------------------------------------------------------------------------


def test_a_kernel_runs(kernels, stream, cells):
    step(kernels, stream, cells, 1, 7)
    step(kernels, stream, cells, 10, 1)
    bench.call("hipStreamSynchronize", stream)
    assert words(cells, 1) == [71]
    bench.library().hipKernelNameRef.restype = c_char_p
    assert bench.library().hipKernelNameRef(c_void_p(kernels.step)) == b"step"


def test_a_kernel_runs_with_its_arguments_in_one_block(kernels, cells):
    """As hip-python passes them: HIP's mark of the end is not CUDA's."""
    arguments = c_void_p(cells), c_uint32(1), c_uint32(9), c_uint64(0)
    code, *_ = hip.hipModuleLaunchKernel(kernels.step, *[1] * 6, 0, None, None, arguments)
    assert int(code) == 0
    bench.call("hipDeviceSynchronize")
    assert words(cells, 1) == [9]


def test_a_source_that_is_wrong_is_not_compiled():
    source = b'extern "C" __device__ void step() { this is wrong; }'
    code, program = hiprtc.hiprtcCreateProgram(source, b"step.hip", 0, None, None)
    assert int(code) == 0
    (code,) = hiprtc.hiprtcCompileProgram(program, 1, [b"--offload-arch=gfx942"])
    assert code == hiprtc.hiprtcResult.HIPRTC_ERROR_COMPILATION
    hiprtc.hiprtcDestroyProgram(program.createRef())


def test_memory_is_copied_and_filled(cells, stream):
    sent = bytes(range(256))
    bench.call("hipMemcpy", cells, sent, 256, bench.TO_DEVICE)
    bench.call("hipMemset", cells, 1, 4)
    bench.call("hipMemcpy", cells + 8, cells + 4, 4, 3)
    bench.call("hipMemsetAsync", cells + 12, 2, 4, stream)
    bench.call("hipMemcpyAsync", cells + 16, cells + 4, 4, 3, stream)
    bench.call("hipStreamSynchronize", stream)
    found = ctypes.create_string_buffer(256)
    bench.call("hipMemcpy", found, cells, 256, 4)
    assert found.raw[:20] == b"\1\1\1\1" + bytes(range(4, 8)) * 2 + b"\2\2\2\2" + bytes(range(4, 8))
    assert found.raw[20:] == sent[20:]
    assert bench.answer("hipMemcpy", cells, cells + 4, 4, 77) == 1
    assert bench.made("hipMalloc", 0) is None
    bench.call("hipFree", 0)


# ---- errors, devices and threads -----------------------------------------------------------------


def test_each_thread_remembers_its_last_error():
    bench.answer("hipGetLastError")
    assert bench.answer("hipSetDevice", 999) == 101
    bench.call("hipDeviceSynchronize")
    assert in_thread(lambda: bench.answer("hipGetLastError")) == 0
    assert bench.last_error() == 101
    assert [bench.answer("hipGetLastError") for _ in range(2)] == [101, 0]
    bench.library().hipGetErrorString.restype = c_char_p
    assert bench.library().hipGetErrorString(2) == b"out of memory"


def test_each_thread_has_a_device():
    def elsewhere():
        assert bench.number("hipGetDevice") == 0
        bench.call("hipFree", bench.made("hipMalloc", 64))  # with nothing set up
        bench.call("hipSetDevice", last)
        bench.call("hipFree", bench.made("hipMalloc", 64))
        assert bench.number("hipGetDevice") == last
        return bench.bare_stream()

    last = bench.number("hipGetDeviceCount") - 1
    stream = in_thread(elsewhere)
    assert bench.number("hipGetDevice") == 0
    assert bench.number("hipStreamGetDevice", stream) == last
    mine = bench.bare_stream()  # on the device that was current before the question
    assert bench.number("hipStreamGetDevice", mine) == 0
    bench.call("hipStreamDestroy", mine)
    bench.call("hipStreamDestroy", stream)


NONE_THERE = """
import ctypes
library = ctypes.CDLL("libamdhip64.so")
count, stream = ctypes.c_int(5), ctypes.c_void_p()
assert library.hipRuntimeGetVersion(ctypes.byref(count)) == 0
print(library.hipGetDeviceCount(ctypes.byref(count)), count.value,
      library.hipStreamCreateWithFlags(ctypes.byref(stream), 1), library.hipGetLastError())
"""


@pytest.mark.parametrize("driver", [True, False])
def test_without_a_device(driver):
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "", "SOFTWARE_CUDA_DEVICES": "0"}
    if not driver:
        env["LD_LIBRARY_PATH"] = os.path.join(env["ROCM_PATH"], "lib")
    command = (sys.executable, "-c", NONE_THERE)
    done = execute(command, env=env, timeout=bench.TIMEOUT)
    assert done.stdout.split() == ["100", "0", "100", "100"], done.stderr


# ---- captures and graphs -------------------------------------------------------------------------


def test_a_capture_that_forks_and_joins_is_replayed(kernels, cells, stream, other, tmp_path):
    begin(stream)
    bench.call("hipMemsetAsync", cells, 0, 8, stream)
    bench.fork(stream, other)
    step(kernels, stream, cells, 1, 3)
    step(kernels, other, cells + 4, 1, 5)
    bench.fork(other, stream)
    step(kernels, stream, cells, 10, 1)
    assert bench.status_of(stream) == bench.status_of(other) == "active"
    graph = end(stream)

    kinds = {node: bench.number("hipGraphNodeGetType", node) for node in bench.nodes_of(graph)}
    assert sorted(kinds.values()) == [KERNEL, KERNEL, KERNEL, FILL]
    (first,) = (node for node, kind in kinds.items() if kind == FILL)
    count, root = c_size_t(1), c_void_p()
    bench.call("hipGraphGetRootNodes", graph, byref(root), byref(count))
    assert (count.value, root.value) == (1, first)
    edges = bench.edges_of(graph)
    middle = {target for source, target in edges if source == first}
    (last,) = set(kinds) - middle - {first}
    assert set(edges) == {(first, node) for node in middle} | {(node, last) for node in middle}
    path = tmp_path / "graph.dot"
    bench.call("hipGraphDebugDotPrint", graph, os.fsencode(path), 1)
    assert path.read_text(encoding="utf-8").startswith("digraph")

    executable = bench.made("hipGraphInstantiateWithFlags", graph, 1 | 8)
    bench.call("hipGraphUpload", executable, stream)
    for _ in range(2):
        bench.call("hipMemsetAsync", cells, 0xFF, 8, stream)
        bench.call("hipGraphLaunch", executable, stream)
        bench.call("hipStreamSynchronize", stream)
        assert words(cells, 2) == [31, 5]
    bench.call("hipGraphDestroy", graph)
    bench.call("hipGraphExecDestroy", executable)


def test_flags_that_amd_refuses_are_refused(cells, stream):
    begin(stream)
    fill(stream, cells)
    graph = end(stream)
    for flag in (2, 4, 16):
        assert bench.answer("hipGraphInstantiateWithFlags", byref(c_void_p()), graph, flag) == 1
    bench.call("hipGraphDestroy", graph)


def test_a_forbidden_call_breaks_a_capture(cells, stream):
    begin(stream)
    assert bench.answer("hipStreamSynchronize", stream) == 900
    assert bench.status_of(stream) == "invalidated"
    assert bench.bare_end(stream)[0] == 901
    assert bench.bare_begin(0, "relaxed") == 900
    assert bench.answer("hipGetLastError") == 900


def test_a_fork_that_is_not_joined_is_an_error(cells, stream, other):
    begin(stream)
    bench.fork(stream, other)
    fill(other, cells)
    assert bench.bare_end(stream)[0] == 904


def test_a_capture_is_asked_about_and_a_mode_exchanged(cells, stream):
    begin(stream)
    assert bench.number("hipStreamGetDevice", stream) == 0
    mode = c_int(RELAXED)
    bench.call("hipThreadExchangeStreamCaptureMode", byref(mode))
    bench.call("hipThreadExchangeStreamCaptureMode", byref(mode))
    assert mode.value == RELAXED
    fill(stream, cells)
    status, count, identity, graph, nodes = c_int(), c_size_t(9), c_uint64(), c_void_p(), c_void_p()
    where = map(byref, (status, identity, graph, nodes, count))
    bench.call("hipStreamGetCaptureInfo_v2", stream, *where)
    assert (status.value, count.value) == (1, 1)
    assert identity.value
    bench.call("hipStreamUpdateCaptureDependencies", stream, None, 0, 1)
    fill(stream, cells + 4)
    assert end(stream) == graph.value
    assert bench.edges_of(graph.value) == []
    bench.call("hipGraphDestroy", graph.value)


def test_nodes_are_added_connected_and_taken_out(cells, stream):
    begin(stream)
    fill(stream, cells)
    graph = end(stream)
    (first,) = bench.nodes_of(graph)
    added = [bench.made("hipGraphAddEmptyNode", graph, None, 0) for _ in range(2)]
    bench.call("hipGraphAddDependencies", graph, byref(c_void_p(added[0])), byref(c_void_p(first)), 1)
    assert bench.edges_of(graph) == [(added[0], first)]
    bench.call("hipGraphDestroyNode", added[1])
    assert sorted(bench.nodes_of(graph)) == sorted((first, added[0]))
    bench.call("hipGraphDestroy", graph)


def test_a_copy_of_a_graph_records_an_event(cells, stream):
    begin(stream)
    fill(stream, cells)
    fill(stream, cells + 4)
    graph = end(stream)
    copy = bench.made("hipGraphClone", graph)
    first, last = (bench.made("hipGraphNodeFindInClone", node, copy) for node in bench.nodes_of(graph))
    event = bench.made("hipEventCreateWithFlags", 0)
    node = bench.made("hipGraphAddEventRecordNode", copy, None, 0, event)
    bench.call("hipGraphRemoveDependencies", copy, byref(c_void_p(first)), byref(c_void_p(last)), 1)
    for ends in ((first, node), (node, last)):
        bench.call("hipGraphAddDependencies", copy, *(byref(c_void_p(each)) for each in ends), 1)
    assert bench.edges_of(copy) == sorted([(first, node), (node, last)])
    assert len(bench.edges_of(graph)) == 1
    for each in (copy, graph):
        bench.call("hipGraphDestroy", each)
    bench.call("hipEventDestroy", event)


def test_an_executable_is_updated_or_says_why_not(cells, stream):
    def captured(*values):
        begin(stream)
        for each in values:
            bench.call("hipMemsetAsync", cells, each, 4, stream)
        return end(stream)

    first, second, longer = captured(1), captured(2), captured(3, 4)
    executable = bench.made("hipGraphInstantiateWithFlags", first, 1)
    node, result = c_void_p(1), c_int(7)
    update = "hipGraphExecUpdate", executable
    assert bench.answer(*update, longer, byref(node), byref(result)) == 910
    assert (node.value, result.value) == (None, 2)
    bench.call(*update, second, byref(node), byref(result))
    assert (node.value, result.value) == (None, 0)
    bench.call("hipGraphLaunch", executable, stream)
    bench.call("hipStreamSynchronize", stream)
    assert words(cells, 1) == [0x02020202]
    bench.call("hipGraphExecDestroy", executable)
    for each in (first, second, longer):
        bench.call("hipGraphDestroy", each)
