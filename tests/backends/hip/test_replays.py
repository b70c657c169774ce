"""Runs of one executable on the HIP backend, one after another; never into a capture."""

import threading

import pytest

import accelerator_graph as ag
from accelerator_graph import errors
from backends.hip.bench import (
    TIMEOUT,
    answer,
    bare_begin,
    bare_end,
    call,
    last_error,
    nodes_of,
    status_of,
    step,
    until,
)
from backends.tools import MODES, captured, child, prepare, recorded
from threads import in_thread, in_threads

pytest_plugins = ["backends.hip.fixtures"]
pytestmark = pytest.mark.usefixtures("no_error_left")


@pytest.fixture
def appender(backend, kernels, stream, cells):
    """An executable that appends a one to the number in cell 0."""
    graph = captured(backend, stream, lambda: step(backend, kernels, stream, cells.at(0), 10, 1))
    executable = backend.instantiate(graph)
    yield executable
    call("hipDeviceSynchronize")
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


# ---- one after another ---------------------------------------------------------------------------


@pytest.mark.promise("runs-are-kept-in-order")
def test_a_run_on_another_stream_waits_for_the_last_one(backend, appender, gate, cells, stream, apart):
    gate.close(stream)
    backend.replay(appender, stream)
    backend.replay(appender, apart)
    backend.native_calls(stream).bind(appender)()
    backend.native_calls(apart).bind(appender)()
    assert not backend.query(apart)
    assert cells[0] == 0
    gate.open()
    backend.synchronize(apart)
    assert cells[0] == 1111
    backend.synchronize(stream)


def test_upstream_runs_on_two_streams_overlap(runtime, appender, gate, cells, stream, apart):
    """When they no longer do, `_wait_for_the_last_run` can go."""
    gate.close(stream)
    for on in (stream, apart):
        call("hipGraphLaunch", appender.handle, int(on))
    assert until(lambda: cells[0])
    gate.open()


def test_a_bound_launch_knows_of_the_others(backend, appender, gate, cells, stream, apart):
    """What is bound to a stream was launched on it before, and since then on another one."""
    here, there = backend.native_calls(stream).bind(appender), backend.native_calls(apart).bind(appender)
    here()
    gate.close(apart)
    there()
    here()
    assert not backend.query(stream)
    assert cells[0] in (0, 1)
    gate.open()
    backend.synchronize(stream)
    assert cells[0] == 111


@pytest.mark.parametrize("handle", [0, 1, 2])
def test_the_default_streams_wait_and_are_waited_for(backend, appender, gate, cells, stream, handle):
    special = backend.as_stream(handle)
    gate.close(stream)
    backend.replay(appender, stream)
    backend.replay(appender, special)
    assert not backend.query(special)
    gate.open()
    backend.synchronize(special)
    gate.close(special)
    backend.replay(appender, special)
    backend.native_calls(special).bind(appender)()
    backend.replay(appender, stream)
    assert not backend.query(stream)
    assert cells[0] == 11
    gate.open()
    backend.synchronize(stream)
    assert cells[0] == 11111


def test_the_legacy_stream_by_its_own_handle(backend):
    """In a process of its own: the runtime crashes. The handle 0 means the same stream."""
    code = (
        "from backends.tools import *\n"
        "from backends.hip.bench import *\n"
        "backend, kernels, cells = opened(), loaded(), Cells(1)\n"
        "stream, legacy = backend.create_stream(0), backend.as_stream(1)\n"
        "token = backend.capture_begin(stream, 'relaxed')\n"
        "step(backend, kernels, stream, cells.at(0), 10, 1)\n"
        "executable = backend.instantiate(backend.capture_end(token))\n"
        "step(backend, kernels, legacy, cells.at(0), 10, 2)\n"
        "linked(backend, legacy, stream)\n"
        "for on in (legacy, legacy, stream, legacy): backend.replay(executable, on)\n"
        "backend.synchronize(legacy)\n"
        "print(cells[0])"
    )
    assert child(code)[:2] == (0, "21111")


def test_upstream_an_event_of_the_legacy_handle_crashes(runtime):
    """rocm-systems#11011."""
    code = (
        "from backends.tools import *\n"
        "from backends.hip.bench import *\n"
        "call('hipInit', 0)\n"
        "event = made('hipEventCreateWithFlags', NO_TIMING)\n"
        "call('hipEventRecord', event, 1)\n"
        "call('hipStreamWaitEvent', bare_stream(), event, 0)"
    )
    assert child(code)[0] < 0


