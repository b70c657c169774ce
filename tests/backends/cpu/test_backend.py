"""The cpu backend, driven directly: streams, captures, graphs, and what is left afterwards."""

import ctypes
import gc
import random
import signal
import sys
import textwrap
import threading
import weakref
from functools import partial

import pytest

import accelerator_graph as ag
from accelerator_graph._core import streams as stream_module
from accelerator_graph.backends._cpu import graph as _cpu_graph
from accelerator_graph.backends._cpu.stream import Stream
from accelerator_graph.backends._cpu.worker import WorkerThread
from accelerator_graph.backends.base import BACKEND_API_VERSION, Capability, CaptureStatus, GraphEdge
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.errors import DriverError
from processes import execute

LIMIT = 20  # seconds, for everything that waits
staying = set()
MODES = ["global", "thread_local", "relaxed"]


def out_of_time(signum, frame):
    raise TimeoutError(f"the test took more than {LIMIT} seconds")


@pytest.fixture(autouse=True)
def time_limit():
    staying.update(everyone())  # those of other tests, and of a thread's side stream
    before = signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def everyone():
    return [thread for thread in threading.enumerate() if isinstance(thread, WorkerThread)]


def workers():
    """Return the threads that this test has started."""
    return [thread for thread in everyone() if thread not in staying]


def no_workers_left():
    for thread in workers():
        thread.join(LIMIT)
    return not workers()


@pytest.fixture
def backend():
    backend = CpuBackend()
    backend.name = "cpu"
    backend.open()
    yield backend
    gc.collect()
    assert no_workers_left()


@pytest.fixture
def streams(backend):
    made = [backend.create_stream(0) for _ in range(3)]
    yield made
    for stream in made:
        backend.destroy_stream(stream)


@pytest.fixture
def stream(streams):
    return streams[0]


@pytest.fixture
def capture(backend, stream):
    """Capture what a function enqueues on `stream`; return the graph."""

    def capture(enqueue, mode="thread_local"):
        token = backend.capture_begin(stream, mode)
        enqueue()
        return backend.capture_end(token)

    return capture


def elsewhere(function, *args):
    """Call the function on another thread; return or raise what it does."""
    outcome = []

    def run():
        try:
            outcome.append((function(*args), None))
        except Exception as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    ((value, error),) = outcome
    if error is not None:
        raise error
    return value


def refused(reason, function, *args):
    with pytest.raises(DriverError) as caught:
        function(*args)
    assert (caught.value.reason, caught.value.backend, caught.value.code) == (reason, "cpu", None)
    assert caught.value.code_name
    return caught.value


def fork(backend, source, target):
    event = backend.record_event(source)
    backend.wait_event(target, event)
    backend.destroy_event(event)


def nothing_captures(backend, streams):
    return all(backend.capture_status(stream) is CaptureStatus.NONE for stream in streams)


# ---- being there ---------------------------------------------------------------------------------


def test_what_it_says_of_itself(backend, stream):
    assert CpuBackend.api_version == BACKEND_API_VERSION
    assert CpuBackend.probe().usable
    assert backend.device_count() == CpuBackend.probe().devices == 1
    assert backend.device_of(stream) == 0
    assert set(backend.capture_modes) == set(MODES)
    assert backend.capture_modes[0] == "thread_local"
    assert backend.as_stream(stream) is stream
    assert backend.as_stream(0) is backend.as_stream(object()) is None
    assert backend.capabilities(0) == set(Capability) - {
        Capability.HANDLES,
        Capability.UPLOAD,
    }


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

    assert backend.node_count(capture(enqueue)) == 0


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


# ---- capture -------------------------------------------------------------------------------------


def test_a_capture_records_instead_of_running(backend, stream, capture):
    log = []
    graph = capture(lambda: [backend.launch(stream, log.append, index) for index in range(5)])
    backend.synchronize(stream)
    assert not log
    executable = backend.instantiate(graph)
    for _ in range(2):
        backend.replay(executable, stream)
    backend.synchronize(stream)
    assert log == [0, 1, 2, 3, 4] * 2
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


