"""Graphs and executables of the cpu backend, driven directly, and what is left of them."""

import gc
import random
import sys
import threading
import weakref
from functools import partial

import pytest

import accelerator_graph as ag
from accelerator_graph._core import streams as stream_module
from accelerator_graph.backends._cpu import graph as _cpu_graph
from accelerator_graph.backends._cpu.graph import Stream
from accelerator_graph.backends.base import GraphEdge
from accelerator_graph.errors import DriverError
from backends.cpu.tools import LIMIT, fork, refused

pytest_plugins = ["backends.cpu.fixtures"]
pytestmark = pytest.mark.usefixtures("time_limit")


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


@pytest.mark.promise("runs-are-kept-in-order")
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
    launch = backend.native_calls(stream).bind(executable)
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
        assert not backend.captures._open
        executable = backend.instantiate(graph)
        launch = backend.native_calls(stream).bind(executable)
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
    assert len(backend.nodes(graph)[0]) == program.STEPS
    edges = {(edge.source, edge.target) for edge in backend.nodes(graph)[1]}
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
