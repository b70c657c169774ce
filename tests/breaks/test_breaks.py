"""Captures with breaks on the cpu backend: arguments, results, labels, refusals, interrupts."""

import ast
import builtins
import gc
import json
import os
import random
import re
import sys
import threading
import time
import weakref
from array import array
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._breaks import marks
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.diagnosis.ranks import RankRecord, compare
from accelerator_graph.inspection.progress import markers_of
from core.test_interrupts import Interrupter, nothing_is_captured, sample
from graphed.functions import launch

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "breaks.md"


@dataclass
class Pair:
    first: object
    second: object


@ag.eager
def double(x):
    """Double on the host."""
    return 2 * x


def test_a_mark_does_nothing_outside_of_a_capture_with_breaks(stream):
    assert double(3) == 6
    assert double.__doc__ == "Double on the host."
    log = []
    assert ag.live("name", log) is log
    ag.graph_break()
    log = []
    with ag.Graph() as graph:
        launch(log.append, 1)
        assert double(3) == 6
        ag.graph_break()
        launch(log.append, 2)
    assert graph.num_nodes == 2
    graph.replay()
    stream.synchronize()
    assert log == [1, 2]


def test_results_are_copied_where_the_next_segment_reads_them(stream):
    x, y, z = np.zeros(3), np.zeros(3), np.zeros(3)

    @ag.eager
    def parts(x):
        return {"sum": x + 1, "pair": Pair(x * 2, [x * 3, "fixed"])}

    graph = ag.Graph()
    with ag.graph(graph, breaks=True):
        launch(np.add, x, 1, x)
        found = parts(x)
        launch(np.add, found["sum"], found["pair"].first, y)
        launch(np.add, y, found["pair"].second[0], z)
    for i in (1, 2, 3):
        stream.synchronize()
        assert z.tolist() == [6 * i + 1] * 3
        graph.replay()


def test_an_argument_that_is_returned_is_not_copied(stream):
    x, y = np.zeros(3), np.zeros(3)

    @ag.eager
    def in_place(x):
        x += 10
        return x

    graph = ag.Graph()
    with ag.graph(graph, breaks=True):
        launch(np.add, x, 1, x)
        assert in_place(x) is x
        launch(np.copyto, y, x)
    graph.replay()
    stream.synchronize()
    assert y.tolist() == [22] * 3


def test_work_that_a_call_enqueues_is_done_before_its_result_is_copied(stream):
    x, y = np.zeros(3), np.zeros(3)

    @ag.eager
    def enqueued(x):
        new = np.empty_like(x)
        launch(np.multiply, x, 2, new)
        return new

    graph = ag.Graph()
    with ag.graph(graph, breaks=True):
        launch(np.add, x, 1, x)
        new = enqueued(x)
        launch(np.copyto, y, new)
    for i in (1, 2, 3):
        stream.synchronize()
        assert y.tolist() == [2 * i] * 3
        graph.replay()


@pytest.mark.promise("breaks-check-results")
@pytest.mark.parametrize(
    ("now", "fact"),
    [
        (lambda x: np.ones(4), r"array 0 has shape \(4,\), and not \(3,\)"),
        (lambda x: np.ones(3, "f4"), "array 0 has type float32, and not float64"),
        (lambda x: np.ones(6)[::2], r"array 0 has strides \(16,\), and not \(8,\)"),
        (lambda x: np.broadcast_to(1.0, 3), r"array 0 has strides \(0,\), and not \(8,\)"),
        (lambda x: np.frombuffer(bytes(24)), "array 0 has writable False, and not True"),
        (lambda x: array("d", [1, 2, 3]), "array 0 has class array.array, and not numpy.ndarray"),
        (lambda x: (x, x), "2 arrays, and not 1"),
        (lambda x: 5, "0 arrays, and not 1"),
        (lambda x: [x], "other containers"),
    ],
)
def test_a_result_of_another_kind_is_refused_and_named(stream, now, fact):
    x, calls = np.zeros(3), [lambda x: x + 1, now, lambda x: x + 2]

    @ag.eager
    def changing(x):
        return calls.pop(0)(x)

    graph = ag.Graph()
    with ag.graph(graph, breaks=True):
        y = changing(x)
        launch(np.copyto, x, y)
    with pytest.raises(
        ag.GraphStateError, match=f"changing at .* returned something else than in the capture: {fact}"
    ):
        graph.replay()
    graph.replay()
    stream.synchronize()
    assert x.tolist() == [3] * 3