def test_the_nodes_and_edges_of_a_diamond(backend, streams, capture, tmp_path):
    origin, side, _ = streams
    buffer = bytearray(4)

    def work():
        pass

    def diamond():
        backend.fill(origin, buffer, 1, None)
        fork(backend, origin, side)
        backend.copy(origin, buffer, b"ab", None)
        backend.launch(side, work)
        fork(backend, side, origin)
        backend.launch(origin, work)

    graph = capture(diamond)
    nodes, edges = backend.nodes(graph)
    assert [node.kind for node in nodes] == ["memset", "memcpy", "host", "host"]
    assert [node.id for node in nodes] == [0, 1, 2, 3]
    assert nodes[2].name == work.__qualname__
    assert sorted(edges) == [GraphEdge(0, 1), GraphEdge(0, 2), GraphEdge(1, 3), GraphEdge(2, 3)]
    assert backend.node_count(graph) == 4
    assert nothing_captures(backend, streams)
    backend.dump(graph, str(tmp_path / "diamond.dot"), True)
    assert "n2 -> n3;" in (tmp_path / "diamond.dot").read_text()


def test_arguments_are_checked_and_callables_without_a_name_accepted_in_a_capture(backend, stream, capture):
    class Work:
        def __call__(self):
            pass

    def enqueue():
        with pytest.raises(ValueError, match="has 1 bytes"):
            backend.fill(stream, bytearray(1), 9, 2)
        backend.launch(stream, Work())

    nodes, _ = backend.nodes(capture(enqueue))
    assert [node.name for node in nodes] == [Work.__qualname__]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", ["synchronize", "query"])
@pytest.mark.parametrize("member", [0, 1])
@pytest.mark.parametrize(
    "on", [lambda function, *args: function(*args), elsewhere], ids=["here", "elsewhere"]
)
def test_waiting_for_a_capturing_stream_breaks_the_capture(backend, streams, mode, call, member, on):
    origin, side, _ = streams
    token = backend.capture_begin(origin, mode)
    fork(backend, origin, side)
    refused("illegal_call", on, getattr(backend, call), streams[member])
    assert backend.capture_status(origin) is backend.capture_status(side) is CaptureStatus.INVALIDATED
    for stream in (origin, side):
        refused("invalidated", backend.launch, stream, int)
        refused("invalidated", backend.fill, stream, bytearray(1), 0, None)
        refused("invalidated", backend.record_event, stream)
    refused("invalidated", backend.capture_end, token)
    assert nothing_captures(backend, streams)
    backend.synchronize(origin)


@pytest.mark.parametrize("call", ["synchronize", "query"])
@pytest.mark.parametrize(
    ("mode", "on", "broken"),
    [
        ("global", "here", True),
        ("global", "elsewhere", True),
        ("thread_local", "here", True),
        ("thread_local", "elsewhere", False),
        ("relaxed", "here", False),
        ("relaxed", "elsewhere", False),
    ],
)
def test_waiting_for_an_unrelated_stream(backend, streams, call, mode, on, broken):
    stream, _, unrelated = streams
    token = backend.capture_begin(stream, mode)
    run = elsewhere if on == "elsewhere" else lambda function, *args: function(*args)
    if broken:
        refused("illegal_call", run, getattr(backend, call), unrelated)
        refused("invalidated", backend.capture_end, token)
    else:
        run(getattr(backend, call), unrelated)
        backend.capture_end(token)
    assert nothing_captures(backend, streams)
    backend.synchronize(unrelated)


@pytest.mark.parametrize(
    ("first_mode", "survives"), [("global", False), ("thread_local", True), ("relaxed", True)]
)
def test_two_captures_at_once_and_one_thread_that_waits(backend, streams, first_mode, survives):
    first, second, unrelated = streams
    token = backend.capture_begin(first, first_mode)

    def other_thread():
        token = backend.capture_begin(second, "thread_local")
        refused("illegal_call", backend.synchronize, unrelated)
        refused("invalidated", backend.capture_end, token)

    elsewhere(other_thread)
    if survives:
        backend.capture_end(token)
    else:
        refused("invalidated", backend.capture_end, token)


