"""The software CUDA driver itself: launches, times, callbacks, and nodes that are added by hand.

Run by tests/simulators/test_cuda.py.
"""

import ctypes
import threading

import pytest
from cuda.bindings import driver

from accelerator_graph.testing.works.cuda import KERNEL, call
from simulators.cuda.tools import TIMEOUT, Gate, captured

LIBRARY = ctypes.CDLL("libcuda.so.1")


@pytest.fixture
def stream(live):
    stream = call(driver.cuStreamCreate, 1)
    yield stream
    call(driver.cuStreamDestroy, stream)


@pytest.fixture
def cell(live):
    memory = call(driver.cuMemAlloc, 64)
    call(driver.cuMemsetD8, memory, 0, 64)
    call(driver.cuCtxSynchronize)
    yield int(memory)
    call(driver.cuMemFree, memory)


@pytest.fixture
def step(live):
    module = call(driver.cuModuleLoadData, KERNEL)
    yield int(call(driver.cuModuleGetFunction, module, b"step"))
    call(driver.cuModuleUnload, module)


def word(address):
    return ctypes.c_uint32.from_address(address).value


# ---- launches, times and callbacks ------------------------------------------------------------------


class Block(ctypes.Structure):
    """The parameters of the kernel, one after another."""

    _fields_ = (
        *(("cell", ctypes.c_uint64), ("a", ctypes.c_uint32), ("b", ctypes.c_uint32)),
        *(("pause", ctypes.c_uint64),),
    )


def launch(step, stream, *extra, parameters=None):
    """Launch with `extra`, which cuda-python has no way to build."""
    values = (ctypes.c_void_p * (len(extra) + 1))(*extra, None)
    sizes = [ctypes.c_uint(1)] * 6
    where = ctypes.c_uint(0), ctypes.c_void_p(int(stream))
    return LIBRARY.cuLaunchKernel(ctypes.c_void_p(step), *sizes, *where, parameters, values)


def test_parameters_in_one_block(stream, step, cell):
    block = Block(cell, 1, 9, 0)
    address = ctypes.addressof(block)
    nbytes, less = (ctypes.c_size_t(ctypes.sizeof(Block) - missing) for missing in (0, 1))
    assert launch(step, stream, 1, address, 2, ctypes.addressof(nbytes)) == 0
    call(driver.cuStreamSynchronize, stream)
    assert word(cell) == 9
    assert launch(step, stream, 2, ctypes.addressof(nbytes), 1, address) == 0
    assert launch(step, stream, 1, address, 2, ctypes.addressof(less)) == 1
    assert launch(step, stream, 1, address) == 1
    assert launch(step, stream, 3, address, 2, ctypes.addressof(nbytes)) == 1
    both = (ctypes.c_void_p * 4)()
    assert launch(step, stream, 1, address, 2, ctypes.addressof(nbytes), parameters=both) == 1
    call(driver.cuStreamSynchronize, stream)
    assert word(cell) == 18


def test_time_passes_between_events(stream, gate):
    start, end, untimed = (call(driver.cuEventCreate, flags) for flags in (0, 1, 2))
    assert int(driver.cuEventElapsedTime(start, end)[0]) == 400  # not recorded
    call(driver.cuEventRecord, start, stream)
    gate.close(stream)
    call(driver.cuEventRecordWithFlags, end, stream, 0)
    call(driver.cuEventRecord, untimed, stream)
    assert int(driver.cuEventElapsedTime(start, end)[0]) == 600
    gate.opened.set()
    call(driver.cuStreamSynchronize, stream)
    passed = call(driver.cuEventElapsedTime, start, end)
    assert passed > 0
    assert call(driver.cuEventElapsedTime, end, start) == -passed
    assert int(driver.cuEventElapsedTime(start, untimed)[0]) == 400
    for event in (start, end, untimed):
        call(driver.cuEventDestroy, event)


@pytest.mark.parametrize("flags", [8, 4, 1 << 31])
def test_flags_that_no_event_has(live, flags):
    assert LIBRARY.cuEventCreate(ctypes.byref(ctypes.c_void_p()), ctypes.c_uint(flags)) == 1
    assert live() == {}


def test_a_callback_is_told_its_stream(stream):
    told, ready = [], threading.Event()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    def callback(*arguments):
        told.append(arguments)
        ready.set()

    add, where, data = LIBRARY.cuStreamAddCallback, ctypes.c_void_p(int(stream)), ctypes.c_void_p(77)
    assert add(where, callback, data, 0) == 0
    assert ready.wait(TIMEOUT)
    assert told == [(int(stream), 0, 77)]
    assert add(where, callback, data, 1) == 1
    assert add(where, None, data, 0) == 1


def test_memory_is_freed_as_it_was_allocated(live):
    device, host = call(driver.cuMemAlloc, 64), call(driver.cuMemHostAlloc, 64, 0)
    assert int(driver.cuMemFree(host)[0]) == int(driver.cuMemFreeHost(int(device))[0]) == 1
    assert int(driver.cuMemHostAlloc(64, 8)[0]) == int(driver.cuMemAllocManaged(64, 3)[0]) == 1
    call(driver.cuMemFree, device)
    call(driver.cuMemFreeHost, host)
    assert live() == {}


# ---- nodes ----------------------------------------------------------------------------------------


def run(graph, stream):
    executable = call(driver.cuGraphInstantiate, graph, 0)
    call(driver.cuGraphLaunch, executable, stream)
    call(driver.cuStreamSynchronize, stream)
    call(driver.cuGraphExecDestroy, executable)


