"""Progress markers, and the watchdog that reads them, on the cpu backend."""

import inspect
import io
import os
import queue
import sys
import threading
from collections import defaultdict
from itertools import count
from types import SimpleNamespace

import pytest

import accelerator_graph as ag
from accelerator_graph.backends.base import CaptureInfo
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.diagnosis import ranks_groups
from accelerator_graph.diagnosis.watchdog import WatchdogReport
from accelerator_graph.inspection import progress
from accelerator_graph.inspection.progress import markers_of
from core.test_interrupts import Interrupter
from processes import execute
from threads import in_thread

LIMIT = 120
"""Seconds after which a test counts as hanging."""


class Gates:
    """Work that waits, to look at a replay meanwhile."""

    def __init__(self):
        self.reached, self.open = threading.Semaphore(0), threading.Semaphore(0)

    def stop(self):
        self.reached.release()
        assert self.open.acquire(timeout=LIMIT)

    def arrive(self):
        assert self.reached.acquire(timeout=LIMIT)


@pytest.fixture
def stream():
    with ag.Stream(backend="cpu") as stream:
        yield stream


@pytest.fixture
def gates(stream):
    gates = Gates()
    yield gates
    stream.synchronize()  # a test that leaves work waiting hangs itself, and no other one later


def captured(stream, gates, **how):
    with ag.Graph(keep_graph=True, observe=ag.progress(), **how) as graph:
        stream.launch(gates.stop)
        with ag.label("layer"):
            stream.launch(gates.stop)
            with ag.label("all-reduce"):
                stream.launch(gates.stop)
            stream.launch(gates.stop)
        stream.launch(gates.stop)
    return graph


def place(graph):
    return str(markers_of(graph).place())


def test_places_of_a_replay(stream, gates):
    graph = captured(stream, gates)
    assert place(graph) == "no run has begun"
    for _ in range(2):
        graph.replay()
        found = []
        for _ in range(5):
            gates.arrive()
            found.append(place(graph))
            gates.open.release()
        stream.synchronize()
        assert found == ["in no label", "in 'layer'", "in 'layer / all-reduce'", "in 'layer'", "in no label"]
        assert place(graph) == "the last run has ended"


def test_labels_are_without_their_markers(stream, gates):
    graph = captured(stream, gates)
    labels = {label.name: (label.start, label.stop) for label in graph.describe().labels}
    nodes = graph.describe().nodes
    kinds = [node.kind for node in nodes]
    assert {node.name for node in nodes if node.kind == "memset"} == {"marker of progress"}
    assert kinds[labels["all-reduce"][0] : labels["all-reduce"][1]] == ["host"]
    start, stop = labels["layer"]
    assert kinds[start:stop] == ["host", "memset", "host", "memset", "host"]
    assert kinds.count("host") == 5


def test_an_empty_label_and_an_empty_graph_are_still_told(stream):
    with (
        pytest.warns(ag.EmptyLabelWarning, match="nothing was recorded inside the label 'nothing'"),
        pytest.warns(ag.EmptyGraphWarning),
        ag.Graph(observe=ag.progress()),
        ag.label("nothing"),
    ):
        pass


def test_more_places_than_a_byte_holds(stream, gates):
    stops = (126, 127, 128, 255, 299)
    with ag.Graph(observe=ag.progress()) as graph:
        for number in range(300):
            with ag.label(str(number)):
                stream.launch(gates.stop if number in stops else str)
    graph.replay()
    found = []
    for _ in range(5):
        gates.arrive()
        found.append(place(graph))
        gates.open.release()
    stream.synchronize()
    assert found == [f"in '{number}'" for number in stops]
    assert place(graph) == "the last run has ended"


def test_too_many_places(stream, monkeypatch):
    monkeypatch.setattr(progress, "_MOST_PLACES", 6)
    with ag.Graph(observe=ag.progress()) as graph:
        for number in range(9):
            with ag.label(str(number)):
                stream.launch(str)
    assert len(markers_of(graph)._places) == 6
    graph.replay()
    stream.synchronize()
    assert place(graph) == "the last run has ended"


