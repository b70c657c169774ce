"""The HIP backend on a runtime: streams, what leaves the caller's state alone, and looking into graphs."""

import sys
import threading
from ctypes import CFUNCTYPE, c_void_p
from functools import partial

import pytest

import accelerator_graph as ag
from accelerator_graph import errors
from accelerator_graph.backends._hip.library import import_hip
from accelerator_graph.backends.base import CaptureStatus
from backends.hip.bench import TIMEOUT, Block, answer, call, made
from backends.tools import child, prepare, python, recorded, replayed

pytest_plugins = ["backends.hip.fixtures"]
pytestmark = pytest.mark.usefixtures("no_error_left")


# ---- streams -------------------------------------------------------------------------------------


def test_as_stream(backend, stream):
    kind = import_hip().ihipStream_t
    for same in (stream, int(stream), kind(int(stream))):
        found = backend.as_stream(same)
        assert type(found) is kind
        assert backend.handle_int(found) == int(stream)
    for none in (True, -1, 1 << 64, 1.0, "0", None, object(), import_hip().ihipEvent_t(int(stream))):
        assert backend.as_stream(none) is None


@pytest.mark.parametrize(("handle", "used"), [(0, 0), (1, 0), (2, 2)])
def test_the_special_streams_are_streams(backend, handle, used):
    """The legacy stream's own handle is not used: the runtime crashes on it."""
    for obj in (handle, import_hip().ihipStream_t(handle)):
        stream = backend.as_stream(obj)
        assert backend.handle_int(stream) == used
    assert backend.device_of(stream) == 0
    backend.synchronize(stream)
    assert backend.query(stream)
    assert backend.capture_status(stream) is CaptureStatus.NONE
    assert backend.capture_info(stream) is None


@pytest.mark.parametrize("what", ["0x10", "0x1234567890", "made - 8", "made + 64", "1 << 47", "destroyed"])
def test_what_is_no_handle_is_refused(backend, what):
    """In a process of its own: the runtime would crash in most of its functions."""
    code = (
        "from backends.hip.bench import answer, bare_stream, opened\n"
        "backend = opened()\n"
        "made, destroyed = bare_stream(), bare_stream()\n"
        "assert answer('hipStreamDestroy', destroyed) == 0\n"
        f"for obj in ({what}, backend.driver.stream_type({what})):\n"
        "    try: backend.as_stream(obj)\n"
        "    except ValueError as error: print(str(error).partition(' ')[2])\n"
        "assert answer('hipPeekAtLastError') == 0"
    )
    said = "is not the handle of a stream; pass one that has not been destroyed."
    assert python(code).splitlines() == [said, said]


def test_upstream_what_is_no_handle_crashes(runtime):
    """When it no longer does in any version, `as_stream` need not ask for the device first."""
    if runtime < (7, 0):
        pytest.skip("HIP 6.4 answers 709")
    status, *_ = child("from backends.hip.bench import answer, number\nnumber('hipStreamIsCapturing', 0x10)")
    assert status < 0 or status == 139


# ---- Python meanwhile ----------------------------------------------------------------------------


def test_a_wait_lets_python_run(backend, stream):
    """A Python function in the stream, which needs the interpreter's lock, while this thread waits."""
    called = []
    function = CFUNCTYPE(None, c_void_p)(lambda given: called.append((given, threading.get_ident())))
    call("hipLaunchHostFunc", int(stream), function, c_void_p(7))
    backend.synchronize(stream)
    prepare(backend, stream)
    assert [given for given, _ in called] == [7]


def test_a_replay_lets_python_run(backend, stream):
    """The same in a graph, whose launches wait when there are too many of them."""
    called = []
    function = CFUNCTYPE(None, c_void_p)(called.append)
    token = backend.capture_begin(stream, "thread_local")
    call("hipLaunchHostFunc", int(stream), function, c_void_p(7))
    graph = backend.capture_end(token)
    executable = backend.instantiate(graph)
    launch = backend.native_calls(stream).bind(executable)
    for _ in range(50):
        launch()
    backend.synchronize(stream)
    assert called == [7] * 50
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


def test_other_threads_run_during_a_wait(backend, stream, gate):
    gate.close(stream)
    timer = threading.Timer(0.01, gate.open)
    timer.daemon = True
    timer.start()
    backend.synchronize(stream)
    timer.join(TIMEOUT)


# ---- looking into a graph ------------------------------------------------------------------------


