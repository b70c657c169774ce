"""Where the events stand that time the parts of a graph, and what `Graph.profile` says of labels."""

import itertools
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._core import profiling
from accelerator_graph._core.profiling import WARM_UP, Sections, borders, why_not_copied
from accelerator_graph.backends._shared.nodes import rerouted
from accelerator_graph.backends.base import GraphEdge, GraphNode
from accelerator_graph.backends.cpu import CpuBackend

SECONDS = 0.003
SLOW = 0.3
CHAIN = [(0, 1), (1, 2), (2, 3)]
DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]
TWO_ROOTS = [(0, 2), (1, 3)]
ALL_TO_ALL = [(0, 2), (0, 3), (1, 2), (1, 3)]


def contents(edges, count=4, kinds=None):
    return [GraphNode(id, "kernel") for id in range(count)], [
        GraphEdge(*edge, (kinds or {}).get(edge, "")) for edge in edges
    ]


@pytest.mark.parametrize(
    ("edges", "span", "before", "after"),
    [
        (CHAIN, (0, 4), [0], [3]),
        (CHAIN, (1, 3), [], [0, 2]),  # after node 0 is before node 1
        (DIAMOND, (1, 2), [], [0, 1]),
        (DIAMOND, (1, 3), [], [0, 1, 2]),
        (DIAMOND, (3, 4), [3], [3]),
        (TWO_ROOTS, (0, 4), [0, 1], [2, 3]),
        (TWO_ROOTS, (2, 4), [], [0, 1, 2, 3]),
        (ALL_TO_ALL, (2, 3), [2], [2]),
    ],
)
def test_events_stand_at_the_first_and_the_last_nodes_of_a_part(edges, span, before, after):
    found = borders([span], contents(edges))
    assert (found.before, found.after) == (before, after)
    assert {*found.begins[0], *found.ends[0]} == set(range(len(before) + len(after)))


def reachable(edges, start):
    found, left = set(), [start]
    while left:
        node = left.pop()
        new = {target for source, target in edges if source == node} - found
        found |= new
        left += new
    return found


@pytest.mark.promise("events-order-nothing")
@pytest.mark.parametrize("edges", [CHAIN, DIAMOND, TWO_ROOTS, ALL_TO_ALL, []])
def test_events_order_no_nodes_that_were_not_ordered(edges):
    everywhere = [(start, stop) for start in range(4) for stop in range(start + 1, 5)]
    for ranges in ([each] for each in everywhere), ([a, b] for a, b in itertools.pairwise(everywhere)):
        for spans in ranges:
            found = borders(spans, contents(edges))
            gone, new = rerouted(edges, found.before, found.after, 4)
            changed = sorted({*edges} - {*gone} | {*new})
            assert set(gone) <= set(edges)
            for node in range(4):
                assert {each for each in reachable(changed, node) if each < 4} == reachable(edges, node)
            for index, (start, stop) in enumerate(spans):
                inside = set(range(start, stop))
                for node in inside:
                    events = [4 + event for event in found.begins[index]]
                    assert any(node in reachable(changed, event) for event in events)
                    assert any(4 + event in reachable(changed, node) for event in found.ends[index])


@pytest.mark.promise("events-order-nothing")
def test_programmatic_dependencies_that_events_cut_are_told():
    edges = contents(CHAIN, kinds={(0, 1): "programmatic", (1, 2): "programmatic", (2, 3): "programmatic"})
    assert borders([(0, 4)], edges).cut == []
    assert [edge[:2] for edge in borders([(0, 4), (2, 3)], edges).cut] == [(1, 2), (2, 3)]
    edges = contents(ALL_TO_ALL, kinds={(0, 2): "programmatic", (0, 3): "programmatic"})
    assert [edge[:2] for edge in borders([(2, 3)], edges).cut] == [(0, 2)]  # the event is before node 2


