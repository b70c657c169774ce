"""Captures with two frameworks, of several threads, and several in one thread: none is taken for another."""

import gc
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest

import accelerator_graph as ag
from accelerator_graph import interop
from accelerator_graph._core import capture_table, ownership, stream_stack
from accelerator_graph._core.capture import NO_TOKEN, native_mode
from accelerator_graph.backends.base import Capability, CaptureStatus
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.interop.base import Collective, Framework
from threads import in_thread

log = []
"""What was asked of the frameworks, and what they have undone."""


noting = []
"""What the frameworks call for their collectives."""


class Records:
    """Lets the backend record, under another id of the pool."""

    def __init__(self, backend, pool):
        self.backend, self.pool = backend, pool

    def __getattr__(self, name):
        return getattr(self.backend, name)

    def capture_end(self, token):
        return SimpleNamespace(native=self.backend.capture_end(token))

    def instantiate(self, graph):
        return SimpleNamespace(native=self.backend.instantiate(graph.native))

    def destroy_graph(self, graph):
        self.backend.destroy_graph(graph.native)

    def destroy_executable(self, executable):
        self.backend.destroy_executable(executable.native)

    def replay(self, executable, stream):
        self.backend.replay(executable.native, stream)

    def lends(self, made):
        return False


class First(Framework):
    """Has a word in everything, and records nothing."""

    api_version = 1

    def backend(self):
        return "cpu"

    def _does(self, what, *args):
        name = type(self).__name__
        log.append((what, name, *args))
        return lambda: log.append((f"undo {what}", name))

    def prepare(self, device):
        self._does("prepare", device)

    def use_stream(self, handle, device):
        return self._does("use_stream", handle, device)

    def clear_results(self):
        self._does("clear")

    def route(self, pool, handle, device, relaxed):
        with relaxed():
            return self._does("route", pool, handle, device)

    def release(self, pool):
        self._does("release", pool)

    def observe(self, pool, used):
        return self._does("observe", pool)

    def observe_collectives(self, note):
        noting.append(note)
        return self._does("collectives")

    def refuses(self, error):
        return isinstance(error, KeyError)


class Second(First):
    """Refuses something else."""

    def refuses(self, error):
        return isinstance(error, IndexError)


@pytest.fixture(name="two")
def two_fixture(monkeypatch):
    """Two frameworks, and a backend whose streams have handles."""
    capabilities = CpuBackend.capabilities
    monkeypatch.setattr(
        CpuBackend, "capabilities", lambda self, device: capabilities(self, device) | {Capability.HANDLES}
    )
    monkeypatch.setattr(CpuBackend, "handle_int", lambda self, native: 4096, raising=False)
    for kind in (First, Second):
        name = f"standin_{kind.__name__}"
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        interop.register(name, kind)
    log.clear()
    noting.clear()
    yield
    for kind in (First, Second):
        interop.unregister(f"standin_{kind.__name__}")


@pytest.fixture
def stream():
    return ag.Stream(backend="cpu")


def asked(what):
    return [each[1:] for each in log if each[0] == what]


@pytest.mark.parametrize("fails", [False, True])
def test_every_framework_takes_part_and_each_step_is_undone(stream, two, fails):
    graph = ag.Graph(stream=stream, observe=ag.ownership())
    try:
        with graph:
            [capture] = capture_table.live.values()
            pool, steps = capture.lease.id, [each[0] for each in log]
            stream.launch(int)
            if fails:
                raise LookupError
    except LookupError:
        assert fails
    names, at = ("First", "Second"), (4096, stream.device)
    assert asked("use_stream") == [(name, *at) for name in names]
    assert asked("route") == [(name, pool, *at) for name in names]
    assert asked("observe") == [(name, pool) for name in names]
    assert asked("collectives") == [(name,) for name in names]
    assert asked("clear") == [("First",), ("Second",), ("Second",), ("First",)]
    assert [what for what in steps if what not in ("prepare", "clear")] == [
        each for each in ("use_stream", "collectives", "route", "observe") for _ in names
    ]
    for what in ("observe", "collectives", "route", "use_stream"):
        assert asked(f"undo {what}") == [("Second",), ("First",)]
    assert asked("release") == []
    del capture
    graph.reset()
    ownership.drain()
    assert sorted(asked("release")) == [(name, pool) for name in names]


def test_every_framework_prepares_unless_a_capture_is_under_way(stream, two):
    with ag.graph(ag.Graph(), stream=stream):
        assert asked("prepare") == [(name, stream.device) for name in ("First", "Second")]
        stream.launch(int)
        other = ag.Stream(backend="cpu")
        with ag.graph(ag.Graph(), stream=other):
            other.launch(int)
    assert len(asked("prepare")) == 2