def test_a_graph_of_many_nodes(backend, stream, block):
    """Hip-python's own listing overwrites memory from two nodes on, and crashes at 64."""
    token = backend.capture_begin(stream, "thread_local")
    for n in range(500):
        backend.fill(stream, block, n % 256, None)
    graph = backend.capture_end(token)
    nodes, edges = backend.nodes(graph)
    assert (len(nodes), len(edges), len(backend.nodes(graph)[0])) == (500, 499, 500)
    replayed(backend, graph, stream)
    assert block.read() == bytes([499 % 256] * block.nbytes)


def test_host_functions_are_nodes(backend, stream):
    function = CFUNCTYPE(None, c_void_p)(lambda given: None)
    token = backend.capture_begin(stream, "thread_local")
    call("hipLaunchHostFunc", int(stream), function, None)
    graph = backend.capture_end(token)
    assert [node.kind for node in backend.nodes(graph)[0]] == ["host"]
    backend.destroy_graph(graph)


def test_handles(backend, stream, block):
    graph = recorded(backend, stream, block)
    executable = backend.instantiate(graph)
    handles = [backend.handle_int(each) for each in (stream, graph, executable)]
    assert len(set(handles)) == 3
    assert all(isinstance(handle, int) and handle > 4096 for handle in handles)
    assert answer("hipGraphLaunch", handles[2], handles[0]) == 0
    backend.synchronize(stream)
    assert block.read() == bytes([7] * block.nbytes)
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


# ---- memory in graphs ----------------------------------------------------------------------------


def allocating(backend, stream, block, free):
    """A graph that allocates memory, fills it, copies it to the block and may free it; the memory."""
    token = backend.capture_begin(stream, "thread_local")
    pointer = made("hipMallocAsync", 1 << 20, int(stream))
    backend.fill(stream, pointer, 3, block.nbytes)
    backend.copy(stream, block, pointer, block.nbytes)
    if free:
        call("hipFreeAsync", pointer, int(stream))
    return backend.capture_end(token), pointer


@pytest.mark.parametrize("free", [True, False])
def test_memory_nodes(backend, stream, block, free):
    graph, _ = allocating(backend, stream, block, free)
    kinds = sorted(node.kind for node in backend.nodes(graph)[0])
    assert kinds == ["mem_alloc", *["mem_free"] * free, "memcpy", "memset"]
    executable = backend.instantiate(graph)
    for _ in range(3):
        with pytest.raises(errors.DriverError) as raised:  # it has had its one executable
            backend.instantiate(graph)
        assert raised.value.code == 801
        backend.fill(stream, block, 0, None)
        backend.replay(executable, stream)
        backend.synchronize(stream)
        assert block.read() == bytes([3] * block.nbytes)
    backend.destroy_executable(executable)
    with pytest.raises(errors.DriverError):
        backend.instantiate(graph)
    backend.destroy_graph(graph)


def test_a_graph_that_allocates_is_timed_as_a_whole(backend, block):
    stream = ag.Stream(backend="hip")
    with stream, ag.Graph(keep_graph=True) as graph:
        with ag.label("allocate"):
            pointer = made("hipMallocAsync", 1 << 20, int(stream.native))
        with ag.label("fill"):
            stream.fill(pointer, 3, 1 << 20)
        stream.copy(block, pointer, block.nbytes)
        call("hipFreeAsync", pointer, int(stream.native))
    assert graph.describe().kinds()["mem_alloc"] == 1
    profile = graph.profile(3)
    assert profile.least > 0
    (note,) = profile.notes
    assert "allocates memory" in note
    assert block.read() == bytes([3] * block.nbytes)
    graph.reset()


def test_graphs_of_small_blocks(backend, stream):
    """Blocks that are no multiple of anything."""
    for nbytes in (1, 3, 7, 4097):
        block = Block(nbytes)
        replayed(backend, recorded(backend, stream, block, 5), stream)
        assert block.read() == bytes([5] * nbytes)
        block.free()


def test_a_lack_of_memory_is_a_memory_error(backend, stream):
    """ctypes raises an error of its own where memory runs out while it converts a number."""
    if sys.version_info >= (3, 12):
        pytest.skip("Python 3.12 itself crashes where it can't make a cell")
    testcapi = pytest.importorskip("_testcapi", reason="this Python can't make its allocations fail")
    raised = set()
    for at in range(1, 120):
        event = backend.record_event(stream)
        asks = partial(backend.driver.call, "hipStreamGetDevice", int(stream))
        for work in (asks, partial(backend.destroy_event, event)):
            try:
                testcapi.set_nomemory(at, at + 1)
                try:
                    work()
                finally:
                    testcapi.remove_mem_hooks()
            except Exception as error:
                raised.add(type(error))
        backend.destroy_event(event)
    assert raised == {MemoryError}
