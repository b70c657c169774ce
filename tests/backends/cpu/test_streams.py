"""Streams of the cpu backend, driven directly: work, memory, events, and their threads."""

import ctypes
import signal
import textwrap
import threading
import time
import weakref
from functools import partial

import pytest

from accelerator_graph.backends._cpu import worker
from accelerator_graph.backends._cpu.worker import Latch, Worker
from accelerator_graph.backends.base import BACKEND_API_VERSIONS, Capability
from accelerator_graph.backends.cpu import CpuBackend
from backends.cpu.tools import LIMIT, MODES, fork, no_workers_left, refused, workers
from processes import python

pytest_plugins = ["backends.cpu.fixtures"]
pytestmark = pytest.mark.usefixtures("time_limit")


def test_what_it_says_of_itself(backend, stream):
    assert CpuBackend.api_version == BACKEND_API_VERSIONS[-1]
    assert CpuBackend.probe().usable
    assert backend.device_count == CpuBackend.probe().devices == 1
    assert backend.device_of(stream) == 0
    assert set(backend.capture_modes) == set(MODES)
    assert backend.capture_modes[0] == "thread_local"
    assert backend.as_stream(stream) is stream
    assert backend.as_stream(0) is backend.as_stream(object()) is None
    lacks = {Capability.EXTERNAL_EVENTS, Capability.HANDLES, Capability.NODE_TIMES, Capability.CONDITIONS}
    assert backend.capabilities(0) == set(Capability) - lacks


# ---- streams -------------------------------------------------------------------------------------


def test_a_stream_works_in_order_on_a_thread_of_its_own(backend, stream):
    assert not workers()  # none before there is work
    log = []
    for index in range(100):
        backend.launch(stream, lambda index, *, tag: log.append((index, tag)), index, tag="x")
    backend.launch(stream, lambda: log.append(threading.current_thread()))
    backend.synchronize(stream)
    thread = log.pop()
    assert log == [(index, "x") for index in range(100)]
    assert thread.daemon
    assert workers() == [thread]


