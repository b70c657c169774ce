"""The software CUDA driver itself: what goes while it is in use, updates, forks.

Run by test_on_software_driver.py.
"""

import sys
import threading

import pytest
from cuda.bindings import driver

from accelerator_graph.testing.works.cuda import KERNEL, call
from driver_rules.contexts import current, new_context
from processes import execute
from simulators.cuda.tools import TIMEOUT, captured, read, wait_until

NON_BLOCKING = 1


class Other:
    """A call on another thread, with a context of its own choice."""

    def __init__(self, context, function, *args):
        self.answer = None
        self._entered = threading.Event()
        self._thread = threading.Thread(target=self._call, args=(context, function, args), daemon=True)
        self._thread.start()
        assert self._entered.wait(TIMEOUT), "it hangs"  # before the context is destroyed

    def _call(self, context, function, args):
        with current(context):
            self._entered.set()
            self.answer = function(*args)

    def wait(self):
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), "it hangs"
        return int(self.answer[0])


@pytest.fixture
def stream(live):
    stream = call(driver.cuStreamCreate, NON_BLOCKING)
    yield stream
    call(driver.cuStreamDestroy, stream)


# ---- contexts ------------------------------------------------------------------------------------


def test_events_and_kernels_belong_to_no_later_context(live):
    context = new_context()
    with current(context):
        event = call(driver.cuEventCreate, 0)
        module = call(driver.cuModuleLoadData, KERNEL)
        kernel = call(driver.cuModuleGetFunction, module, b"step")
        assert int(call(driver.cuModuleGetFunction, module, b"step")) == int(kernel)
    call(driver.cuCtxDestroy, context)
    later = [new_context() for _ in range(8)]  # one of them, likely, where the first one was
    for context in later:
        with current(context):
            stream = call(driver.cuStreamCreate, NON_BLOCKING)
            assert int(driver.cuEventRecord(event, stream)[0]) == 400
            assert int(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)[0]) == 400
    for context in later:
        call(driver.cuCtxDestroy, context)
    call(driver.cuEventDestroy, event)
    call(driver.cuModuleUnload, module)
    assert live() == {}


def test_a_context_is_destroyed_once(live, gate):
    """While one thread waits for what the context holds, there is nothing left for others to destroy."""
    context, present = new_context(), call(driver.cuCtxGetCurrent)
    with current(context):
        stream = call(driver.cuStreamCreate, NON_BLOCKING)
        memory = call(driver.cuMemAlloc, 1)
        gate.close(stream)
        call(driver.cuMemsetD8Async, memory, 1, 1, stream)
    destruction = Other(present, driver.cuCtxDestroy, context)
    wait_until(lambda: "contexts" not in live())
    assert int(driver.cuCtxDestroy(context)[0]) == 201
    assert int(driver.cuCtxPushCurrent(context)[0]) == 201
    assert int(driver.cuMemsetD8Async(memory, 2, 1, stream)[0]) == 400
    gate.opened.set()
    assert destruction.wait() == 0
    assert live() == {}


def test_waiting_for_a_context_ends_with_it(live, gate):
    context, present = new_context(), call(driver.cuCtxGetCurrent)
    with current(context):
        stream = call(driver.cuStreamCreate, NON_BLOCKING)
        gate.close(stream)
    waits = Other(context, driver.cuCtxSynchronize)
    destruction = Other(present, driver.cuCtxDestroy, context)
    gate.opened.set()
    assert waits.wait() in (0, 709)
    assert destruction.wait() == 0
    assert live() == {}


# ---- memory --------------------------------------------------------------------------------------