def test_other_streams_go_on_during_a_capture(backend, streams, capture):
    stream, other, _ = streams
    log = []
    executable = backend.instantiate(capture(lambda: backend.launch(stream, log.append, 1)))

    def meanwhile():
        backend.replay(executable, other)
        backend.launch(other, log.append, 2)
        again = backend.instantiate(backend.capture_end(backend.capture_begin(streams[2], "thread_local")))
        backend.destroy_executable(again)
        backend.destroy_stream(backend.create_stream(0))

    assert backend.node_count(capture(meanwhile, "global")) == 0
    backend.synchronize(other)
    assert log == [1, 2]


def test_begin_on_a_capturing_stream_fails_and_hurts_nobody(backend, streams):
    stream, side, _ = streams
    token = backend.capture_begin(stream, "thread_local")
    fork(backend, stream, side)
    for capturing in (stream, side):
        assert (
            refused("foreign_capture", backend.capture_begin, capturing, "relaxed").code_name
            == "ILLEGAL_STATE"
        )
    assert backend.capture_status(stream) is CaptureStatus.ACTIVE
    backend.launch(stream, int)
    assert backend.node_count(backend.capture_end(token)) == 1


def test_forked_work_has_to_be_joined(backend, streams, capture):
    origin, side, third = streams

    def forked_and_joined_too_early():
        backend.launch(origin, int)
        fork(backend, origin, side)
        backend.launch(side, int)
        fork(backend, side, origin)
        backend.launch(side, int)

    refused("unjoined", capture, forked_and_joined_too_early)
    assert nothing_captures(backend, streams)

    def joined_through_a_third():
        fork(backend, origin, side)
        backend.launch(side, int)
        fork(backend, side, third)
        fork(backend, third, origin)

    assert backend.node_count(capture(joined_through_a_third)) == 1
    assert nothing_captures(backend, streams)


def test_a_fork_without_work_needs_no_join(backend, streams, capture):
    assert backend.node_count(capture(lambda: fork(backend, streams[0], streams[1]))) == 0
    assert nothing_captures(backend, streams)


def test_an_event_from_outside_breaks_the_capture(backend, streams):
    stream, outside, _ = streams
    event = backend.record_event(outside)
    token = backend.capture_begin(stream, "relaxed")
    refused("foreign_capture", backend.wait_event, stream, event)
    refused("invalidated", backend.wait_event, stream, event)
    refused("invalidated", backend.capture_end, token)
    assert nothing_captures(backend, streams)


def test_an_event_of_another_capture_breaks_both(backend, streams):
    first, second, third = streams
    tokens = [backend.capture_begin(first, "relaxed"), backend.capture_begin(second, "relaxed")]
    event = backend.record_event(second)
    refused("foreign_capture", backend.wait_event, first, event)
    refused("invalidated", backend.wait_event, third, event)
    assert backend.capture_status(third) is CaptureStatus.NONE
    for token in tokens:
        refused("invalidated", backend.capture_end, token)


def test_an_event_of_a_capture_that_has_ended_is_no_mark_in_any_work(backend, streams):
    stream, other, _ = streams
    token = backend.capture_begin(stream, "thread_local")
    event = backend.record_event(stream)
    backend.capture_end(token)
    refused("foreign_capture", backend.wait_event, other, event)
    assert nothing_captures(backend, streams)
    backend.synchronize(other)


@pytest.mark.parametrize("mode", MODES)
def test_end_on_another_thread(backend, streams, mode):
    token = backend.capture_begin(streams[0], mode)
    if mode == "relaxed":
        elsewhere(backend.capture_end, token)
    else:
        refused("wrong_thread", elsewhere, backend.capture_end, token)
    assert nothing_captures(backend, streams)
    assert refused("other", backend.capture_end, token).code_name == "ILLEGAL_STATE"


def test_abandon_ends_any_capture_and_can_be_repeated(backend, streams):
    origin, side, unrelated = streams
    valid = elsewhere(backend.capture_begin, origin, "global")  # its thread has ended
    fork(backend, origin, side)
    backend.launch(side, int)
    for _ in range(2):
        backend.capture_abandon(valid)
        assert nothing_captures(backend, streams)
    broken = backend.capture_begin(origin, "global")
    refused("illegal_call", backend.synchronize, unrelated)
    backend.capture_abandon(valid)  # not the one that is running
    assert backend.capture_status(origin) is CaptureStatus.INVALIDATED
    backend.capture_abandon(broken)
    ended = backend.capture_begin(origin, "relaxed")
    backend.launch(origin, int)
    graph = backend.capture_end(ended)
    backend.capture_abandon(ended)
    assert backend.node_count(graph) == 1
    backend.synchronize(unrelated)


