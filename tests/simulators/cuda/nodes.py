"""The software CUDA driver itself: nodes that are added, asked and taken out by hand.

Run by test_on_software_driver.py.
"""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver

from backends.works.cuda import KERNEL, call
from simulators.cuda.tools import captured, read, wait_until

LIBRARY = ctypes.CDLL("libcuda.so.1")
RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED


@pytest.fixture
def stream(live):
    stream = call(driver.cuStreamCreate, 1)
    yield stream
    call(driver.cuStreamDestroy, stream)
    assert live() == {}


@pytest.fixture
def memory(stream):
    memory = call(driver.cuMemAlloc, 64)
    call(driver.cuMemsetD8, memory, 0, 64)
    call(driver.cuCtxSynchronize)
    yield int(memory)
    call(driver.cuMemFree, memory)


@pytest.fixture
def graph(stream):
    graph = call(driver.cuGraphCreate, 0)
    yield graph
    call(driver.cuGraphDestroy, graph)


def run(graph, stream):
    executable = call(driver.cuGraphInstantiate, graph, 0)
    call(driver.cuGraphLaunch, executable, stream)
    call(driver.cuStreamSynchronize, stream)
    call(driver.cuGraphExecDestroy, executable)


def nodes(graph):
    count = driver.cuGraphGetNodes(graph)[2]
    return [int(node) for node in driver.cuGraphGetNodes(graph, count)[1]] if count else []


def connect(graph, before, after):
    try:
        call(driver.cuGraphAddDependencies, graph, [before], [after], None, 1)  # since CUDA 13
    except TypeError:
        call(driver.cuGraphAddDependencies, graph, [before], [after], 1)


def fill_of(memory, value):
    fill = driver.CUDA_MEMSET_NODE_PARAMS()
    fill.dst, fill.value, fill.elementSize, fill.width, fill.height = memory, value, 1, 1, 1
    return fill


def test_a_kernel_node(graph, stream, memory):
    module = call(driver.cuModuleLoadData, KERNEL)
    values = ctypes.c_uint64(memory), ctypes.c_uint32(0), ctypes.c_uint32(6), ctypes.c_uint64(0)
    addresses = (ctypes.c_void_p * 4)(*map(ctypes.addressof, values))
    params = driver.CUDA_KERNEL_NODE_PARAMS()
    params.func = call(driver.cuModuleGetFunction, module, b"step")
    params.gridDimX, params.gridDimY, params.gridDimZ = 2, 3, 1
    params.blockDimX, params.blockDimY, params.blockDimZ = 4, 1, 2
    params.sharedMemBytes, params.kernelParams = 16, ctypes.addressof(addresses)
    node = call(driver.cuGraphAddKernelNode, graph, [], 0, params)
    values[2].value = 7  # they were copied
    found = call(driver.cuGraphKernelNodeGetParams, node)
    assert int(found.func) == int(params.func)
    assert (found.gridDimX, found.gridDimY, found.gridDimZ) == (2, 3, 1)
    assert (found.blockDimX, found.blockDimY, found.blockDimZ, found.sharedMemBytes) == (4, 1, 2, 16)
    run(graph, stream)
    assert read(memory) == 6
    params.blockDimX = 2048
    assert int(driver.cuGraphAddKernelNode(graph, [], 0, params)[0]) == 1
    params.blockDimX, params.func = 1, 0
    assert int(driver.cuGraphAddKernelNode(graph, [], 0, params)[0]) == 400
    call(driver.cuModuleUnload, module)


def test_a_copy_node(graph, stream, memory):
    context = call(driver.cuCtxGetCurrent)
    host = (ctypes.c_char * 8)(*b"abcdefgh")
    types = driver.CUmemorytype
    copy = driver.CUDA_MEMCPY3D()
    copy.srcMemoryType, copy.srcHost, copy.srcXInBytes = types.CU_MEMORYTYPE_HOST, ctypes.addressof(host), 1
    copy.dstMemoryType, copy.dstDevice, copy.dstXInBytes = types.CU_MEMORYTYPE_UNIFIED, memory, 2
    copy.WidthInBytes, copy.Height, copy.Depth = 3, 1, 1
    node = call(driver.cuGraphAddMemcpyNode, graph, [], 0, copy, context)
    found = call(driver.cuGraphMemcpyNodeGetParams, node)
    assert (found.srcMemoryType, found.dstMemoryType) == (
        types.CU_MEMORYTYPE_HOST,
        types.CU_MEMORYTYPE_DEVICE,
    )
    assert (int(found.srcHost), int(found.dstDevice)) == (ctypes.addressof(host) + 1, memory + 2)
    assert (found.WidthInBytes, found.Height, found.Depth) == (3, 1, 1)
    run(graph, stream)
    assert ctypes.string_at(memory, 6) == b"\0\0bcd\0"
    copy.Depth = 0
    assert int(driver.cuGraphAddMemcpyNode(graph, [], 0, copy, context)[0]) == 1
    assert int(driver.cuGraphAddMemcpyNode(graph, [], 0, copy, 0)[0]) == 201