def test_the_per_thread_streams_of_two_threads(backend, appender, gate, cells):
    """Both have the handle 2, and are two streams."""
    own = backend.as_stream(2)

    def first():
        gate.close(own)
        backend.replay(appender, own)

    def second():
        backend.replay(appender, own)
        assert not backend.query(own)
        assert cells[0] == 0
        gate.open()
        backend.synchronize(own)
        assert cells[0] == 11

    done = threading.Event()
    ready = threading.Event()

    def hold():
        first()
        ready.set()
        assert done.wait(TIMEOUT)
        backend.synchronize(own)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    try:
        assert ready.wait(TIMEOUT)
        in_thread(second)
    finally:
        done.set()
    thread.join(TIMEOUT)
    assert not thread.is_alive()


def test_a_stream_that_is_gone_since_the_last_run(backend, appender, cells, stream):
    for _ in range(5):
        side = backend.create_stream(0)
        backend.replay(appender, side)
        backend.destroy_stream(side)
        backend.replay(appender, stream)
    backend.synchronize(stream)
    assert cells[0] == 1_111_111_111
    assert last_error() == 0


def test_upstream_destroying_a_stream_waits_for_its_work(backend, runtime, kernels, gate, cells):
    """That is why a run on a stream that is gone need not be waited for. Else a new stream that has the
    handle of the old one would be a trap as well."""
    side = backend.create_stream(0)
    gate.close(side)
    step(backend, kernels, side, cells.at(0), 1, 1)
    thread = threading.Thread(target=lambda: call("hipStreamDestroy", int(side)), daemon=True)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    gate.open()
    thread.join(TIMEOUT)
    assert cells[0] == 1


def test_a_stream_that_captures_since_the_last_run(backend, appender, cells, stream, other, block):
    backend.replay(appender, other)
    prepare(backend, other)
    token = backend.capture_begin(other, "thread_local")
    backend.replay(appender, stream)
    assert status_of(other) == "active"
    backend.fill(other, block, 1, None)
    backend.destroy_graph(backend.capture_end(token))
    backend.replay(appender, other)
    backend.synchronize(other)
    assert cells[0] == 111


def test_a_stream_that_was_synchronized_before_its_capture_began_by_hand(backend, kernels, cells, other):
    """That is the way out which the error of the test below names."""
    with ag.Stream(backend="hip") as stream, ag.Graph() as graph:
        step(backend, kernels, stream.native, cells.at(0), 10, 1)
    for number in (1, 2):
        graph.replay()
        graph.replay()
        stream.synchronize()
        outer = ag.Graph(stream=stream)
        outer.capture_begin()
        try:
            step(backend, kernels, stream.native, cells.at(1), 10, 1)
            graph.replay(other)
            graph.replay(other)
        finally:
            outer.reset()
        backend.synchronize(other)
        assert cells[0] == int("1111" * number) % 2**32
    graph.reset()


def test_preparing_a_stream_asks_for_what_ran_on_it_alone(
    backend, appender, gate, cells, stream, other, block
):
    """A run elsewhere is waited for as ever, and so is one that follows on the prepared stream."""
    backend.replay(appender, stream)
    prepare(backend, other)
    gate.close(stream)
    backend.replay(appender, stream)
    prepare(backend, other)
    backend.replay(appender, other)
    assert not backend.query(other)
    gate.open()
    backend.synchronize(other)
    assert cells[0] == 111
    prepare(backend, other)
    gate.close(other)
    backend.replay(appender, other)
    backend.replay(appender, stream)
    assert not backend.query(stream)
    gate.open()
    backend.synchronize(stream)
    assert cells[0] == 11111


def test_a_stream_that_captures_before_its_run_is_done(
    backend, runtime, appender, gate, cells, stream, apart
):
    """`capture_begin` by hand prepares nothing: a run that can't be waited for is in the way of the next."""
    gate.close(stream)
    backend.replay(appender, stream)
    token = backend.capture_begin(stream, "relaxed")
    try:
        with pytest.raises(ag.CaptureError, match=r"synchronize that stream before capture_begin\(\)"):
            backend.replay(appender, apart)
        assert status_of(stream) == "active"
        assert cells[0] == 0
    finally:
        gate.open()
        backend.capture_abandon(token)
    backend.replay(appender, apart)
    backend.synchronize(apart)
    backend.synchronize(stream)


def test_a_stream_that_was_prepared_hides_no_run(backend, appender, cells, stream, apart):
    backend.replay(appender, stream)
    prepare(backend, stream)
    token = backend.capture_begin(stream, "thread_local")
    backend.replay(appender, apart)
    assert status_of(stream) == "active"
    backend.capture_abandon(token)
    backend.synchronize(apart)
    assert cells[0] != 0