@pytest.mark.promise("breaks-check-results")
def test_a_plain_value_that_differs_is_refused(stream):
    values = iter([[3, "x"], [3, "x"], [3, "y"], [True, "x"], [3]])
    graph = ag.Graph()
    with ag.graph(graph, breaks=True):
        found = ag.eager(lambda: next(values))()
        found.clear()
        launch(int)
    graph.replay()
    for fact in ("'y', and not 'x'", "True, and not 3", "other containers"):
        with pytest.raises(ag.GraphStateError, match=f"in the capture: {fact}. The segments read"):
            graph.replay()


def test_a_value_that_can_not_be_compared_is_refused_in_the_capture(stream):
    graph = ag.Graph()
    with (
        pytest.raises(ag.CaptureError, match="returned a value that replays can't compare"),
        ag.graph(graph, breaks=True),
    ):
        ag.eager(lambda: {1, 2})()
    assert graph.state == "empty"


@pytest.mark.promise("breaks-keep-inputs")
def test_containers_are_those_of_the_call(stream):
    seen, given = [], [1]

    @ag.eager
    def look(items, *, more):
        seen.append((list(items), dict(more)))
        items.append("changed by the call")

    graph, more = ag.Graph(), {"a": 1}
    with ag.graph(graph, breaks=True):
        look(given, more=more)
        assert given == [1, "changed by the call"]
        given.append(2)
        more["b"] = 2
    graph.replay(), graph.replay()
    assert seen == [([1], {"a": 1})] * 3


def test_live_objects_are_found_in_containers(stream):
    seen, batch = [], object()

    @ag.eager
    def look(pair, batch):
        seen.append((pair.second[0], batch))

    graph = ag.Graph()
    with ag.graph(graph, breaks=True):
        ag.live("batch", batch)
        look(Pair(1, [batch]), batch)
    graph.replay(live={"batch": "second"})
    assert seen == [(batch, batch), ("second", "second")]
    with pytest.raises(ag.GraphStateError, match=r"no 'batch' was given; pass exactly \['batch'\] as live="):
        graph.replay()
    with pytest.raises(TypeError, match="live must map names to objects, not 3"):
        graph.replay(live=3)
    with (
        pytest.raises(ValueError, match="live: 'x' stands for another object"),
        ag.graph(ag.Graph(), breaks=True),
    ):
        [ag.live("x", each) for each in ([1.5], [1.5])]
    with pytest.raises(TypeError, match="live: the name must be a str"):
        ag.live(1, [2])
    for value in (None, 0, "text", (batch,)):
        with pytest.raises(TypeError, match="can't be told from others of its value"):
            ag.live("value", value)
    with ag.Graph() as plain:
        launch(int)
    with pytest.raises(ag.GraphStateError, match="live= is for graphs with breaks"):
        plain.replay(live={"batch": 1})


@pytest.mark.promise("breaks-keep-inputs")
def test_inputs_of_a_call_live_as_long_as_the_graph(stream):
    graph, made = ag.Graph(), []

    @ag.eager
    def make():
        x = np.ones(4)
        made.append(weakref.ref(x))
        return x

    with ag.graph(graph, breaks=True):
        x = make()
        ag.eager(np.sum)(x)
        del x
    gc.collect()
    assert made[0]() is not None
    graph.reset()
    gc.collect()
    assert made[0]() is None


def test_a_break_inside_a_break_is_part_of_it(stream):
    outer = ag.eager(lambda x: double(double(x)))
    graph = ag.Graph(keep_graph=True)
    with ag.graph(graph, breaks=True):
        launch(int)
        assert outer(2) == 8
        launch(int)
    assert [node.kind for node in graph.describe().nodes] == ["host", "eager", "host"]


def test_a_graph_that_is_captured_in_the_body_has_no_breaks(stream):
    other = ag.Stream(backend="cpu")
    graph, inner = ag.Graph(), ag.Graph(keep_graph=True, stream=other)
    with ag.graph(graph, breaks=True):
        launch(int)
        with inner:
            other.launch(int)
            double(1)
            other.launch(int)
    assert inner.num_nodes == 2
    assert graph.num_nodes == 1