def test_graphs_have_their_own_places(stream, monkeypatch):
    monkeypatch.setattr(progress, "_BLOCK", 8)
    progress._cells.clear()
    graphs = []
    for _ in range(9):
        with ag.Graph(observe=ag.progress()) as graph:
            stream.launch(str)
        graphs.append(graph)
    assert len({markers_of(graph)._address for graph in graphs}) == 9
    graphs[4].replay()
    stream.synchronize()
    assert [place(graph) == "no run has begun" for graph in graphs] == [i != 4 for i in range(9)]


def test_a_broken_capture_fails_as_ever(stream):
    graph = ag.Graph(observe=ag.progress())
    with pytest.raises(ag.CaptureError) as raised, graph, ag.label("breaks"):
        stream.synchronize()
    assert raised.value.reason == "illegal_call"
    assert markers_of(graph) is None


class NoMemory(CpuBackend):
    def capabilities(self, device):
        return super().capabilities(device) - {"progress"}


class NoCount(CpuBackend):
    def capture_info(self, stream):
        info = super().capture_info(stream)
        return info and CaptureInfo(info.id)


@pytest.mark.promise("no-markers-without-memory")
@pytest.mark.parametrize(
    ("kind", "fact"),
    [
        (NoMemory, "has no memory of the host that a graph can write"),
        (NoCount, "can't count the nodes of a capture, so it has no labels to mark"),
    ],
)
def test_backends_without_markers_refuse(kind, fact):
    ag.backends.register("planted", kind)
    try:
        stream = ag.Stream(backend="planted")
        graph = ag.Graph(observe=ag.progress())
        with pytest.raises(ag.UnsupportedError) as raised, stream, graph:
            pass
        assert str(raised.value) == (f"progress(): backend 'planted' {fact}; capture without it.")
        assert graph.state == "empty"
        with stream, ag.Graph(), ag.label("without"):
            stream._backend.launch(stream._native, str)
    finally:
        ag.backends.unregister("planted")


# ---- the watchdog ----------------------------------------------------------------------------------


def test_a_block_that_is_left_in_time(stream, gates):
    graph, file = captured(stream, gates), io.StringIO()
    for _ in range(5):
        gates.open.release()
    with ag.watchdog(graph, LIMIT, file=file) as dog:
        graph.replay()
        stream.synchronize()
    dog._thread.join(LIMIT)
    assert not dog._thread.is_alive()
    assert (dog.report, file.getvalue()) == (None, "")


def test_a_replay_that_hangs(stream, gates):
    graph, file = captured(stream, gates), io.StringIO()
    for _ in range(2):
        gates.open.release()
    graph.replay()
    for _ in range(3):
        gates.arrive()

    waiting = threading.Event()

    def waits_for_the_replay():
        waiting.set()
        stream.synchronize()

    thread = threading.Thread(target=waits_for_the_replay, name="waiting")
    thread.start()
    assert waiting.wait(LIMIT)
    with ag.watchdog(graph, 0.2, file=file) as dog:
        dog._thread.join(LIMIT)
    for _ in range(3):
        gates.open.release()
    thread.join(LIMIT)
    assert dog.report.places == {0: "in 'layer / all-reduce'"}
    assert (dog.report.rank, dog.report.seconds) == (None, 0.2)
    assert "waits_for_the_replay" in dog.report.stacks["waiting"]
    head, first, *_ = file.getvalue().splitlines()
    assert head == "watchdog: still waiting after 0.2 s"
    assert first == "  in 'layer / all-reduce'"
    assert "waits_for_the_replay" in file.getvalue()


