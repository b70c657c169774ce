"""`Graph(timing=True)`, on the cpu backend: what the events of a capture tell, and what they keep apart."""

import gc
import threading
import time

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._core.profiling import WARM_UP
from accelerator_graph.backends.base import GraphNode
from accelerator_graph.backends.cpu import CpuBackend
from threads import in_thread

SECONDS = 0.003
LEAST = SECONDS * 1e6
OWN = "The events at the borders of labels are a part of the graph, and of the time of every replay."


@pytest.fixture
def stream():
    return ag.Stream(backend="cpu")


@pytest.fixture
def planted():
    """Register a class as a backend, and return a stream of it."""

    def register(kind):
        ag.backends.register("planted", kind)
        return ag.Stream(backend="planted")

    yield register
    ag.backends.unregister("planted")


def timed(**how):
    return ag.Graph(keep_graph=True, timing=True, **how)


def test_labels_are_timed_in_the_replays_themselves(stream):
    runs = []
    with stream, timed() as graph:
        stream.launch(time.sleep, SECONDS)
        with ag.label("outer"):
            stream.launch(time.sleep, SECONDS)
            with ag.label("inner"):
                stream.launch(time.sleep, 2 * SECONDS)
        stream.launch(runs.append, 1)
    profile = graph.profile(5)
    assert len(runs) == 5 + WARM_UP
    outer, inner = profile.labels
    assert (outer.label.name, inner.label.name) == ("outer", "inner")
    assert inner.time == inner.own >= 2 * LEAST
    assert outer.own >= LEAST
    assert outer.begin >= LEAST
    assert outer.time + outer.begin <= profile.with_events <= profile.most
    assert profile.replays == 5
    assert profile.notes == (OWN,)


def test_a_graph_that_can_not_be_copied_has_times_by_label(stream, monkeypatch):
    nodes = CpuBackend.nodes

    def allocating(self, graph):
        listed, edges = nodes(self, graph)
        return [GraphNode(node.id, "mem_alloc") if node.id == 0 else node for node in listed], edges

    monkeypatch.setattr(CpuBackend, "nodes", allocating)
    for how in ({}, {"timing": True}):
        with stream, ag.Graph(keep_graph=True, **how) as graph, ag.label("work"):
            stream.launch(time.sleep, SECONDS)
        profile = graph.profile(1)
        if how:
            assert profile.labels[0].time >= LEAST
        else:
            (note,) = profile.notes
            assert "allocates memory (node 0)" in note
            assert note.endswith("; capture it with timing=True.")


def test_work_that_is_not_joined_inside_a_label_is_named(stream):
    side, left, waits = ag.Stream(like=stream), threading.Event(), []
    with stream, timed() as graph:
        side.wait(stream)
        with ag.label("side"):
            side.launch(lambda: waits.append(left.wait(120)))
        stream.launch(left.set)
        stream.wait(side)
        stream.launch(left.clear)
        with ag.label("forked and joined"):
            side.wait(stream)
            side.launch(time.sleep, SECONDS)
            stream.launch(int)
            stream.wait(side)
            stream.launch(int)
    profile = graph.profile(1)
    assert waits == [True] * (1 + WARM_UP)  # the label was left before the work of the side was done
    assert profile.labels[1].time >= LEAST
    assert profile.notes[-1] == (
        "Work on streams that are not joined inside the label is not in the time of: side."
    )
    assert OWN in profile.notes


def test_state_is_put_back(stream):
    array = np.zeros(3)

    def increase():
        array[...] += 1

    with stream, timed() as graph, ag.label("increase"):
        stream.launch(increase)
    assert graph.profile(2, state=[array]).labels
    assert array.tolist() == [0] * 3


def test_a_label_that_was_not_left_ends_with_the_graph(stream):
    entered = ag.label("open")
    graph = timed()
    with stream:
        graph.capture_begin()
        entered.__enter__()
        stream.launch(time.sleep, SECONDS)
        graph.capture_end()
    (found,) = graph.profile(1).labels
    assert found.time >= LEAST


def test_labels_without_a_node_are_left_out(stream):
    with stream, timed() as graph:
        with pytest.warns(ag.EmptyLabelWarning, match="empty"), ag.label("empty"):
            pass
        with ag.label("work"):
            stream.launch(time.sleep, SECONDS)
    (found,) = graph.profile(1).labels
    assert found.label.name == "work"
    assert found.time >= LEAST


def test_progress_and_timing_together(stream):
    with stream, timed(progress=True) as graph, ag.label("work"):
        stream.launch(time.sleep, SECONDS)
    profile = graph.profile(1)
    assert profile.labels[0].time >= LEAST
    assert profile.notes == (OWN,)
    assert str(graph._progress.place()) == "the last run has ended"