@pytest.mark.parametrize("rows", [0, 2, 3])
def test_rows_that_are_not_valid_are_zero(stream, rows):
    x, y = np.ones((3, 2)), np.zeros((3, 2))

    @ag.eager(valid_rows=lambda x: rows)
    def padded(x):
        return x + 1

    graph = ag.Graph()
    with ag.graph(graph, breaks=True):
        new = padded(x)
        launch(np.copyto, y, new)
    for _ in range(2):
        stream.synchronize()
        assert y.tolist() == [[2, 2]] * rows + [[0, 0]] * (3 - rows)
        y[...] = 7
        graph.replay()


def test_labels_go_on_over_breaks(stream):
    graph = ag.Graph(keep_graph=True)
    with ag.graph(graph, breaks=True):
        for _ in range(2):
            with ag.label("layer"):
                launch(int)
                with ag.label("attention"):
                    double(1)
                    launch(int)
                double(2)
        ag.graph_break()
        with ag.label("end"):
            launch(int)
    found = [(each.name, each.start, each.stop) for each in graph.describe().labels]
    assert found == [
        ("layer", 0, 4),
        ("attention", 1, 3),
        ("layer", 4, 8),
        ("attention", 5, 7),
        ("end", 8, 9),
    ]
    nodes = graph.describe().nodes
    assert [node.kind for node in nodes] == ["host", "eager", "host", "eager"] * 2 + ["host"]
    assert ag.GraphDescription.from_json(graph.describe().to_json()) == graph.describe()
    assert [(edge.source, edge.target) for edge in graph.describe().edges] == [(i, i + 1) for i in range(8)]


def test_streams_that_are_named_are_waited_for_before_results_are_copied(stream):
    x, y, side, gate = np.zeros(3), np.zeros(3), ag.Stream(backend="cpu"), threading.Semaphore(0)

    @ag.eager(streams=[side])
    def call(x):
        new = np.empty_like(x)
        side.launch(gate.acquire)
        side.launch(np.multiply, x, 2, new)
        gate.release()
        return new

    graph = ag.Graph()
    with ag.graph(graph, breaks=True):
        launch(np.add, x, 1, x)
        new = call(x)
        launch(np.copyto, y, new)
    for i in (1, 2, 3):
        stream.synchronize()
        assert y.tolist() == [2 * i] * 3
        graph.replay()


def test_progress_is_that_of_the_segment_that_runs(stream):
    found, replays, gate = [], [], threading.Semaphore(0)
    graph = ag.Graph(observe=ag.progress())

    @ag.eager
    def call():
        found.append(str(markers_of(graph).place()) if graph.state == "ready" else "")

    def stop():
        if replays:
            assert gate.acquire(timeout=60)

    with ag.graph(graph, breaks=True):
        with ag.label("first"):
            launch(int)
        call()
        with ag.label("second"):
            launch(stop)
    stream.synchronize()  # the run in the capture does not stop
    for _ in range(2):
        replays.append(1)
        graph.replay()
        while str(markers_of(graph).place()) != "in 'second'":
            pass
        gate.release()
        stream.synchronize()
        assert str(markers_of(graph).place()) == "the last run has ended"
    assert found == ["", "in no label", "in no label"]


def test_an_empty_body_and_one_of_calls_only(stream):
    graph = ag.Graph()
    with pytest.warns(ag.EmptyGraphWarning), ag.graph(graph, breaks=True):
        pass
    graph.reset()
    log = []
    with ag.graph(graph, breaks=True):
        ag.eager(log.append)(1)
    graph.replay()
    assert log == [1, 1]


def test_a_graph_of_calls_or_of_a_loop_alone_can_be_looked_at(stream, tmp_path, monkeypatch):
    graph = ag.Graph(keep_graph=True)
    with ag.graph(graph, breaks=True):
        double(double(1))
    graph.replay()
    assert graph.state == "ready"
    assert [node.kind for node in graph.describe().nodes] == ["eager"] * 2
    assert [(edge.source, edge.target) for edge in graph.describe().edges] == [(0, 1)]
    assert graph.check().wrong == ()
    assert graph.memory().nodes == 0
    with ag.Graph(keep_graph=True) as loop:
        ag.while_(np.zeros(1, bool), lambda: launch(int))
    dump = lambda *given: bool(Path(given[2]).write_text("one segment", encoding="utf-8"))  # noqa: E731
    monkeypatch.setattr(CpuBackend, "dump", dump)
    for shown, name in ((graph, "double"), (loop, "while")):
        shown.debug_dump(tmp_path / "graph.dot")
        assert name in (tmp_path / "graph.dot").read_text(encoding="utf-8")