def nodes(graph):
    count = driver.cuGraphGetNodes(graph)[2]
    return [int(node) for node in driver.cuGraphGetNodes(graph, count)[1]] if count else []


def connect(graph, before, after, change=driver.cuGraphAddDependencies):
    try:
        call(change, graph, [before], [after], None, 1)  # since CUDA 13
    except TypeError:
        call(change, graph, [before], [after], 1)


def test_a_node_is_taken_out(live, stream, cell):
    graph = captured(stream, *((driver.cuMemsetD8Async, cell + i, i + 1, 1) for i in range(3)))
    child = captured(stream, (driver.cuMemsetD8Async, cell + 8, 1, 1))
    last = driver.CUgraphNode(nodes(graph)[-1])
    node = call(driver.cuGraphAddChildGraphNode, graph, [last], 1, child)
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
    assert ctypes.string_at(cell, 9) == b"\1\0\3" + bytes(6)  # and not what was taken out
    assert int(driver.cuGraphDestroyNode(driver.CUgraphNode(0))[0]) == 1
    call(driver.cuGraphDestroy, graph)


def test_a_node_records_an_event(live, stream, cell):
    graph = captured(stream, (driver.cuMemsetD8Async, cell, 1, 1), (driver.cuMemsetD8Async, cell, 2, 1))
    first, last = map(driver.CUgraphNode, nodes(graph))
    event, start = call(driver.cuEventCreate, 0), call(driver.cuEventCreate, 0)
    node = call(driver.cuGraphAddEventRecordNode, graph, [first], 1, event)
    connect(graph, first, last, driver.cuGraphRemoveDependencies)
    connect(graph, node, last)
    assert driver.cuGraphGetEdges(graph)[-1] == 2
    call(driver.cuEventRecord, start, stream)
    times = []
    for _ in range(2):
        run(graph, stream)
        call(driver.cuEventSynchronize, event)
        times.append(call(driver.cuEventElapsedTime, start, event))
    assert 0 < times[0] < times[1]
    assert ctypes.string_at(cell, 1) == b"\2"
    call(driver.cuGraphDestroy, graph)
    for each in (event, start):
        call(driver.cuEventDestroy, each)


def test_a_capture_records_an_event_as_a_node(live, stream, cell):
    event, start = call(driver.cuEventCreate, 0), call(driver.cuEventCreate, 0)
    external = driver.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL
    assert int(driver.cuEventRecordWithFlags(event, stream, external)[0]) == 401  # nothing is captured
    call(driver.cuEventRecord, start, stream)
    call(driver.cuStreamBeginCapture, stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    call(driver.cuMemsetD8Async, cell, 1, 1, stream)
    call(driver.cuEventRecordWithFlags, event, stream, external)
    call(driver.cuMemsetD8Async, cell, 2, 1, stream)
    graph = call(driver.cuStreamEndCapture, stream)
    assert live()["nodes"] == 3
    assert driver.cuGraphGetEdges(graph)[-1] == 2
    times = []
    for _ in range(2):
        run(graph, stream)
        call(driver.cuEventSynchronize, event)
        times.append(call(driver.cuEventElapsedTime, start, event))
    assert 0 < times[0] < times[1]
    assert ctypes.string_at(cell, 1) == b"\2"
    call(driver.cuGraphDestroy, graph)
    for each in (event, start):
        call(driver.cuEventDestroy, each)


def test_the_event_of_a_node_is_not_done_before_the_run_is_there(stream, cell):
    gate, event = Gate(), call(driver.cuEventCreate, 0)
    graph = call(driver.cuGraphCreate, 0)
    call(driver.cuGraphAddEventRecordNode, graph, None, 0, event)
    executable = call(driver.cuGraphInstantiate, graph, 0)
    gate.close(stream)
    call(driver.cuGraphLaunch, executable, stream)
    assert int(driver.cuEventQuery(event)[0]) == 600
    gate.opened.set()
    call(driver.cuEventSynchronize, event)
    call(driver.cuStreamSynchronize, stream)
    assert int(driver.cuGraphAddEventRecordNode(graph, None, 0, 0)[0]) == 1
    call(driver.cuGraphExecDestroy, executable)
    call(driver.cuGraphDestroy, graph)
    call(driver.cuEventDestroy, event)


def test_dependencies_that_are_not_there_can_not_be_taken_out(stream, cell):
    graph = captured(stream, (driver.cuMemsetD8Async, cell, 1, 1), (driver.cuMemsetD8Async, cell, 2, 1))
    first, last = map(driver.CUgraphNode, nodes(graph))
    with pytest.raises(AssertionError):
        connect(graph, last, first, driver.cuGraphRemoveDependencies)
    assert driver.cuGraphGetEdges(graph)[-1] == 1
    connect(graph, first, last, driver.cuGraphRemoveDependencies)
    assert driver.cuGraphGetEdges(graph)[-1] == 0
    call(driver.cuGraphDestroy, graph)


def test_a_node_stays_while_its_graph_captures(stream, cell):
    call(driver.cuStreamBeginCapture, stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    call(driver.cuMemsetD8Async, cell, 1, 1, stream)
    _, _, _, graph, *_ = driver.cuStreamGetCaptureInfo(stream)
    (node,) = nodes(graph)
    assert int(driver.cuGraphDestroyNode(driver.CUgraphNode(node))[0]) == 1
    call(driver.cuGraphDestroy, call(driver.cuStreamEndCapture, stream))