@pytest.mark.parametrize("step", ["begin", "end"])
def test_an_interrupt_at_any_line_leaves_no_capture(backend, streams, step):
    stream, _, unrelated = streams
    for countdown in range(1000):
        token, raised, left = None, False, countdown
        if step == "end":
            token = backend.capture_begin(stream, "global")

        def trace(frame, event, argument):
            nonlocal left
            if "accelerator_graph" not in frame.f_code.co_filename:
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            token = backend.capture_begin(stream, "global") if token is None else backend.capture_end(token)
        except KeyboardInterrupt:
            raised = True
        finally:
            sys.settrace(before)
        if not raised:
            break
        if step == "end":
            backend.capture_abandon(token)  # the interrupt may have come before anything was done
        assert nothing_captures(backend, streams)
        backend.synchronize(unrelated)  # no capture is left that forbids it
        backend.capture_end(backend.capture_begin(stream, "global"))
    assert 5 < countdown < 999
    if step == "begin":
        backend.capture_end(token)


# ---- graphs and executables ----------------------------------------------------------------------


def test_executables_outlive_the_graph_and_each_other(backend, stream, capture):
    log = []
    graph = capture(lambda: backend.launch(stream, log.append, 1))
    first, second = backend.instantiate(graph), backend.instantiate(graph)
    for _ in range(2):  # it is asked for again if it was interrupted
        backend.destroy_graph(graph)
        backend.destroy_executable(first)
    backend.replay(second, stream)
    backend.synchronize(stream)
    assert log == [1]


def test_a_run_completes_though_its_executable_is_destroyed(backend, stream, capture):
    gate, log = threading.Event(), []
    executable = backend.instantiate(capture(lambda: backend.launch(stream, log.append, 1)))
    backend.launch(stream, gate.wait, LIMIT)
    backend.replay(executable, stream)
    backend.destroy_executable(executable)
    gate.set()
    backend.synchronize(stream)
    assert log == [1]


def test_replays_take_effect_in_call_order_on_whatever_streams(backend, streams, capture):
    gate, log, turn = threading.Event(), [], iter(range(1000))
    executable = backend.instantiate(
        capture(lambda: backend.launch(streams[0], lambda: log.append(next(turn))))
    )
    seen = []
    backend.launch(streams[0], gate.wait, LIMIT)
    for index in range(60):
        stream = streams[index % 3]
        backend.replay(executable, stream)
        backend.launch(stream, lambda index=index: seen.append(len(log) > index))
    for stream in streams[1:]:
        assert not backend.query(stream)  # the first replay is behind the gate
    assert not log
    gate.set()
    for stream in streams:
        backend.synchronize(stream)
    assert log == list(range(60))
    assert seen == [True] * 60


def test_a_failing_replay_is_skipped_to_its_end_and_the_next_one_runs(backend, stream, capture):
    log = []

    def fail_once():
        if len(log) == 1:
            raise ValueError

    def enqueue():
        backend.launch(stream, log.append, 1)
        backend.launch(stream, fail_once)
        backend.launch(stream, log.append, 2)

    executable = backend.instantiate(capture(enqueue))
    for _ in range(2):
        backend.replay(executable, stream)
    assert isinstance(refused("other", backend.synchronize, stream).__cause__, ValueError)
    assert log == [1, 1, 2]
    backend.synchronize(stream)


def test_a_bound_replay_does_what_replay_does(backend, stream, capture):
    log = []
    executable = backend.instantiate(capture(lambda: backend.launch(stream, log.append, 1)))
    launch = backend.bind(executable, stream)
    launch()
    launch()
    nodes, _ = backend.nodes(capture(launch))
    assert [node.kind for node in nodes] == ["graph"]
    backend.synchronize(stream)
    assert log == [1, 1]