def test_a_host_node(graph, stream):
    told = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(told.append)
    params = (ctypes.c_void_p * 2)(ctypes.cast(function, ctypes.c_void_p).value, 77)
    node, none = ctypes.c_void_p(), ctypes.c_size_t(0)
    add, of = LIBRARY.cuGraphAddHostNode, ctypes.c_void_p(int(graph))
    assert add(ctypes.byref(node), of, None, none, params) == 0
    found = (ctypes.c_void_p * 2)()
    assert LIBRARY.cuGraphHostNodeGetParams(node, found) == 0
    assert [*found] == [*params]
    run(graph, stream)
    assert told == [77]
    assert add(ctypes.byref(node), of, None, none, (ctypes.c_void_p * 2)()) == 1


def test_nodes_of_memory(stream):
    call(driver.cuStreamBeginCapture, stream, RELAXED)
    address = int(call(driver.cuMemAllocAsync, 100, stream))
    call(driver.cuMemFreeAsync, address, stream)
    graph = call(driver.cuStreamEndCapture, stream)
    allocation, free = nodes(graph)
    found = call(driver.cuGraphMemAllocNodeGetParams, driver.CUgraphNode(allocation))
    assert (found.bytesize, int(found.dptr), found.poolProps.location.id) == (100, address, 0)
    assert int(call(driver.cuGraphMemFreeNodeGetParams, driver.CUgraphNode(free))) == address
    assert int(driver.cuGraphMemFreeNodeGetParams(driver.CUgraphNode(allocation))[0]) == 1
    assert int(driver.cuGraphDestroyNode(driver.CUgraphNode(free))[0]) == 801
    call(driver.cuGraphDestroy, graph)


def test_a_node_is_taken_out(live, graph, stream, memory):
    context, last = call(driver.cuCtxGetCurrent), []
    for i in range(3):
        fill = fill_of(memory + i, i + 1)
        last = [call(driver.cuGraphAddMemsetNode, graph, last, len(last), fill, context)]
    child = captured(stream, (driver.cuMemsetD8Async, memory + 8, 1, 1))
    node = call(driver.cuGraphAddChildGraphNode, graph, last, 1, child)
    call(driver.cuGraphDestroy, child)
    first, middle, end, _ = nodes(graph)
    call(driver.cuGraphDestroyNode, driver.CUgraphNode(middle))
    call(driver.cuGraphDestroyNode, node)
    assert nodes(graph) == [first, end]
    assert driver.cuGraphGetEdges(graph)[-1] == 0
    connect(graph, driver.CUgraphNode(end), driver.CUgraphNode(first))
    clone = call(driver.cuGraphClone, graph)
    assert driver.cuGraphGetEdges(clone)[-1] == 1
    run(clone, stream)
    call(driver.cuGraphDestroy, clone)
    assert live()["nodes"] == 2
    assert live()["graphs"] == 1
    run(graph, stream)
    assert ctypes.string_at(memory, 9) == b"\1\0\3" + bytes(6)  # and not what was taken out
    assert int(driver.cuGraphDestroyNode(driver.CUgraphNode(0))[0]) == 1


def test_a_node_stays_while_its_graph_captures(stream, memory):
    call(driver.cuStreamBeginCapture, stream, RELAXED)
    call(driver.cuMemsetD8Async, memory, 1, 1, stream)
    _, _, _, graph, *_ = driver.cuStreamGetCaptureInfo(stream)
    (node,) = nodes(graph)
    assert int(driver.cuGraphDestroyNode(driver.CUgraphNode(node))[0]) == 1
    call(driver.cuGraphDestroy, call(driver.cuStreamEndCapture, stream))


class InstantiateParams(ctypes.Structure):
    _fields_ = (
        *(("flags", ctypes.c_uint64), ("upload_to", ctypes.c_void_p)),
        *(("culprit", ctypes.c_void_p), ("result", ctypes.c_int)),
    )


def instantiated(graph, **values):
    params, executable = InstantiateParams(culprit=1, result=-1, **values), ctypes.c_void_p()
    of = ctypes.c_void_p(int(graph))
    code = LIBRARY.cuGraphInstantiateWithParams(ctypes.byref(executable), of, ctypes.byref(params))
    return code, params.result, params.culprit, driver.CUgraphExec(executable.value or 0)


def test_an_executable_with_parameters(live, graph, stream, gate):
    *answer, executable = instantiated(graph, flags=1 | 8)
    assert answer == [0, 0, None]
    assert int(call(driver.cuGraphExecGetFlags, executable)) == 9
    call(driver.cuGraphExecDestroy, executable)
    gate.close(stream)
    *answer, executable = instantiated(graph, flags=2, upload_to=int(stream))
    assert answer == [0, 0, None]
    assert int(call(driver.cuGraphExecGetFlags, executable)) == 0
    gate.opened.set()
    wait_until(lambda: int(driver.cuStreamQuery(stream)[0]) == 0)
    call(driver.cuGraphExecDestroy, executable)
    assert instantiated(graph, flags=2, upload_to=0x1001)[:2] == (400, 1)
    assert instantiated(graph, flags=1 << 20)[:2] == (1, 1)
    assert int(driver.cuGraphExecGetFlags(driver.CUgraphExec(0))[0]) == 1