def test_graphs_that_can_not_be_copied():
    allocating = [GraphNode(0, "kernel"), GraphNode(1, "mem_alloc")]
    assert why_not_copied(allocating[:1]) == ""
    assert "allocates memory (node 1)" in why_not_copied(allocating)
    child = GraphNode(0, "graph", bodies=((allocating, []),))
    assert "allocates memory (node 1)" in why_not_copied([child])
    harmless = GraphNode(0, "graph", bodies=((allocating[:1], []), (allocating[:1], [])))
    assert why_not_copied([harmless]) == ""
    assert "allocates memory (node 1)" in why_not_copied([harmless, allocating[1]])
    assert "conditional" in why_not_copied([GraphNode(0, "conditional")])


# ---- on the cpu backend --------------------------------------------------------------------------------


@pytest.fixture
def stream():
    return ag.Stream(backend="cpu")


def test_labels_are_timed_with_those_inside_them_and_without(stream):
    runs = []
    with stream, ag.Graph(keep_graph=True) as graph:
        stream.launch(time.sleep, SECONDS)
        with ag.label("outer"):
            stream.launch(time.sleep, SECONDS)
            with ag.label("inner"):
                stream.launch(time.sleep, 2 * SECONDS)
        stream.launch(runs.append, 1)
    profile = graph.profile(5)
    outer, inner = profile.labels
    assert (outer.label.name, inner.label.name) == ("outer", "inner")
    assert inner.time == inner.own >= 2 * SECONDS * 1e6
    assert outer.time >= inner.time + SECONDS * 1e6
    assert outer.own == pytest.approx(outer.time - inner.time)
    assert outer.begin >= SECONDS * 1e6
    assert profile.unlabelled == pytest.approx(profile.with_events - outer.time)
    assert profile.unlabelled >= SECONDS * 1e6
    assert len(runs) == 2 * (5 + WARM_UP)


def test_the_first_runs_are_not_among_the_times(stream):
    slow = [SLOW] * 2 * WARM_UP  # the graph and its copy run in turns
    with stream, ag.Graph(keep_graph=True) as graph, ag.label("slow at first"):
        stream.launch(lambda: time.sleep(slow.pop() if slow else 0))
    profile = graph.profile(WARM_UP)
    assert slow == []
    assert profile.median < SLOW * 1e6
    assert profile.labels[0].time < SLOW * 1e6


def test_labels_on_two_branches_overlap_and_that_is_said(stream):
    side = ag.Stream(like=stream)
    both = threading.Barrier(2)
    with stream, ag.Graph(keep_graph=True) as graph:
        side.wait(stream)
        for name, each in (("here", stream), ("there", side)):
            with ag.label(name):
                each.launch(both.wait)
                each.launch(time.sleep, SECONDS)
                each.launch(both.wait)  # so that both last as long as both sleep, however late one of them is
        stream.wait(side)
    profile = graph.profile(1)
    ends = [each.begin + each.time for each in profile.labels]
    assert min(ends) - max(each.begin for each in profile.labels) > 0.9e6 * SECONDS
    assert any("parallel branches" in note and "here, there" in note for note in profile.notes)


def test_state_is_put_back_after_the_copy_has_run(stream):
    array = np.zeros(3)

    def increase():
        array[...] += 1

    with stream, ag.Graph(keep_graph=True) as graph, ag.label("increase"):
        stream.launch(increase)
    assert graph.profile(2, state=[array]).labels
    assert array.tolist() == [0] * 3
    graph.profile(2)
    assert array.tolist() == [2 * (2 + WARM_UP)] * 3


@pytest.mark.parametrize("run", range(2 + WARM_UP))
def test_times_of_some_runs_only_are_no_times(stream, monkeypatch, run):
    """The warm-up is not timed; without the time of one of the other runs, no label has any."""
    runs, spans = [], Sections.spans

    def one_is_lost(self):
        runs.append(1)
        return None if len(runs) == run + 1 else spans(self)

    monkeypatch.setattr(Sections, "spans", one_is_lost)
    with stream, ag.Graph(keep_graph=True) as graph, ag.label("part"):
        stream.launch(time.sleep, SECONDS)
    profile = graph.profile(2)
    assert len(runs) == 2 + WARM_UP
    assert len(profile.times) == 2
    assert bool(profile.labels) == (run < WARM_UP)
    why = "No times by label: the runtime does not report the times of events inside a graph."
    assert (why in profile.notes) == (run >= WARM_UP)