@pytest.mark.promise("watchdog-asks-nobody")
def test_the_watchdog_calls_no_backend(stream, gates, monkeypatch):
    graph, callers = captured(stream, gates), set()
    graph.replay()
    gates.arrive()
    for name, method in inspect.getmembers(CpuBackend, inspect.isfunction):

        def noted(*args, method=method, **how):
            callers.add(threading.current_thread())
            return method(*args, **how)

        monkeypatch.setattr(CpuBackend, name, noted)
    with ag.watchdog(graph, 0.05, file=io.StringIO()) as dog:
        dog._thread.join(LIMIT)
        stream.query()
    for _ in range(5):
        gates.open.release()
    assert dog.report.places == {0: "in no label"}
    assert callers == {threading.current_thread()}


def test_a_graph_without_markers_has_stacks(stream):
    with ag.Graph() as graph:
        stream.launch(str)
    with ag.watchdog(graph, 0.05, file=io.StringIO()) as dog:
        dog._thread.join(LIMIT)
    assert dog.report.places == {0: "not known, since its graph was made without progress()"}
    assert "test_a_graph_without_markers" in dog.report.stacks[threading.current_thread().name]


def test_threads_of_one_name_have_their_stacks(stream):
    leave = threading.Event()
    threads = [threading.Thread(target=leave.wait, name="twin") for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        with ag.watchdog(ag.Graph(), 0.05, file=io.StringIO()) as dog:
            dog._thread.join(LIMIT)
    finally:
        leave.set()
        for thread in threads:
            thread.join(LIMIT)
    assert [name for name in dog.report.stacks if "twin" in name] == ["twin", f"twin ({threads[1].ident})"]


def test_ranks_tell_each_other(stream, gates):
    graph = captured(stream, gates)
    gates.open.release()
    graph.replay()
    gates.arrive()
    gates.arrive()
    others = ["1 in 'layer'", "2 in no label"]
    with ag.watchdog(graph, 0.05, lambda text: [text, *others], file=io.StringIO()) as dog:
        dog._thread.join(LIMIT)
    for _ in range(4):
        gates.open.release()
    stream.synchronize()
    assert [*dog.report.places.values()] == ["in 'layer'", "in 'layer'", "in no label"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_group_of_some_ranks_has_their_numbers_in_the_program(stream, monkeypatch, gone):
    from .test_ranks import Store

    class Gone(Store):
        def check(self, keys):
            raise RuntimeError("Broken pipe")

    class ProcessGroup:
        group_name = "pair"

    store = Gone() if gone else Store()
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        ProcessGroup=ProcessGroup,
        get_rank=lambda group: 1,
        get_process_group_ranks=lambda group: [4, 6],
        distributed_c10d=SimpleNamespace(_get_default_store=lambda: store),
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    monkeypatch.setattr(ranks_groups, "_rounds", defaultdict(count))
    store.set("accelerator_graph/watchdog/pair/0/said/0", "in 'layer'")
    store.set("accelerator_graph/watchdog/pair/0/read/0", "")
    with ag.Graph(observe=ag.progress()) as graph:
        stream.launch(str)
    with ag.watchdog(graph, 0.05, ProcessGroup(), file=io.StringIO()) as dog:
        dog._thread.join(LIMIT)
    assert dog.report.rank == 6
    if gone:
        assert [*dog.report.places] == [6]
    else:
        assert dog.report.places == {4: "in 'layer'", 6: "no run has begun"}


@pytest.mark.promise("silent-ranks-are-named")
def test_other_ranks_that_say_nothing(stream):
    from .test_ranks import Store

    with ag.Graph(observe=ag.progress()) as graph:
        stream.launch(str)
    with ag.watchdog(graph, 0.05, (Store(), 1, 2), file=io.StringIO()) as dog:
        dog._thread.join(LIMIT)
    assert dog.report.rank == 1
    assert dog.report.places == {
        0: "its watchdog has reported nothing: it is not waiting for a graph, or it has ended",
        1: "no run has begun",
    }


def test_ranks_that_can_not_be_asked(stream):
    def gather(text):
        raise RuntimeError("the store is gone")

    with ag.Graph(observe=ag.progress()) as graph:
        stream.launch(str)
    with ag.watchdog(graph, 0.05, gather, file=io.StringIO()) as dog:
        dog._thread.join(LIMIT)
    assert dog.report.places == {0: "no run has begun (the other ranks can't be asked: the store is gone)"}


def test_a_rank_that_can_not_ask_says_which_it_is(stream):
    from .test_ranks import Store

    class Gone(Store):
        def set(self, key, value):
            raise ConnectionResetError("the store is gone")

    with ag.Graph(observe=ag.progress()) as graph:
        stream.launch(str)
    with ag.watchdog(graph, 0.05, (Gone(), 3, 8), file=io.StringIO()) as dog:
        dog._thread.join(LIMIT)
    assert dog.report.rank == 3
    assert [*dog.report.places] == [3]
    assert dog.report.places[3].startswith("no run has begun (the other ranks can't be asked: the group")
    assert dog.report.places[3].endswith("(the store is gone))")


def test_the_text_of_a_report():
    stacks = {"main": "  first\n  second\n", "other": "  third\n\n"}
    report = WatchdogReport(6, 2.50, {4: "in 'a'", 6: "in no label"}, stacks)
    assert str(report).splitlines() == [
        "watchdog: rank 6 is still waiting after 2.5 s",
        "  rank 4: in 'a'",
        "  rank 6: in no label",
        "thread 'main', innermost call last:",
        "  first",
        "  second",
        "thread 'other', innermost call last:",
        "  third",
    ]


class Flushed(io.StringIO):
    """A file that knows what it held when it was flushed."""

    flushed = ""

    def flush(self):
        self.flushed = self.getvalue()


def test_a_report_is_flushed_and_has_no_stack_of_the_watchdogs_own(stream):
    file = Flushed()
    with ag.watchdog(ag.Graph(), 0.01, file=file) as dog:
        assert dog.report is None or dog.report.seconds == 0.01
        assert dog._thread.daemon
        dog._thread.join(LIMIT)
    assert file.flushed == f"{dog.report}\n"
    assert dog._thread.name not in dog.report.stacks
    assert dog._thread.name == "accelerator_graph watchdog"


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("group", [None, "mine"])
def test_the_ranks_that_are_asked(stream, monkeypatch, group, fails):
    module, asked = sys.modules["accelerator_graph.diagnosis.watchdog"], []

    class Known(ranks_groups.Peers):
        own = 7

        def exchange(self, text, timeout):
            assert (text, timeout) == ("no run has begun", module._PATIENCE)
            if fails:
                raise RuntimeError("no")
            return ranks_groups.Answers(7, {2: "zero", 7: text, 5: None})

    monkeypatch.setattr(module, "peers_of", lambda *what: asked.append(what) or Known())
    with ag.Graph(observe=ag.progress()) as graph:
        stream.launch(str)
    with ag.watchdog(graph, 0.01, group, file=io.StringIO()) as dog:
        dog._thread.join(LIMIT)
    assert asked == [(group, "watchdog")]
    places = {2: "zero", 7: "no run has begun", 5: module._SILENT}
    if fails:
        places = {7: "no run has begun (the other ranks can't be asked: no)"}
    assert (dog.report.rank, dog.report.seconds, dog.report.places) == (7, 0.01, places)


def test_the_inner_block_of_a_watchdog_is_left_first(stream):
    dog = ag.watchdog(ag.Graph(), LIMIT, file=io.StringIO())
    threads, kept = [], []
    for _ in range(3):
        dog.__enter__()
        threads.append(dog._thread)
        kept.append(dog._blocks[-1])
    while threads:
        assert dog._blocks == kept
        dog.__exit__(None, None, None)
        threads.pop().join(10)
        kept.pop()
        assert all(thread.is_alive() for thread in threads)
        assert dog._blocks == kept
    assert dog.report is None


def test_blocks_of_one_watchdog_may_be_nested(stream):
    file = io.StringIO()
    dog = ag.watchdog(ag.Graph(), LIMIT, file=file)
    with dog:
        outer = dog._thread
        with dog:
            inner = dog._thread
    for thread in (outer, inner):
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert (dog.report, file.getvalue()) == (None, "")


def test_a_block_whose_end_is_skipped(stream):
    dog = ag.watchdog(ag.Graph(), 2, file=io.StringIO())
    leave = dog.__exit__  # as the interpreter does
    dog.__enter__()
    del leave
    dog._thread.join(LIMIT)
    assert dog.report is None


def left_at(at):
    """Leave a watched block in a block with an interrupt at the given moment of that."""
    dog, threads = ag.watchdog(ag.Graph(), LIMIT, file=io.StringIO()), []
    interrupter = Interrupter(at, KeyboardInterrupt, inside=(threading, queue))
    try:
        with dog:
            threads.append(dog._thread)
            with dog:
                threads.append(dog._thread)
                sys.settrace(interrupter)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    for thread in threads:
        thread.join(LIMIT)
    assert dog._blocks == []
    return interrupter, [thread.is_alive() for thread in threads], dog.report


def test_an_interrupt_at_any_moment_of_its_end_leaves_no_watch():
    lines = in_thread(left_at, 0)[0].lines
    assert lines > 5
    for at in range(1, lines + 1):
        interrupter, alive, report = in_thread(left_at, at)
        assert (alive, report) == ([False, False], None), interrupter.where


def test_it_does_not_end_a_process_whose_block_was_left_meanwhile(stream, monkeypatch):
    asked, left, ended = threading.Semaphore(0), threading.Semaphore(0), []

    def gather(text):
        asked.release()
        assert left.acquire(timeout=LIMIT)
        return [text]

    monkeypatch.setattr(os, "_exit", ended.append)
    with ag.watchdog(ag.Graph(), 0.05, gather, file=io.StringIO(), exit=True) as dog:
        assert asked.acquire(timeout=LIMIT)
    for _ in range(2):
        left.release()
    dog._thread.join(LIMIT)
    assert dog.report is not None
    assert ended == []


@pytest.mark.parametrize(
    ("graph", "seconds", "how", "kind"),
    [
        (None, 1, {}, TypeError),
        (ag.Graph(), 0, {}, ValueError),
        (ag.Graph(), float("nan"), {}, ValueError),
        (ag.Graph(), "60", {}, TypeError),
        (ag.Graph(), 1, {"file": "watchdog.txt"}, TypeError),
        (ag.Graph(), 1, {"exit": "no"}, TypeError),
    ],
)
def test_wrong_arguments(graph, seconds, how, kind):
    with pytest.raises(kind, match="watchdog"):
        ag.watchdog(graph, seconds, **how)


def test_a_group_that_is_none_is_refused_on_entry():
    with pytest.raises(TypeError, match="watchdog: the group must be"), ag.watchdog(ag.Graph(), 1, 3):
        pass


def test_it_ends_the_process_even_if_it_can_not_write():
    program = """
import io, threading
import accelerator_graph as ag
file = io.StringIO()
file.close()
with ag.watchdog(ag.Graph(), 0.2, file=file, exit=True):
    threading.Event().wait()
"""
    done = execute([sys.executable, "-c", program], timeout=LIMIT)
    assert done.returncode == 1


@pytest.mark.promise("watchdog-ends-the-process")
def test_it_ends_the_process_if_it_is_to():
    program = """
import threading
import accelerator_graph as ag
begun = threading.Event()
with ag.Stream(backend="cpu") as stream, ag.Graph(observe=ag.progress()) as graph, ag.label("forever"):
    stream.launch(begun.set)
    stream.launch(threading.Event().wait)
graph.replay()
begun.wait()
with ag.watchdog(graph, 0.2, exit=True):
    stream.synchronize()
"""
    done = execute([sys.executable, "-W", "error", "-c", program], timeout=LIMIT)
    assert done.returncode == 1
    assert done.stderr.splitlines()[:2] == [
        "watchdog: still waiting after 0.2 s",
        "  in 'forever'",
    ]