@pytest.mark.promise("breaks-refuse")
def test_what_a_graph_with_breaks_does_not_do(stream, tmp_path):
    graph, other = ag.Graph(keep_graph=True), ag.Graph(keep_graph=True)
    with ag.graph(graph, breaks=True):
        launch(int)
        double(1)
        launch(int)
    with other:
        launch(int)
    calls = {
        "bind": graph.bind,
        "clone": graph.clone,
        "instantiate": graph.instantiate,
        "update": lambda: graph.update(other),
        "recapture": lambda: graph.recapture().__enter__(),
        "set_node": lambda: graph.set_node(0, enabled=False),
        "set_nodes": lambda: graph.set_nodes({0: {"enabled": False}}),
        "raw_graph": graph.raw_graph,
        "raw_executable": graph.raw_executable,
    }
    for name, call in calls.items():
        with pytest.raises(ag.GraphStateError, match=rf"Graph\.{name}\(\): .*breaks") as raised:
            call()
        assert str(raised.value).count(".") < 4, name
    with pytest.raises(ag.GraphStateError, match="breaks"):
        other.update(graph)
    for suffix in ("html", "json", "dot"):
        graph.debug_dump(tmp_path / f"graph.{suffix}")
        assert "double" in (tmp_path / f"graph.{suffix}").read_text(encoding="utf-8")
    graph.replay()
    stream.synchronize()
    assert graph.check().wrong == ()
    assert "4 nodes" not in str(graph.memory())


def test_a_profile_has_each_segment_and_each_call(stream):
    x, y = np.zeros(3), np.zeros(3)

    @ag.eager
    def slow(batch):
        time.sleep(batch[0])

    graph = ag.Graph()
    with ag.graph(graph, breaks=True):
        launch(np.add, x, 1, x)
        slow(ag.live("batch", [0]))
        launch(time.sleep, 0.02)
        ag.graph_break()
        launch(np.copyto, y, x)
    profile = graph.profile(3, state=[x], live={"batch": [0.02]})
    assert x.tolist() == [1] * 3
    assert y.tolist() == [7] * 3
    first, call, second, third = profile.parts
    assert [each.name for each in profile.parts if not each.is_call] == [
        "segment 1",
        "segment 2",
        "segment 3",
    ]
    assert (call.name.rpartition(".")[2], call.nodes, call.is_call) == ("slow", None, True)
    assert (first.nodes, second.nodes, third.nodes, profile.nodes) == (1, 1, 1, 3)
    assert min(call.time, call.host, second.time) > 20_000 > second.host
    assert all(later.begin == each.begin + each.time for each, later in pairwise(profile.parts))
    assert profile.median >= call.time
    assert f"slow  test_breaks.py:{call.line}" in str(profile)
    assert "segment 3  1 node" in str(profile)
    events = json.loads(profile.to_trace())["traceEvents"]
    assert [each["name"] for each in events if each["ph"] == "X"][1:] == [each.name for each in profile.parts]
    with pytest.raises(ag.GraphStateError, match="no 'batch' was given"):
        graph.profile(1)
    with pytest.raises(ag.UnsupportedError, match=r"kernels=True\): a graph with breaks, .* can't be copied"):
        graph.profile(1, kernels=True, live={"batch": [0]})
    with ag.Graph() as plain:
        launch(int)
    with pytest.raises(ag.GraphStateError, match="live= is for graphs with breaks"):
        plain.profile(1, live={})


def test_memory_has_the_results_of_calls(stream):
    x = np.zeros(1000)
    graph, plain = ag.Graph(), ag.Graph()
    with ag.graph(graph, breaks=True):
        launch(np.add, x, 1, x)
        launch(np.copyto, x, ag.eager(lambda x: (x + 1, x))(x)[0])
        launch(np.copyto, x[:10], ag.eager(lambda x: [x[:10] + 1])(x)[0])
    with plain:
        launch(int)
    memory = graph.memory()
    assert memory.results.nbytes == 8080
    assert memory.nbytes >= 8080
    assert "results of eager calls" in str(memory)
    assert "what 2 eager calls returned in the capture" in str(memory)
    assert ag.GraphMemory.from_json(memory.to_json()) == memory
    report = ag.memory_report([graph, plain])
    assert report.on_devices >= 8080
    assert "results of eager calls: 7.9 KiB" in str(report)
    assert "eager" not in str(plain.memory())