def test_a_failure_in_a_labelled_part_is_raised(stream):
    with stream, ag.Graph(keep_graph=True) as graph, ag.label("fails"):
        stream.launch(lambda: 1 / 0)
    with pytest.raises(ag.DriverError, match="ZeroDivisionError"):
        graph.profile(1)
    stream.synchronize()


def why(graph):
    profile = graph.profile(1)
    assert (profile.labels, profile.with_events, profile.unlabelled) == ((), None, None)
    (note,) = profile.notes
    return note


def test_it_says_why_there_are_no_times_by_label(stream, monkeypatch):
    def captured(keep=True):
        with stream, ag.Graph(keep_graph=keep) as graph, ag.label("work"):
            stream.launch(int)
        return graph

    assert "was not kept" in why(captured(keep=False))
    with stream, ag.Graph(keep_graph=True) as graph:
        stream.launch(int)
    assert "nothing in the graph is labelled" in why(graph)
    nodes = CpuBackend.nodes
    with monkeypatch.context() as patch:
        patch.setattr(CpuBackend, "nodes", lambda *args: ([GraphNode(0, "mem_alloc")], []))
        assert "allocates memory" in why(captured())
    with monkeypatch.context() as patch:
        patch.setattr(CpuBackend, "elapsed_time", wrong_in_graphs(CpuBackend.elapsed_time))
        assert "does not report the times of events inside a graph" in why(captured())
    with monkeypatch.context() as patch:
        patch.setattr(CpuBackend, "capabilities", lambda self, device: {"events", "timing", "nodes"})
        assert "backend 'cpu' can't record events inside a copy of a graph" in why(captured())
    assert CpuBackend.nodes is nodes


def wrong_in_graphs(elapsed_time):
    """Return an `elapsed_time` that knows no events of graphs."""

    def answer(self, start, end):
        return 1e9 if type(end.mark).__name__ == "Mark" else elapsed_time(self, start, end)

    return answer


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([1.0, 2.0], [1000, 2000]),
        ([2.0, 1.0], [2000, 1000]),
        ([1.0, None], None),
        ([None, 1.0], None),
        ([-0.15, 4.15], [-150, 4150]),  # as far outside as a twentieth of the run
        ([1.0, -0.25], None),
        ([4.25, 1.0], None),
        ([1.0, 4.25], None),
    ],
)
def test_times_outside_the_run_are_none(found, expected):
    asked = []

    def elapsed_time(start, end):
        asked.append(start)
        return found[end]

    events = [SimpleNamespace(backend=SimpleNamespace(elapsed_time=elapsed_time), value=i) for i in (0, 1)]
    end = SimpleNamespace()
    start = SimpleNamespace(
        _native=SimpleNamespace(value="start"), elapsed_time=lambda to: {id(end): 4.0}[id(to)]
    )
    assert profiling._times_within(events, start, end) == (expected and pytest.approx(expected))
    assert asked == ["start"] * 2


def test_a_part_lasts_from_its_first_event_to_its_last(monkeypatch):
    monkeypatch.setattr(profiling, "_times_within", lambda *_: [5.0, 1.0, 7.0, 9.0])
    sections = Sections.__new__(Sections)
    sections._events, sections._around = [], (None, None)
    sections._places = profiling.Borders([], [], [[0, 1], [0]], [[2, 3], [3, 2]], [])
    assert sections.spans() == [(1.0, 9.0), (5.0, 9.0)]


@pytest.mark.parametrize("kind", ["mem_alloc", "mem_free", "conditional"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_node_in_any_body_is_found(kind, place):
    bodies = [([GraphNode(5, "kernel")], []), ([GraphNode(5, "kernel")], [])]
    bodies[place][0].append(GraphNode(7, kind))
    nodes = [GraphNode(0, "kernel"), GraphNode(1, "graph", bodies=tuple(bodies)), GraphNode(2, "mem_free")]
    assert "(node 7)" in why_not_copied(nodes)
    assert why_not_copied(nodes).startswith(f"the graph {profiling._NOT_COPIED[kind]}")