def test_threads_that_replay_at_once(backend, kernels, cells):
    """Through the library, which lets one thread through at a time."""
    with ag.Stream(backend="hip") as stream, ag.Graph() as graph:
        step(backend, kernels, stream.native, cells.at(0), 1, 1)

    def work():
        with ag.Stream(backend="hip") as mine:
            for _ in range(50):
                graph.replay(mine)
            mine.synchronize()

    in_threads(*[work] * 4)
    assert cells[0] == 200
    graph.reset()


def test_destroying_an_executable_lets_its_run_complete(backend, kernels, gate, cells, stream, other):
    graph = captured(backend, stream, lambda: step(backend, kernels, stream, cells.at(0), 10, 1))
    executable = backend.instantiate(graph)
    backend.replay(executable, backend.as_stream(0))
    gate.close(stream)
    backend.replay(executable, stream)
    thread = threading.Thread(target=gate.open, daemon=True)
    thread.start()
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)
    backend.synchronize(stream)
    thread.join(TIMEOUT)
    assert cells[0] == 11


# ---- into a capture ------------------------------------------------------------------------------


def test_upstream_a_launch_into_a_capture_runs_at_once(backend, runtime, stream, other, block):
    """It leaves no node behind. When it does, the backend can have the capability ``"child_graphs"``."""
    graph = recorded(backend, stream, block, 7)
    executable = backend.instantiate(graph)
    assert bare_begin(int(other), "thread_local") == 0
    assert answer("hipGraphLaunch", executable.handle, int(other)) == 0
    assert status_of(other) == "active"
    code, captured = bare_end(int(other))
    assert code == 0
    assert nodes_of(captured) == []
    call("hipDeviceSynchronize")
    assert block.read() == bytes([7] * block.nbytes)
    call("hipGraphDestroy", captured)
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


def test_the_library_refuses_a_launch_into_a_capture(backend, block):
    with ag.Stream(backend="hip") as stream, ag.Graph() as graph:
        stream.fill(block, 7)
    launch = graph.bind(stream)
    with ag.Stream(backend="hip") as stream, ag.Graph() as outer:
        stream.fill(block, 1)
        with pytest.raises(errors.CaptureError):
            graph.replay(stream)
        assert status_of(stream.handle) == "active"
    assert block.read() == bytes(block.nbytes)
    assert outer.num_nodes == 1
    launch()
    graph.stream.synchronize()
    outer.replay()
    outer.stream.synchronize()
    assert block.read() == bytes([1] * block.nbytes)
    graph.reset()
    outer.reset()


@pytest.mark.parametrize("mode", [*MODES, "of another thread"])
def test_a_launch_into_somebody_elses_capture_is_refused(backend, block, cells, kernels, mode):
    """Nothing runs, the capture has only what its owner recorded, and launches go on when it is over."""
    with ag.Stream(backend="hip") as stream, ag.Graph() as graph:
        step(backend, kernels, stream.native, cells.at(0), 10, 1)
    with ag.Stream(backend="hip") as home, ag.Graph() as other:
        step(backend, kernels, home.native, cells.at(0), 10, 1)
    ways = [graph.replay, graph.bind(), other.bind(stream), lambda: other.replay(stream)]
    done = 0

    def run(replay):
        nonlocal done
        replay()
        replay()
        stream.synchronize()
        home.synchronize()
        done = int(f"{done}11") % 2**32
        assert cells[0] == done

    for replay in ways:
        run(replay)
        if mode in MODES:
            assert bare_begin(stream.handle, mode) == 0
        else:
            assert in_thread(lambda: bare_begin(stream.handle, "relaxed")) == 0
        stream.fill(block, 6)
        for _ in range(2):
            with pytest.raises(
                errors.CaptureError, match="another library is capturing the stream"
            ) as raised:
                replay()
            assert raised.value.reason == "illegal_call"
        home.fill(block, 5)
        assert status_of(stream.handle) == "active"
        stream.fill(block, 7)
        code, captured = bare_end(stream.handle)
        assert (code, len(nodes_of(captured))) == (0, 2)
        call("hipGraphDestroy", captured)
        assert cells[0] == done
        run(replay)
    assert block.read() == bytes([5] * block.nbytes)
    graph.reset()
    other.reset()


def test_replays_on_many_streams(backend, appender, cells):
    """Every stream waits for the one before it."""
    streams = [backend.create_stream(0) for _ in range(9)]
    for stream in streams:
        backend.replay(appender, stream)
    backend.synchronize(streams[-1])
    assert cells[0] == 111_111_111
    for stream in streams:
        backend.destroy_stream(stream)