@pytest.mark.promise("breaks-have-their-collectives")
def test_ranks_are_compared_by_the_collectives_of_segments_and_calls(stream):
    def captured(*order):
        graph = ag.Graph(keep_graph=True)
        with ag.graph(graph, breaks=True):
            for kind, breaks in order:
                (ag.eager(collective) if breaks else collective)(kind)
        return graph

    def collective(kind):
        launch(int)
        ag.note_collective(kind, "float32", 4)

    same = [("all_reduce", False), ("broadcast", True), ("all_gather", False)]
    graphs = [captured(*same), captured(*same), captured(*((kind, False) for kind, _ in same))]
    assert [each.kind for each in graphs[0].collectives] == ["all_reduce", "broadcast", "all_gather"]
    for graph in graphs:
        graph.replay()
        assert len(graph.collectives) == 3
    ag.note_collective("all_reduce", "float32", 4)  # of no call
    records = [RankRecord.of(i, graph) for i, graph in enumerate([*graphs, captured(*same[1:], same[0])])]
    differences, notes = compare({0: records[0], 1: records[1]}, [0, 1], strict=True)
    assert (differences, notes) == ([], [])
    differences, notes = compare({0: records[0], 2: records[2]}, [0, 2], strict=False)
    assert differences == []
    assert "1 eager node" in notes[0]
    differences, _ = compare({0: records[0], 3: records[3]}, [0, 3], strict=False)
    assert "collective 1 is all_reduce of 4 float32" in differences[0]


@pytest.mark.promise("breaks-cost")
@pytest.mark.skipif("'torch' in sys.modules", reason="torch's modes are compared, too")
def test_a_break_needs_as_few_lines_as_the_guide_says(stream):
    x, package = np.zeros(8), os.path.dirname(ag.__file__)
    bodies = {
        "`graph_break()`": ag.graph_break,
        "an eager call that returns nothing new": lambda: ag.eager(int)(),
        "one that returns a new array": lambda: ag.eager(np.copy)(x),
        "one with a list of two arrays": lambda: ag.eager(len)([x, x]),
    }
    table = [row for row in GUIDE.read_text(encoding="utf-8").splitlines() if row.startswith("| ")]

    def counted(body, breaks):
        found, graph = Counter(), ag.Graph()
        with ag.graph(graph, breaks=True):
            for _ in range(breaks):
                launch(int)
                body()
            launch(int)
        graph.replay(), graph.replay()

        def trace(frame, event, _):
            file = os.path.relpath(frame.f_code.co_filename, package)
            if not file.startswith(("..", "backends")):
                found[event] += 1
                return trace
            return None

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            graph.replay()
        finally:
            sys.settrace(before)
        return found

    for name, body in bodies.items():
        one, eleven = counted(body, 1), counted(body, 11)
        (row,) = [row for row in table if row.startswith(f"| {name}")]
        said = [int(cell) for cell in row.split("|")[-3:-1]]
        # a comprehension is a call before Python 3.12
        assert (eleven["call"] - one["call"]) / 10 <= said[0], name
        assert (eleven["line"] - one["line"]) / 10 <= said[1], name