def test_a_replay_onto_a_capturing_stream_becomes_a_node(backend, stream, capture):
    log = []
    child_graph = capture(lambda: [backend.launch(stream, log.append, index) for index in (1, 2)])
    child = backend.instantiate(child_graph)

    def parent():
        backend.launch(stream, log.append, 0)
        backend.replay(child, stream)
        backend.launch(stream, log.append, 3)

    graph = capture(parent)
    nodes, edges = backend.nodes(graph)
    assert [node.kind for node in nodes] == ["host", "graph", "host"]
    assert edges == [GraphEdge(0, 1), GraphEdge(1, 2)]
    executable = backend.instantiate(graph)
    backend.destroy_executable(child)
    backend.destroy_graph(child_graph)
    backend.replay(executable, stream)
    backend.synchronize(stream)
    assert log == [0, 1, 2, 3]


def test_nothing_is_left_of_what_was_destroyed(backend, stream):
    def work():
        pass

    gone = threading.Event()
    weakref.finalize(work, gone.set)
    gc.disable()
    try:
        for outcome in ("graph", "abandoned", "broken"):
            token = backend.capture_begin(stream, "relaxed")
            backend.launch(stream, work)
            event = backend.record_event(stream)
            if outcome == "graph":
                graph = backend.capture_end(token)
            elif outcome == "abandoned":
                backend.capture_abandon(token)
            else:
                refused("illegal_call", backend.query, stream)
                refused("invalidated", backend.capture_end, token)
        assert not backend._captures._open
        executable = backend.instantiate(graph)
        launch = backend.bind(executable, stream)
        launch()
        backend.destroy_executable(executable)
        backend.destroy_graph(graph)
        backend.synchronize(stream)
        del work
        assert gone.wait(LIMIT)
        assert event is not None
    finally:
        gc.enable()


class Holder:
    """Something that work refers to, and that refers to the graph of that work."""


class OwnStream(Stream):
    """A stream of somebody who keeps more with it."""


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("outcome", ["ready", "replayed", "nested", "captured", "failed", "open"])
def test_work_that_leads_back_to_its_graph_is_collected(keep, outcome):
    holder, own = Holder(), OwnStream()
    stream = stream_module.as_stream(own)
    holder.stream, own.holder = stream, holder
    holder.graph = graph = ag.Graph(keep, stream=own)
    graph.capture_begin()
    stream.launch(lambda holder: None, holder)
    if outcome == "failed":
        with pytest.raises(DriverError):
            stream.synchronize()
        with pytest.raises(ag.CaptureError):
            graph.capture_end()
    elif outcome == "open":
        graph.reset()
        graph.retain(holder)
    else:
        graph.capture_end()
    if outcome in ("replayed", "nested"):
        graph.replay()
        holder.launch = graph.bind()
        stream.synchronize()
    if outcome == "nested":
        holder.outer = ag.Graph(keep, stream=own)
        with holder.outer:
            graph.replay()
        holder.outer.replay()
        stream.synchronize()
    own.worker.stop()
    gone = weakref.ref(holder)
    del holder, own, stream, graph
    ag.Stream(backend="cpu").close()  # an ordinary call, which destroys what is due
    gc.collect()
    ag.Stream(backend="cpu").close()
    gc.collect()
    assert gone() is None
    assert not [each for each in gc.get_objects() if type(each) in (Holder, OwnStream)]


# ---- branches ------------------------------------------------------------------------------------


def two_branches(backend, streams, left, right):
    def enqueue():
        fork(backend, streams[0], streams[1])
        backend.launch(streams[0], left)
        backend.launch(streams[1], right)
        fork(backend, streams[1], streams[0])

    return enqueue


def branch_threads():
    return [thread for thread in threading.enumerate() if "cpu branch" in thread.name]


def test_branches_may_wait_for_each_other_in_every_replay(backend, streams, capture):
    meeting, log = threading.Barrier(2, timeout=LIMIT), []

    def work():
        meeting.wait()
        log.append(threading.get_ident())

    executable = backend.instantiate(capture(two_branches(backend, streams, work, work)))
    for _ in range(3):
        backend.replay(executable, streams[0])
    backend.synchronize(streams[0])
    assert [len(set(log[index : index + 2])) for index in (0, 2, 4)] == [2, 2, 2]
    assert not branch_threads()