def test_a_lack_of_threads_is_an_error_and_not_for_ever(backend, stream, monkeypatch):
    def no_thread(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(worker, "start", no_thread)
        assert refused("other", backend.launch, stream, int).code_name == "NO_THREAD"
    backend.launch(stream, int)
    backend.synchronize(stream)


def test_a_lack_of_stack_is_no_lack_of_threads_and_leaves_none(backend, stream, monkeypatch):
    def begun(thread):
        thread.start()
        raise RecursionError

    with monkeypatch.context() as patch:
        patch.setattr(worker, "start", begun)
        with pytest.raises(RecursionError):
            backend.launch(stream, int)
    assert no_workers_left()
    backend.launch(stream, int)
    backend.synchronize(stream)


def test_streams_run_beside_each_other(backend, streams):
    meeting = threading.Barrier(3, timeout=LIMIT)
    for stream in streams:
        backend.launch(stream, meeting.wait)
    for stream in streams:
        backend.synchronize(stream)


def test_query_says_whether_all_is_done(backend, stream):
    gate = threading.Event()
    assert backend.query(stream)
    backend.launch(stream, gate.wait, LIMIT)
    assert not backend.query(stream)
    gate.set()
    backend.synchronize(stream)
    assert backend.query(stream)


def test_only_callables_are_launched(backend, stream):
    with pytest.raises(TypeError, match="launches callables"):
        backend.launch(stream, "no callable")


def generator():
    yield


async def coroutine():
    pass


async def asynchronous_generator():
    yield


class Lazy:
    def __call__(self):
        yield

    def method(self):
        yield


@pytest.mark.parametrize(
    ("work", "name"),
    [
        (generator, "generator"),
        (coroutine, "coroutine"),
        (asynchronous_generator, "asynchronous_generator"),
        (Lazy(), "Lazy"),
        (Lazy().method, "Lazy.method"),
        (partial(partial(generator)), "generator"),
        (lambda: (yield), "<lambda>"),
    ],
)
def test_a_function_that_runs_nothing_when_it_is_called_is_refused(backend, stream, capture, work, name):
    with pytest.raises(TypeError, match=f"'{name}' is a (generator|coroutine) function"):
        backend.launch(stream, work)

    def enqueue():
        with pytest.raises(TypeError, match="launch a plain function"):
            backend.launch(stream, work)

    assert len(backend.nodes(capture(enqueue))[0]) == 0


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_the_first_failure_is_raised_once_and_later_work_goes_on(backend, stream, kind):
    def fail(error):
        raise error

    log, first = [], kind("first")
    backend.launch(stream, fail, first)
    backend.launch(stream, fail, ValueError("second"))
    backend.launch(stream, log.append, 1)
    error = refused("other", backend.synchronize, stream)
    assert error.call == "launch"
    assert error.__cause__ is first
    assert log == [1]
    backend.synchronize(stream)


def test_a_callable_can_not_wait_for_its_own_stream(backend, stream):
    caught = []
    backend.launch(stream, lambda: caught.append(refused("illegal_call", backend.synchronize, stream)))
    backend.synchronize(stream)
    assert caught[0].code_name == "WOULD_DEADLOCK"


def test_a_callable_can_wait_for_another_stream(backend, streams):
    first, second, _ = streams
    log = []
    backend.launch(second, log.append, 1)
    backend.launch(first, backend.synchronize, second)
    backend.launch(first, log.append, 2)
    backend.synchronize(first)
    assert log == [1, 2]


def test_ctrl_c_interrupts_synchronize_and_nothing_is_harmed(backend, stream):
    gate, struck, log = threading.Event(), [], []

    def handle(signum, frame):
        if not struck:
            struck.append(signum)
            raise KeyboardInterrupt

    def interrupt():
        while not struck:  # Python misses a signal that comes as a thread is about to wait in the system
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            gate.wait(0.01)
        gate.wait(LIMIT)
        log.append("done")

    before = signal.signal(signal.SIGINT, handle)  # it is ignored in a shell's background
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come before the wait
            backend.launch(stream, interrupt)
            backend.synchronize(stream)
        assert not log
        assert not backend.query(stream)
        gate.set()
        backend.synchronize(stream)
        assert log == ["done"]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_destroyed_stream_completes_its_work(backend):
    stream = backend.create_stream(0)
    gate, log = threading.Event(), []
    backend.launch(stream, gate.wait, LIMIT)
    backend.launch(stream, log.append, 1)
    backend.destroy_stream(stream)
    gate.set()
    assert no_workers_left()
    assert log == [1]


def test_a_stream_forgets_what_it_has_done(backend, stream):
    def work():
        pass

    gone = threading.Event()
    weakref.finalize(work, gone.set)
    backend.launch(stream, work)
    del work
    backend.synchronize(stream)
    assert gone.wait(LIMIT)


# ---- memory --------------------------------------------------------------------------------------


def test_fill_and_copy(backend, stream):
    a, b = bytearray(8), (ctypes.c_ubyte * 8)()
    backend.fill(stream, a, 7, None)
    backend.fill(stream, a, 9, 2)
    backend.copy(stream, b, a, None)
    backend.copy(stream, a, b"xyz", None)
    backend.copy(stream, memoryview(a)[4:], b"1234", 2)
    backend.copy(stream, ctypes.addressof(b) + 7, ctypes.addressof(b), 1)
    backend.synchronize(stream)
    assert bytes(b) == bytes([9, 9, 7, 7, 7, 7, 7, 9])
    assert a == b"xyz\x0712\x07\x07"


def test_what_can_not_be_done_is_refused_when_it_is_enqueued(backend, stream):
    for error, function, *args in [
        (ValueError, backend.fill, b"read-only", 0, None),
        (ValueError, backend.fill, bytearray(2), 0, 3),
        (TypeError, backend.fill, None, 0, 1),
        (ValueError, backend.copy, bytearray(2), b"abc", None),
        (ValueError, backend.copy, b"abc", b"abc", None),
        (ValueError, backend.copy, bytearray(9), 4096, None),
    ]:
        with pytest.raises(error):
            function(stream, *args)
    backend.synchronize(stream)


# ---- events --------------------------------------------------------------------------------------


def test_an_event_orders_two_streams(backend, streams):
    first, second, _ = streams
    gate, log = threading.Event(), []
    backend.launch(first, gate.wait, LIMIT)
    backend.launch(first, log.append, 1)
    fork(backend, first, second)
    backend.launch(second, log.append, 2)
    backend.launch(first, log.append, 3)
    assert not backend.query(second)
    gate.set()
    backend.synchronize(second)
    backend.synchronize(first)
    assert log.index(1) < log.index(2)
    assert set(log) == {1, 2, 3}


def test_an_event_is_the_end_of_the_work_at_that_time(backend, streams):
    first, second, _ = streams
    gate = threading.Event()
    backend.launch(first, int)
    event = backend.record_event(first)
    backend.launch(first, gate.wait, LIMIT)
    backend.wait_event(second, event)
    backend.synchronize(second)  # not for what came after the event
    backend.wait_event(second, event)  # and as often as one likes
    backend.synchronize(second)
    gate.set()


def test_waiting_for_an_idle_stream_starts_no_thread_for_it(backend, streams):
    fork(backend, streams[0], streams[1])
    backend.synchronize(streams[1])
    assert len(workers()) == 1


# ---- processes -----------------------------------------------------------------------------------


def run_script(script):
    prelude = """
    import os, sys, threading
    from accelerator_graph.backends.cpu import CpuBackend
    backend = CpuBackend(); backend.name = "cpu"; backend.open()
    stream = backend.create_stream(0)
    """
    code = textwrap.dedent(prelude) + textwrap.dedent(script)
    return python(code, timeout=LIMIT)


def test_the_interpreters_exit_lets_short_work_complete():
    assert run_script("backend.launch(stream, os.write, 1, b'written')") == "written"


def test_the_interpreters_exit_does_not_wait_for_ever():
    assert run_script("backend.launch(stream, threading.Event().wait); print('end')") == "end\n"


def test_a_forked_child_can_open_it_afresh():
    script = """
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    held = threading.Event()
    backend.launch(stream, held.wait)
    token = backend.capture_begin(backend.create_stream(0), "global")
    pid = os.fork()
    if pid == 0:
        backend.open()
        stream = backend.create_stream(0)
        backend.launch(stream, os.write, 1, b"child")
        backend.synchronize(stream)
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    held.set()
    """
    assert run_script(script) == "child"


def test_query_is_true_as_soon_as_synchronize_returns():
    worker = Worker()
    latch = Latch(worker)
    worker.submit(lambda: None)
    worker.synchronize()
    while worker._pending:
        time.sleep(0.001)
    worker._pending.append(latch)  # as its thread has it: not reached, then reached, then taken off
    assert not worker.query()
    latch()
    assert worker.query()
    worker._pending.clear()
    worker.stop()