def test_the_guide_has_the_messages_as_they_are():
    guide = GUIDE.read_text(encoding="utf-8").partition("### What the errors mean")[2]
    rows = [row.split(" | ") for row in guide.partition("##")[0].splitlines() if row.startswith("| ")][2:]
    package = Path(ag.__file__).parent
    said = "".join(
        node.value
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    assert len(rows) == 20
    for message, kind, _ in rows:
        for part in message.removeprefix("| ").split(', with the note "'):
            assert part.strip('"') in said, part
        assert issubclass(getattr(ag, kind.strip("`"), None) or getattr(builtins, kind.strip("`")), Exception)


@pytest.mark.promise("breaks-verify-and-diagnose")
def test_verify_and_diagnose_take_graphs_with_breaks(stream):
    x, y, between, calls = np.arange(4.0), np.zeros(4), np.zeros(4), []

    def reference(x):
        new = np.zeros(4)
        launch(np.add, x, 1, new)
        stream.synchronize()
        return new / new.max() * 10

    def captured(call, end=lambda: None, **how):
        graph = ag.Graph(stream=stream, **how)
        with ag.graph(graph, breaks=True):
            launch(np.add, x, 1, between)
            launch(np.multiply, call(between), 10, y)
            end()
        return graph

    def counting(values):
        calls.append(1)
        return values / values.max() + len(calls)

    right, wrong = captured(ag.eager(lambda v: v / v.max())), captured(ag.eager(counting))
    live = captured(lambda v: ag.eager(lambda v, _: v)(v, ag.live("step", [1])))
    assert ag.verify(right, x, outputs=y, reference=reference).verdict == "right"
    with pytest.raises(ag.VerificationError):
        ag.verify(wrong, x, outputs=y, reference=reference)
    with pytest.raises(ag.GraphStateError, match="no 'step' was given"):
        ag.verify(live, x, outputs=y, reference=reference)
    captured(ag.eager(lambda v: v / v.max()), observe=ag.diagnose()).replay()
    with pytest.raises(ag.CaptureError, match=r"Stream.synchronize waits for work") as raised:
        captured(ag.eager(np.copy), stream.synchronize, observe=ag.diagnose())
    assert raised.value.calls[0].line


def test_what_can_not_be_marked():
    def generator():
        yield

    async def coroutine():
        pass

    for what in (generator, coroutine):
        with pytest.raises(TypeError, match=r"eager can't mark .* body runs after the call"):
            ag.eager(what)
    for what in (3, staticmethod(len), classmethod(len)):
        with pytest.raises(
            TypeError, match=f"eager: the argument must be a function, not {re.escape(repr(what))}"
        ):
            ag.eager(what)
    with pytest.raises(TypeError, match="breaks must be True, False, or functions"):
        ag.graph(ag.Graph(), breaks="yes")
    with pytest.raises(TypeError, match="breaks names nothing; pass True for what is marked"):
        ag.graph(ag.Graph(), breaks=[])


def test_methods_can_be_marked(stream):
    class Model:
        def __init__(self):
            self.seen = []

        @ag.eager
        def look(self, x):
            self.seen.append(x)

    model, graph = Model(), ag.Graph()
    with ag.graph(graph, breaks=True):
        model.look(1)
    graph.replay()
    assert model.seen == [1, 1]


def halve(x):
    return x / 2


class Model:
    def half(self, x):
        return halve(x)

    @staticmethod
    def half_of(x):
        return x / 2


class Module:
    def __call__(self, x):
        return self.forward(x)

    def forward(self, x):
        return x / 2


def test_results_that_lie_in_each_other_are_copied_as_if_at_once(stream):
    box, out = [(np.full(1, 1.0), np.full(1, 2.0))], np.zeros(2)

    def swapped():
        found = box[0]
        box[0] = found[::-1]
        return found

    graph = ag.Graph()
    with ag.graph(graph, breaks=True):
        first, second = ag.eager(swapped)()
        launch(np.copyto, out[:1], first)
        launch(np.copyto, out[1:], second)
    for wanted in ([2, 1], [1, 2]):
        box[0] = tuple(np.full(1, float(each)) for each in wanted)
        if wanted == [2, 1]:
            box[0] = second, first  # the arrays of the capture
        graph.replay()
        stream.synchronize()
        assert out.tolist() == wanted


def test_a_capture_whose_eager_call_raised_can_not_go_on(stream):
    x, graph = np.zeros(1), ag.Graph()

    def capture():
        with ag.graph(graph, breaks=True):
            launch(np.add, x, 1, x)
            with pytest.raises(ZeroDivisionError):
                ag.eager(failing)()
            launch(np.add, x, 10, x)

    message = r"the eager call of .*failing.* failed in the capture, which"
    with pytest.raises(ag.GraphStateError, match=message):
        capture()
    stream.synchronize()
    assert x[0] == 11  # the first segment has run, and what followed the call was not recorded
    assert graph.state == "empty"
    with ag.graph(graph, breaks=True):
        launch(np.add, x, 1, x)
        double(x)
    graph.replay()


def failing():
    raise ZeroDivisionError


def test_the_stream_of_a_replay_can_be_closed(stream):
    x, graph = np.zeros(1), ag.Graph()
    with ag.graph(graph, breaks=True):
        launch(np.add, x, 1, x)
        double(x)
    other = ag.Stream(backend="cpu")
    graph.replay(other)
    other.close()
    graph.replay()
    stream.synchronize()
    assert x[0] == 3


def test_what_is_watched_is_checked_at_each_replay(stream):
    graph, watched = ag.Graph(), np.zeros(3)
    with ag.graph(graph, breaks=True):
        launch(int)
        double(1)
    graph.watch(watched)
    graph.replay()
    del watched
    with pytest.raises(ag.GraphStateError):
        graph.replay()


@pytest.mark.promise("breaks-make-events-real")
def test_an_event_from_ahead_of_a_loop_is_waited_for_behind_it(stream):
    side, n, log = ag.Stream(backend="cpu"), np.zeros(1, "i4"), []
    with ag.Graph() as graph:
        launch(log.append, "ahead")
        event = stream.record()
        ag.while_(n, lambda: (launch(log.append, "inside"), launch(np.subtract, n, 1, n)))
        side.wait(event)
        side.launch(log.append, "behind")
        stream.wait(side)
    for times in (2, 0):
        n[0] = times
        log.clear()
        graph.replay()
        stream.synchronize()
        assert log == ["ahead", *["inside"] * times, "behind"]


@pytest.mark.promise("breaks-by-name")
def test_calls_that_nobody_can_decorate_are_named(stream):
    module = Module()
    for named, call in (
        (halve, lambda: halve(1)),
        (Model.half, lambda: Model().half(1)),
        (Model.half_of, lambda: Model().half_of(1)),
        (module, lambda: module(1)),
    ):
        graph = ag.Graph(keep_graph=True)
        before = halve, dict(vars(Model)), vars(module).copy()
        with ag.graph(graph, breaks=[named]):
            launch(int)
            assert call() == 0.5
            launch(int)
        assert [node.kind for node in graph.describe().nodes] == ["host", "eager", "host"]
        assert (halve, dict(vars(Model)), vars(module)) == before
        with pytest.raises(ZeroDivisionError), ag.graph(ag.Graph(), breaks=[named]):
            raise ZeroDivisionError
        assert (halve, dict(vars(Model)), vars(module)) == before
    for wrong in ("aten::mm", ["mm"], [int], 3):
        with pytest.raises(TypeError, match="breaks"):
            ag.graph(ag.Graph(), breaks=wrong)
    if "torch" not in sys.modules:
        with (
            pytest.raises(ValueError, match="'aten::mm', and no framework that is imported has any"),
            ag.graph(ag.Graph(), breaks=["aten::mm"]),
        ):
            pass
    graph = ag.Graph()
    with (
        pytest.raises(ValueError, match="found by its name in no module"),
        ag.graph(graph, breaks=[lambda: 1]),
    ):
        pass
    assert graph.state == "empty"


@pytest.mark.promise("breaks-half-run")
def test_a_replay_beside_one_of_another_thread_is_refused(stream):
    reached, go_on, errors = threading.Event(), threading.Event(), []
    graph = ag.Graph()

    @ag.eager
    def call():
        if graph.state == "ready":
            reached.set()
            assert go_on.wait(60)

    with ag.graph(graph, breaks=True):
        launch(int)
        call()
    runs = threading.Thread(target=graph.replay)
    runs.start()
    assert reached.wait(60)
    for refused in (graph.replay, graph.reset):
        with pytest.raises(ag.GraphStateError, match="in the middle of a replay"):
            refused()
    go_on.set()
    runs.join()
    graph.replay()
    graph.reset()
    assert not errors


@pytest.mark.promise("breaks-half-run")
def test_the_capture_is_not_ended_in_an_eager_call(stream):
    graph, n, calls = ag.Graph(), np.full(1, 3), []

    @ag.eager
    def call():
        calls.append(ag.live("x", [graph.state]))  # names nothing in here
        if graph.state == "capturing":
            for end in ("reset", "capture_end", "replay"):
                with pytest.raises(ag.GraphStateError, match=rf"Graph\.{end}\(\): .* captur"):
                    getattr(graph, end)()

    with ag.graph(graph, breaks=True):
        call()
        ag.while_(n, lambda: (launch(np.subtract, n, 1, n), call()))
    assert calls == [["capturing"]] * 4
    graph.replay()


@pytest.mark.promise("breaks-half-run")
def test_an_error_of_a_call_has_its_name(stream):
    fails = iter([False, True])

    @ag.eager
    def failing():
        if next(fails, False):
            raise LookupError("of the call")

    graph = ag.Graph()
    with ag.graph(graph, breaks=True):
        failing()
    with pytest.raises(LookupError, match="of the call") as raised:
        graph.replay()
    (note,) = raised.value.__notes__
    assert "failing at" in note
    assert "in a replay; the next replay begins at the first segment" in note
    with pytest.raises(LookupError) as raised, ag.graph(ag.Graph(), breaks=True):
        ag.eager({}.__getitem__)(1)


class Program:
    """Work of random kinds on a few arrays, as steps that can be done eagerly and captured."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.arrays = [np.array([draw.randrange(9) for _ in range(3)], "i8") for _ in range(4)]
        self.steps = [self.step(draw) for _ in range(draw.randrange(14))]
        self.steps.insert(draw.randrange(len(self.steps) + 1), ("work", 0, 1, 2, 3))  # else it may be empty

    def step(self, draw):
        kind = draw.choice(["work", "work", "work", "break", "new", "in place", "nested", "pair", "label"])
        x, y, z = (draw.randrange(4) for _ in range(3))
        return kind, x, y, z, draw.randrange(1, 5)

    def run(self, do):
        a = self.arrays
        for kind, x, y, z, number in self.steps:
            if kind == "work":
                do(np.add, a[x], a[y], a[x])
            elif kind == "break":
                ag.graph_break()
            elif kind == "new":
                do(np.copyto, a[z], ag.eager(lambda x, y, n: x * n + y)(a[x], a[y], number))
            elif kind == "in place":
                do(np.copyto, a[z], ag.eager(np.negative)(a[x], a[x]))
            elif kind == "nested":
                do(np.copyto, a[z], ag.eager(lambda x: ag.eager(np.copy)(x) + 1)(a[x]))
            elif kind == "pair":
                one, two = ag.eager(lambda x, y: (x + y, y))(a[x], a[y])
                do(np.copyto, a[z], one), do(np.add, a[x], two, a[x])
            else:
                with ag.label("part"):
                    do(np.add, a[x], 1, a[x])
                    ag.eager(a[y].__iadd__)(number)


def at_once(work, *args):
    work(*args)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_do_what_they_do_eagerly(stream, seed):
    model, program, pool = Program(seed), Program(seed), ag.graph_pool_handle()
    between, graph = ag.Graph(pool=pool), ag.Graph(keep_graph=True, pool=pool)
    with between:
        launch(int)
    with ag.graph(graph, breaks=True):
        program.run(launch)
    for _ in range(4):
        model.run(at_once)
        stream.synchronize()
        assert [each.tolist() for each in program.arrays] == [each.tolist() for each in model.arrays]
        between.replay()
        graph.replay()
    eager = sum(kind not in ("work", "break") for kind, *_ in program.steps)
    assert sum(node.kind == "eager" for node in graph.describe().nodes) == eager


def with_breaks(graph, log):
    with ag.graph(graph, breaks=True):
        launch(log.append, 1)
        with ag.label("part"):
            double(1)
            launch(log.append, 2)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_at_any_line_of_a_capture_leaves_no_trace(error):
    with ag.Stream(backend="cpu") as stream:
        with_breaks(ag.Graph(), [])
    for at in sample("lines"):
        stream, pool = ag.Stream(backend="cpu"), ag.graph_pool_handle()
        graph, log, interrupter = ag.Graph(pool=pool, stream=stream), [], Interrupter(at, error)
        interrupter.strike(with_breaks, graph, log)
        if not (where := interrupter.where):
            break
        assert graph.state in ("empty", "ready"), where
        nothing_is_captured(where)
        assert marks.thread.recording is None, where
        stream.synchronize()
        graph.reset()
        log.clear()
        with stream, graph:
            stream.launch(log.append, 3)
        graph.replay()
        stream.synchronize()
        assert log == [3], where
    assert at > 100


def test_an_interrupt_at_any_line_of_a_replay_leaves_a_graph_that_works(stream):
    log, graph = [], ag.Graph(stream=stream)
    with_breaks(graph, log)
    for at in sample("lines"):
        interrupter = Interrupter(at, KeyboardInterrupt)
        interrupter.strike(graph.replay)
        if not (where := interrupter.where):
            break
        assert ag.current_stream() is stream, where
        stream.synchronize()
        log.clear()
        graph.replay()
        stream.synchronize()
        assert log == [1, 2], where