def test_branches_of_a_child_graph_may_wait_for_each_other(backend, streams, capture):
    meeting = threading.Barrier(2, timeout=LIMIT)
    child = backend.instantiate(capture(two_branches(backend, streams, meeting.wait, meeting.wait)))
    parent = backend.instantiate(capture(lambda: backend.replay(child, streams[0])))
    backend.replay(parent, streams[0])
    backend.synchronize(streams[0])


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), None])
def test_a_branch_without_a_thread_runs_in_the_order_of_recording(
    backend, streams, capture, monkeypatch, error
):
    log = []

    def enqueue():
        for index in range(3):
            two_branches(backend, streams, partial(log.append, index), partial(log.append, index))()

    executable = backend.instantiate(capture(enqueue))
    backend.launch(streams[0], int)  # the stream has its thread

    def no_thread(thread):
        if error is not None:
            raise error
        return False

    monkeypatch.setattr(_cpu_graph, "start", no_thread)
    backend.replay(executable, streams[0])
    backend.synchronize(streams[0])
    assert log == [0, 0, 1, 1, 2, 2]


def test_a_branch_that_fails_ends_the_replay(backend, streams, capture):
    begun, log = threading.Event(), []
    runs = iter(range(1000))

    def fail():
        assert begun.wait(LIMIT)
        if next(runs) == 1:
            raise ValueError

    def enqueue():
        two_branches(backend, streams, fail, begun.set)()
        backend.launch(streams[0], log.append, 1)

    executable = backend.instantiate(capture(enqueue))
    for _ in range(3):
        backend.replay(executable, streams[0])
    error = refused("other", backend.synchronize, streams[0])
    assert isinstance(error.__cause__, ValueError)
    assert log == [1, 1]
    backend.synchronize(streams[0])


def test_failures_of_several_branches_are_counted(backend, streams, capture):
    meeting = threading.Barrier(2, timeout=LIMIT)

    def fail():
        meeting.wait()
        raise ValueError

    executable = backend.instantiate(capture(two_branches(backend, streams, fail, fail)))
    backend.replay(executable, streams[0])
    assert "1 more failed after it" in str(refused("other", backend.synchronize, streams[0]))


def test_a_failure_that_was_reported_leaves_no_cycle(backend, streams, capture):
    class Failure(Exception):
        pass

    gone = threading.Event()

    def fail():
        error = Failure()
        weakref.finalize(error, gone.set)
        try:
            raise error
        finally:
            del error

    executable = backend.instantiate(capture(two_branches(backend, streams, lambda: None, fail)))
    gc.disable()
    try:
        backend.replay(executable, streams[0])
        try:
            backend.synchronize(streams[0])
        except DriverError as error:
            cause = type(error.__cause__)
        assert cause is Failure
        assert gone.wait(LIMIT)
    finally:
        gc.enable()


def test_no_branch_can_wait_for_the_stream_it_runs_on(backend, streams, capture):
    caught = []

    def work():
        caught.append(refused("illegal_call", backend.synchronize, streams[0]).code_name)

    executable = backend.instantiate(capture(two_branches(backend, streams, work, work)))
    backend.replay(executable, streams[0])
    backend.synchronize(streams[0])
    assert caught == ["WOULD_DEADLOCK"] * 2


def test_a_branch_can_wait_for_a_replay_that_has_branches(backend, streams, capture):
    inner_stream = streams[2]
    token = backend.capture_begin(inner_stream, "relaxed")
    two_branches(backend, [inner_stream, streams[1]], int, int)()
    inner = backend.instantiate(backend.capture_end(token))
    lock = threading.Lock()

    def nested():
        with lock:
            backend.replay(inner, inner_stream)
        backend.synchronize(inner_stream)

    def enqueue():
        for _ in range(20):
            two_branches(backend, streams, nested, nested)()

    outer = backend.instantiate(capture(enqueue))
    for _ in range(3):
        backend.replay(outer, streams[0])
        backend.synchronize(streams[0])


# ---- hazards -------------------------------------------------------------------------------------


