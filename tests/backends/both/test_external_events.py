"""Events across the border of a capture, on CUDA and on HIP; on a GPU with ten thousand replays."""

import gc

import pytest

import accelerator_graph as ag
from accelerator_graph.testing import Work

ASYNCHRONOUS = {"cuda": 10_000, "hip": 200}
"""How many replays on a device; the software below the drivers makes ten a millisecond."""


def work_of(name: str) -> Work:
    if name == "cuda":
        from accelerator_graph.testing.works.cuda import CudaWork

        return CudaWork()
    from accelerator_graph.testing.works.hip import HipWork

    return HipWork()


@pytest.fixture
def streams(backend):
    with ag.Stream(backend=backend.name) as first, ag.Stream(backend=backend.name) as second:
        yield first, second


def test_the_nodes_are_listed(streams, block):
    first, second = streams
    with first, ag.Graph(keep_graph=True) as graph:
        first.fill(block.pointer, 1, 4)
        event = first.record(external=True)
        first.fill(block.pointer, 2, 4)
    assert [node.kind for node in graph.describe().nodes] == ["memset", "event_record", "memset"]
    with second, ag.Graph(keep_graph=True) as outer:
        second.wait(event)
        outer.add(graph)
    assert outer.describe().kinds() == {"memset": 2, "wait_event": 1, "graph": 1, "event_record": 1}


def test_in_the_capture_that_has_recorded_it_an_event_orders_the_nodes(streams, block):
    """Of a fork as well; the wait is no node."""
    first, second = streams
    with first, ag.Graph(keep_graph=True) as graph:
        first.fill(block.pointer, 1, 4)
        second.wait(first)
        event = first.record(external=True)
        first.wait(event)
        second.fill(block.pointer + 64, 2, 4)
        second.wait(event)
        second.fill(block.pointer, 3, 4)
        first.wait(second)
    described = graph.describe()
    assert [node.kind for node in described.nodes] == ["memset", "event_record", "memset", "memset"]
    assert {(edge.source, edge.target) for edge in described.edges} == {(0, 1), (0, 2), (1, 3), (2, 3)}
    graph.replay()
    first.synchronize()
    assert block.read()[:4] == b"\3" * 4


def test_an_event_lives_as_long_as_a_graph_that_has_it(backend, streams, block, monkeypatch):
    first, second = streams
    with first, ag.Graph(keep_graph=True) as graph:
        first.fill(block.pointer, 1, 4)
        event = first.record(external=True)
    destroyed = []
    monkeypatch.setattr(type(backend), "destroy_event", lambda self, event: destroyed.append(event))
    native = event._native.value
    with second, ag.Graph(keep_graph=True) as outer:
        second.wait(event)
        outer.add(graph)
    del event
    for each in (graph, outer):
        gc.collect()
        assert native not in destroyed
        each.reset()
    gc.collect()
    first.record()  # an ordinary call, which destroys what is due
    assert native in destroyed
    monkeypatch.undo()
    for each in destroyed:
        backend.destroy_event(each)


def test_an_external_event_can_be_timed_and_asked(streams, block):
    first, _ = streams
    start = first.record(external=True, timing=True)
    with first, ag.Graph() as graph:
        first.fill(block.pointer, 1, 4)
        end = first.record(external=True, timing=True)
    graph.replay()
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) >= 0


def test_what_is_not_an_external_event_is_refused(streams):
    first, _ = streams
    plain = first.record()
    for wrong in (plain, "yes", 1, None):
        with pytest.raises(TypeError, match="external must be True, False or an event"):
            first.record(external=wrong)
    with pytest.raises(TypeError, match="timing"):
        first.record(external=True, timing="yes")


def test_two_graphs_take_turns(backend, streams):
    """Each run multiplies what the other has added: any other order gives another number."""
    first, second = streams
    work = work_of(backend.name)
    cell = work.new()
    with first, ag.Graph() as producer:
        work.enqueue(first, cell, 1, 1)
        ready = first.record(external=True)
    with second, ag.Graph() as consumer:
        second.wait(ready)
        work.enqueue(second, cell, 3, 0)
        done = second.record(external=True)
    expected = 0
    for _ in range(ASYNCHRONOUS[backend.name]):
        producer.replay()
        consumer.replay()
        first.wait(done)
        expected = (expected + 1) * 3 % 2**32
    second.synchronize()
    assert work.read(cell) == expected