def test_it_says_why_there_are_no_times(stream):
    with stream, ag.Graph(timing=True) as graph, ag.label("work"):
        stream.launch(int)
    assert "was not kept" in str(graph.profile(1))
    with stream, timed() as graph:
        stream.launch(int)
    assert "nothing in the graph is labelled" in str(graph.profile(1))


@pytest.mark.parametrize("keep", [True, False])
def test_it_is_no_part_of_another_graph(stream, keep):
    other, runs = ag.Stream(backend="cpu"), []
    with stream, ag.Graph(keep_graph=keep, timing=True) as graph, ag.label("work"):
        stream.launch(runs.append, 1)
    graph.replay()  # C has launched it once
    bound = graph.bind()
    with stream, ag.Graph() as outer:
        for replay in (graph.replay, bound, lambda: graph.replay(stream), graph.bind()):
            with pytest.raises(ag.CaptureError, match="made with timing=True can't be replayed in another"):
                replay()
        graph.replay(other)
        stream.launch(runs.append, 2)
    outer.replay()
    stream.synchronize()
    other.synchronize()
    assert outer.num_nodes == 1
    assert sorted(runs) == [1, 1, 2]
    if keep:
        graph.instantiate()
        with stream, ag.Graph():
            stream.launch(int)
            with pytest.raises(ag.CaptureError, match="timing=True"):
                bound()


def test_watched_arrays_are_still_checked(stream):
    array = np.zeros(2)
    with stream, timed() as graph, ag.label("work"):
        stream.launch(int)
    graph.watch(array)
    graph.replay()
    del array
    with pytest.raises(ag.GraphStateError, match="gone"):
        graph.replay()
    stream.synchronize()


class Counts(CpuBackend):
    destroyed = 0

    def destroy_event(self, event):
        type(self).destroyed += 1


def test_the_events_live_as_long_as_what_records_them(planted):
    Counts.destroyed = 0
    stream = planted(Counts)
    with stream, ag.Graph(timing=True) as graph, ag.label("work"):
        stream.launch(int)
    bound = graph.bind()
    gc.collect()
    ag.Stream(backend="planted")  # which destroys what is due
    assert Counts.destroyed == 0
    bound()
    stream.synchronize()
    graph.reset()
    del bound
    gc.collect()
    ag.Stream(backend="planted")
    assert Counts.destroyed == 4


def test_a_capture_that_fails_leaves_no_events(planted):
    Counts.destroyed = 0
    stream = planted(Counts)
    with pytest.raises(ZeroDivisionError), stream, timed(), ag.label("work"):
        stream.launch(int, 1 / 0)
    gc.collect()
    ag.Stream(backend="planted")
    assert Counts.destroyed == 3


def test_an_event_that_can_not_be_recorded_is_said(stream, monkeypatch):
    calls, record = [], CpuBackend.record_timed_event

    def fails_once(self, on):
        calls.append(1)
        if len(calls) == 3:
            raise ag.DriverError("there are no more events.", backend="cpu", call="", reason="other")
        return record(self, on)

    monkeypatch.setattr(CpuBackend, "record_timed_event", fails_once)
    with stream, timed() as graph, ag.label("work"):
        stream.launch(int)
    (note,) = graph.profile(1).notes
    assert note == "No times by label: an event could not be recorded (there are no more events.)."


def test_labels_on_other_threads_are_not_timed(stream):
    with stream, timed() as graph:
        in_thread(ag.label("there").__enter__)
        with ag.label("here"):
            stream.launch(int)
    assert [each.label.name for each in graph.profile(1).labels] == ["here"]


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("captured_events", "backend 'planted' does not have the capability 'captured_events'"),
        ("recorded", "timing=True: backend 'planted' can't count the nodes of a capture"),
    ],
)
def test_a_backend_that_can_not_do_it_is_refused(planted, lost, message):
    class Less(CpuBackend):
        def capabilities(self, device):
            return super().capabilities(device) - {lost}

        def recorded(self, token):
            return None if lost == "recorded" else super().recorded(token)

    stream, graph = planted(Less), ag.Graph(timing=True)
    with pytest.raises(ag.UnsupportedError, match=message) as refused, stream, graph:
        pass
    assert refused.value.capability == "captured_events"
    assert graph.state == "empty"
    with stream, ag.Graph():
        stream.launch(int)


def test_it_has_to_be_true_or_false():
    with pytest.raises(TypeError, match="timing must be True or False, not 1"):
        ag.Graph(timing=1)