@pytest.mark.promise("cause-of-a-capture-error")
@pytest.mark.parametrize("error", [KeyError, IndexError, LookupError])
def test_a_call_that_any_framework_refuses_is_the_cause(stream, two, error):
    graph = ag.Graph(stream=stream)
    with pytest.raises(ag.AcceleratorGraphError if error is not LookupError else LookupError) as info, graph:
        raise error("mine")
    if error is LookupError:
        assert type(info.value) is LookupError
    else:
        assert info.value.reason == "illegal_call"
        assert "mine" in str(info.value)
        assert type(info.value.__cause__) is error
    assert graph.state == "empty"


@pytest.mark.parametrize("recording", ["First", "Second", "both"])
def test_the_first_framework_that_can_record_does(stream, two, monkeypatch, recording):
    given, generators = [], []

    def recorder(self, backend, pool, device, generators):
        name = type(self).__name__
        given.append((name, backend, pool, device, [*generators]))
        if name != recording and recording != "both":
            return None
        return Records(backend, (77, len(given)))

    monkeypatch.setattr(First, "recorder", recorder)
    graph = ag.Graph(stream=stream, observe=ag.ownership())
    with graph:
        [capture] = capture_table.live.values()
        stream.launch(int)
        number = 2 if recording == "Second" else 1
        assert type(capture.recorder) is Records
        assert capture.lease.shown == (77, number)
        assert asked("observe") == [("First", (77, number)), ("Second", (77, number))]
    pool = capture.lease.id
    assert given == [
        (name, stream._backend, pool, stream.device, generators) for name in ("First", "Second")[:number]
    ]


def test_modes_have_the_backends_own_names(stream, monkeypatch):
    backend = SimpleNamespace(name="mine", capture_modes=("relaxed", "global"))
    assert [native_mode(backend, mode) for mode in ("global", "relaxed")] == ["global", "relaxed"]
    with pytest.raises(ag.UnsupportedError, match=r"^backend 'mine' has no capture mode 'thread_local'"):
        native_mode(backend, "thread_local")
    begun, begin = [], CpuBackend.capture_begin
    monkeypatch.setattr(CpuBackend, "capture_modes", ("relaxed", "global"))
    monkeypatch.setattr(
        CpuBackend, "capture_begin", lambda self, native, how: begun.append(how) or begin(self, native, how)
    )
    for mode in ("default", "global"):
        with ag.Graph(stream=stream, capture_error_mode=mode):
            stream.launch(int)
    assert begun == ["relaxed", "global"]


def test_another_threads_capture_is_said_to_be_its(stream):
    with ag.Graph(stream=stream):
        stream.launch(int)
        [capture] = capture_table.live.values()
        assert capture.who().startswith("a graph of this thread is capturing the stream")
        here = threading.current_thread().name
        elsewhere = in_thread(lambda: (capture.who(), capture.is_here(), capture.thread_lives()), name="b")
        assert elsewhere[0].startswith(f"thread {here!r} is capturing the stream")
        assert elsewhere[1:] == (False, True)

        def end():
            capture.check_thread("capture_end()")

        with pytest.raises(ag.GraphStateError) as info:
            in_thread(end, name="other")
        assert str(info.value) == (
            f"Graph.capture_end(): thread {here!r} began this capture and has to end it, not thread 'other'."
        )
        capture.check_thread("capture_end()")


def test_only_reset_ends_the_capture_of_a_thread_that_has_ended(stream):
    graph = ag.Graph(stream=stream)
    in_thread(graph.capture_begin, name="gone")
    with pytest.raises(ag.GraphStateError, match="thread 'gone' began this capture"):
        graph.capture_end()
    graph.reset()
    assert graph.state == "empty"


def test_nodes_are_counted_while_something_is_recorded(stream, monkeypatch):
    with ag.Graph(stream=stream, keep_graph=True) as graph:
        [capture] = capture_table.live.values()
        counts = [capture.recorded()]
        stream.launch(int)
        counts.append(capture.recorded())

        def refuse(self, token):
            raise ag.DriverError("no")

        with monkeypatch.context() as patch:
            patch.setattr(CpuBackend, "capture_info", refuse)
            counts.append(capture.recorded())
    assert counts == [0, 1, None]
    assert capture._token is NO_TOKEN
    assert capture.recorded() is None
    assert graph.num_nodes == 1