class Program:
    """A random program over several streams that orders every conflicting access by events."""

    SIZE, BUFFERS, STEPS = 64, 5, 80

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.steps = [self.step() for _ in range(self.STEPS)]
        self.buffers = [bytearray(self.SIZE) for _ in range(self.BUFFERS)]
        self.log = []

    def step(self):
        target, source = self.random.sample(range(self.BUFFERS), 2)
        kind = self.random.choices(["mix", "copy", "fill"], [6, 2, 1])[0]
        return kind, self.random.randrange(4), target, source, self.random.randrange(256)

    def reset(self):
        for index, buffer in enumerate(self.buffers):
            buffer[:] = bytes((index * 7 + position) % 256 for position in range(self.SIZE))
        self.log.clear()

    def mix(self, step, target, source, value):
        self.log.append(step)
        a, b = self.buffers[target], self.buffers[source]
        for index in range(self.SIZE):
            a[index] = (3 * a[index] + b[index] + value) % 256

    def run_in_order(self):
        self.reset()
        for index, (kind, _, target, source, value) in enumerate(self.steps):
            if kind == "mix":
                self.mix(index, target, source, value)
            else:
                self.buffers[target][:] = (
                    self.buffers[source] if kind == "copy" else bytes([value]) * self.SIZE
                )
        return self.bytes()

    def bytes(self):
        return [bytes(buffer) for buffer in self.buffers]

    def enqueue(self, backend, streams):
        """Enqueue all of it; return which steps have to come before which."""
        for stream in streams[1:]:
            fork(backend, streams[0], stream)
        users = {index: [] for index in range(self.BUFFERS)}  # (step, event, writes) by buffer
        before = set()
        for index, (kind, number, target, source, value) in enumerate(self.steps):
            stream = streams[number]
            for buffer, writes in [(target, True), (source, False)]:
                for step, event, wrote in users[buffer]:
                    if writes or wrote:
                        backend.wait_event(stream, event)
                        before.add((step, index))
            if kind == "mix":
                backend.launch(stream, self.mix, index, target, source, value)
            elif kind == "copy":
                backend.copy(stream, self.buffers[target], self.buffers[source], None)
            else:
                backend.fill(stream, self.buffers[target], value, None)
            event = backend.record_event(stream)
            users[target] = [(index, event, True)]
            users[source].append((index, event, False))
        for stream in streams[1:]:
            fork(backend, stream, streams[0])
        return before

    def keeps(self, before):
        place = {step: index for index, step in enumerate(self.log)}
        return all(place[a] < place[b] for a, b in before if a in place and b in place)


@pytest.fixture
def restless():
    """Let threads change places as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("seed", range(6))
def test_hazards_are_respected_run_eagerly_and_replayed(backend, seed, restless):
    program = Program(seed)
    expected = program.run_in_order()
    mixes = sorted(program.log)
    streams = [backend.create_stream(0) for _ in range(4)]

    program.reset()
    before = program.enqueue(backend, streams)
    backend.synchronize(streams[0])
    assert program.bytes() == expected
    assert program.keeps(before)

    token = backend.capture_begin(streams[0], "thread_local")
    program.enqueue(backend, streams)
    graph = backend.capture_end(token)
    assert backend.node_count(graph) == program.STEPS
    edges = set(backend.nodes(graph)[1])
    assert before <= edges
    for _ in range(4):
        executable = backend.instantiate(graph)
        for _ in range(3):
            program.reset()
            backend.replay(executable, streams[1])
            backend.synchronize(streams[1])
            assert program.bytes() == expected
            assert program.keeps(edges)
            assert sorted(program.log) == mixes
        backend.destroy_executable(executable)
    for stream in streams:
        backend.destroy_stream(stream)


# ---- processes -----------------------------------------------------------------------------------


def run_script(script):
    prelude = """
    import os, sys, threading
    from accelerator_graph.backends.cpu import CpuBackend
    backend = CpuBackend(); backend.name = "cpu"; backend.open()
    stream = backend.create_stream(0)
    """
    code = textwrap.dedent(prelude) + textwrap.dedent(script)
    done = execute([sys.executable, "-c", code], timeout=LIMIT)
    assert not done.stderr
    assert done.returncode == 0
    return done.stdout


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