def run_with_memory(stream):
    """Launch a graph that allocates and doesn't free; destroy it all."""
    call(driver.cuStreamBeginCapture, stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    memory = call(driver.cuMemAllocAsync, 4096, stream)
    graph = call(driver.cuStreamEndCapture, stream)
    executable = call(driver.cuGraphInstantiate, graph, 0)
    call(driver.cuGraphLaunch, executable, stream)
    call(driver.cuStreamSynchronize, stream)
    return memory, graph, executable


def test_memory_is_freed_once(live, stream, gate):
    """It may be gone when the free that waited for the device goes on."""
    memory, graph, executable = run_with_memory(stream)
    context = call(driver.cuCtxGetCurrent)
    gate.close(stream)
    frees = [Other(context, driver.cuMemFree, memory) for _ in range(2)]
    call(driver.cuGraphExecDestroy, executable)
    call(driver.cuGraphDestroy, graph)
    gate.opened.set()
    assert sorted(each.wait() for each in frees) == [0, 1]
    assert live() == {"streams": 1}


def test_memory_stays_until_the_stream_comes_to_its_free(live, stream, gate):
    memory, graph, executable = run_with_memory(stream)
    gate.close(stream)
    call(driver.cuMemsetD8Async, memory, 5, 4096, stream)
    call(driver.cuMemFreeAsync, memory, stream)
    call(driver.cuGraphExecDestroy, executable)
    call(driver.cuGraphDestroy, graph)
    others = [call(driver.cuMemAlloc, 4096) for _ in range(32)]
    assert int(memory) not in map(int, others)
    gate.opened.set()
    call(driver.cuStreamSynchronize, stream)
    for other in others:
        assert read(other) != 5
        call(driver.cuMemFree, other)
    assert live() == {"streams": 1}


def test_a_graph_frees_the_memory_of_another(live, stream):
    memory, graph, executable = run_with_memory(stream)
    frees = captured(stream, (driver.cuMemFreeAsync, memory))
    freeing = call(driver.cuGraphInstantiate, frees, 0)
    call(driver.cuGraphExecDestroy, executable)
    call(driver.cuGraphDestroy, graph)
    assert live()["allocations"] == 1
    call(driver.cuGraphLaunch, freeing, stream)
    call(driver.cuStreamSynchronize, stream)
    call(driver.cuGraphExecDestroy, freeing)
    call(driver.cuGraphDestroy, frees)
    assert live() == {"streams": 1}


# ---- graphs --------------------------------------------------------------------------------------


def test_a_capture_keeps_its_graph(live, stream):
    call(driver.cuStreamBeginCapture, stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    graph = graph_of(stream)
    assert int(driver.cuGraphDestroy(graph)[0]) == 401
    call(driver.cuGraphDestroy, call(driver.cuStreamEndCapture, stream))
    assert live() == {"streams": 1}


def test_a_node_keeps_its_graph(live, stream):
    child = captured(stream)
    parent = call(driver.cuGraphCreate, 0)
    node = call(driver.cuGraphAddChildGraphNode, parent, [], 0, child)
    call(driver.cuGraphDestroy, child)
    inner = call(driver.cuGraphChildGraphNodeGetGraph, node)
    assert int(driver.cuGraphDestroy(inner)[0]) == 1
    assert live() == {"streams": 1, "graphs": 2, "nodes": 1}
    call(driver.cuGraphDestroy, parent)
    assert live() == {"streams": 1}


def graph_of(stream):
    code, _, _, graph, *_ = driver.cuStreamGetCaptureInfo(stream)
    assert code == 0
    return graph


def test_a_run_does_what_was_so_when_it_was_launched(live, stream, gate):
    memory = int(call(driver.cuMemAlloc, 2))
    call(driver.cuMemsetD8Async, memory, 0, 2, stream)
    graphs = [captured(stream, (driver.cuMemsetD8Async, memory + i, 7 + i, 1)) for i in range(2)]
    executable = call(driver.cuGraphInstantiate, graphs[0], 0)
    gate.close(stream)
    call(driver.cuGraphLaunch, executable, stream)
    call(driver.cuGraphExecUpdate, executable, graphs[1])
    for graph in graphs:
        call(driver.cuGraphDestroy, graph)
    gate.opened.set()
    call(driver.cuStreamSynchronize, stream)
    assert (read(memory), read(memory + 1)) == (7, 0)
    call(driver.cuGraphLaunch, executable, stream)
    call(driver.cuGraphExecDestroy, executable)
    call(driver.cuStreamSynchronize, stream)
    assert (read(memory), read(memory + 1)) == (7, 8)
    call(driver.cuMemFree, memory)
    assert live() == {"streams": 1}


def test_a_graph_that_changes_leaves_its_executable_as_it_was(live, stream):
    memory = call(driver.cuMemAlloc, 1)
    graph = captured(stream, (driver.cuMemsetD8Async, memory, 7, 1))
    executable = call(driver.cuGraphInstantiate, graph, 0)
    call(driver.cuGraphAddEmptyNode, graph, [], 0)
    assert int(driver.cuGraphExecUpdate(executable, graph)[0]) == 910
    call(driver.cuGraphDestroy, graph)
    call(driver.cuGraphLaunch, executable, stream)
    call(driver.cuStreamSynchronize, stream)
    assert read(memory) == 7
    call(driver.cuGraphExecDestroy, executable)
    call(driver.cuMemFree, memory)
    assert live() == {"streams": 1}


# ---- faults and forks ----------------------------------------------------------------------------


def test_the_end_of_a_forked_stream_fails_as_told(live, faults, stream):
    other = call(driver.cuStreamCreate, NON_BLOCKING)
    event = call(driver.cuEventCreate, 0)
    call(driver.cuStreamBeginCapture, stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    call(driver.cuEventRecord, event, stream)
    call(driver.cuStreamWaitEvent, other, event, 0)
    faults.fail("cuStreamEndCapture", code=2)
    assert int(driver.cuStreamEndCapture(other)[0]) == 2
    assert int(driver.cuStreamEndCapture(stream)[0]) == 901
    call(driver.cuEventDestroy, event)
    call(driver.cuStreamDestroy, other)
    assert live() == {"streams": 1}


FORKED = """
import os, threading
from cuda.bindings import driver
from simulators.cuda.faults import Faults
driver.cuInit(0)
driver.cuCtxPushCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
own = driver.CUstream(2)
driver.cuStreamSynchronize(own)
faults = Faults("libcuda.so.1")
def fork():
    driver.cuCtxPushCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
    assert driver.cuMemsetD8Async(driver.cuMemAlloc(1)[1], 1, 1, own)[0] == 0
    pid = os.fork()
    if pid == 0:
        before = faults.calls()["cuStreamCreate"]
        faults.fail("cuStreamCreate", code=2)
        assert int(driver.cuStreamCreate(0)[0]) == 3
        assert faults.calls()["cuStreamCreate"] == before + 1
        os._exit(17)
    found.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
found = []
thread = threading.Thread(target=fork)
thread.start(); thread.join()
assert found == [17], found
"""


def test_calls_in_a_forked_child_are_refused_and_counted():
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED]
    done = execute(command, timeout=TIMEOUT)
    assert (done.returncode, done.stderr) == (0, "")