@pytest.mark.parametrize("count", [1, 2, 3])
def test_all_captures_that_a_thread_leaves_behind_are_abandoned(monkeypatch, count):
    graphs, abandoned, abandon = [], [], CpuBackend.capture_abandon

    def begin():
        for _ in range(count):
            graphs.append(ag.Graph(stream=ag.Stream(backend="cpu")))
            graphs[-1].capture_begin()

    def noted(self, token):
        abandoned.append(token)
        abandon(self, token)

    monkeypatch.setattr(CpuBackend, "capture_abandon", noted)
    with ag.Graph(stream=ag.Stream(backend="cpu")) as here:
        [mine] = capture_table.live.values()
        in_thread(begin)
        ownership.drain()
        here.stream.launch(int)
        assert [*capture_table.live.values()] == [mine]
        assert len({*map(id, abandoned)}) == len(abandoned) == count
    assert gc.isenabled()
    assert here.state == "ready"
    for graph in graphs:
        graph.reset()
    assert len(abandoned) == count


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_captures_of_a_thread_end_in_any_order(order):
    streams = [ag.Stream(backend="cpu") for _ in order]
    graphs = [ag.Graph(stream=each) for each in streams]
    for graph, stream in zip(graphs, streams, strict=True):
        graph.capture_begin()
        stream.launch(int)
    captures, thread = [*capture_table.live.values()], capture_table.thread
    left = [0, 1, 2]
    for number in order:
        graphs[number].capture_end() if number else graphs[number].reset()
        left.remove(number)
        there = [captures[each] for each in left]
        assert [*capture_table.live.values()] == [*thread.unfinished.values()] == there
        assert [*thread.graphs.values()] == [graphs[each] for each in left]
        assert [each.stream for each in stream_stack.thread.entries] == [streams[each] for each in left]
        assert gc.isenabled() == (not left)
    assert [graph.state for graph in graphs] == ["empty", "ready", "ready"]


def test_the_stream_that_replays_go_to_is_waited_for(stream, monkeypatch):
    waited, relaxed, wait, relax = [], [], CpuBackend.synchronize, CpuBackend.relaxed
    monkeypatch.setattr(CpuBackend, "synchronize", lambda self, each: waited.append(each) or wait(self, each))
    monkeypatch.setattr(CpuBackend, "relaxed", lambda self, each: relaxed.append(each) or relax(self, each))
    with stream, ag.graph(ag.Graph()):
        assert ag.current_stream()._native is not stream._native
        assert waited == relaxed == [stream._native]
        ag.current_stream().launch(int)


def test_what_any_framework_notes_is_among_the_collectives(stream, two):
    one, other = Collective("all_reduce"), Collective("barrier")
    with ag.Graph(stream=stream) as graph:
        stream.launch(int)
        for note, each in zip(noting, (one, other), strict=True):
            note(each)
    assert [*graph.collectives] == [one, other]


@pytest.mark.parametrize("chosen", [["First"], ["Second"], [], None])
def test_only_the_frameworks_that_were_chosen_take_part(stream, two, chosen):
    names = ["First", "Second"] if chosen is None else chosen
    there = [each for each in interop.registry.active("cpu") if type(each).__name__ in names]
    assert len(there) == len(names)
    graph = ag.Graph(stream=stream)
    place = graph._where(stream, None)
    if chosen is not None:
        place.frameworks = there
    graph._begin(place, None, "default")
    try:
        for what in ("use_stream", "collectives", "route"):
            assert [each[0] for each in asked(what)] == names
    finally:
        graph.reset()


@pytest.mark.promise("a-graph-or-no-trace")
@pytest.mark.parametrize("status", CaptureStatus)
def test_only_a_capture_that_is_broken_hides_what_the_body_raised(stream, monkeypatch, status):
    graph, error = ag.Graph(stream=stream), LookupError("mine")

    def attempt():
        with graph:
            monkeypatch.setattr(CpuBackend, "capture_status", lambda self, native: status)
            raise error

    broken = status is CaptureStatus.INVALIDATED
    with pytest.raises(ag.CaptureError if broken else LookupError) as info:
        attempt()
    assert (info.value.__cause__ if broken else info.value) is error
    monkeypatch.undo()
    assert graph.state == "empty"


def test_a_stream_lives_as_long_as_a_framework_can_relax_it(stream, two, monkeypatch):
    kept, destroyed, destroy = [], [], CpuBackend.destroy_stream
    monkeypatch.setattr(First, "route", lambda self, pool, handle, device, relaxed: kept.append(relaxed))
    monkeypatch.setattr(
        CpuBackend, "destroy_stream", lambda self, native: destroyed.append(native) or destroy(self, native)
    )
    native = stream._native
    graph = ag.Graph(stream=stream)
    with graph:
        stream.launch(int)
    graph.reset()
    stream.close()
    del graph
    gc.collect()
    ownership.drain()
    assert native not in destroyed
    assert len(kept) == 2
    kept.clear()
    ownership.drain()
    assert native in destroyed
