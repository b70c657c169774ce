"""Replays that are recorded in another capture: child graphs of CUDA and of HIP."""

import gc
import weakref

import pytest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability


class Thing:
    """Can be referenced weakly."""


@pytest.fixture
def main(backend):
    with ag.Stream(backend=backend.name) as stream:
        yield stream


@pytest.fixture
def inner(main, block):
    graph = ag.Graph(keep_graph=True)
    with graph:
        main.fill(block.pointer, 3, 16)
        main.copy(block.pointer + 16, block.pointer, 16)
    return graph


def parent_of(main, *inside, before=lambda: None, **how):
    graph = ag.Graph(keep_graph=True, **how)
    with graph:
        before()
        for each in inside:
            graph.add(each)
    return graph


def allocate_and_free(bench, stream, nbytes=64):
    """Have the driver allocate memory for the graph that captures the stream, and free it."""
    if bench.__name__ == "backends.hip.bench":
        bench.call("hipFreeAsync", bench.made("hipMallocAsync", nbytes, stream.handle), stream.handle)
    else:
        from cuda.bindings import driver

        memory = bench.call(driver.cuMemAllocAsync, nbytes, stream.native)
        bench.call(driver.cuMemFreeAsync, memory, stream.native)


def test_what_a_recorded_run_needs_lives_as_long_as_the_parent(main, inner):
    during, later = Thing(), Thing()
    kept = [weakref.ref(each) for each in (during, later)]
    inner.retain(during)
    parent = parent_of(main, inner)
    inner.retain(later)  # too late to be the recorded run's
    clone = parent.clone()
    del during, later
    inner.reset()
    gc.collect()
    assert [each() is not None for each in kept] == [True, False]
    parent.reset()
    gc.collect()
    assert kept[0]() is not None
    clone.reset()
    gc.collect()
    assert kept[0]() is None


def test_a_capture_that_fails_keeps_nothing(main, inner):
    kept = weakref.ref(inner.retain(Thing()))

    def replay_and_fail():
        inner.replay()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), ag.Graph():
        replay_and_fail()
    inner.reset()
    gc.collect()
    assert kept() is None


def test_what_is_told_of_a_graph_sees_through(main, inner, block):
    with main, ag.Graph(keep_graph=True) as graph:
        main.fill(block.pointer, 9, 16)
        with ag.label("inside"):
            inner.replay()
        main.fill(block.pointer + 64, 5, 8)
    described = graph.describe()
    assert [node.kind for node in described.nodes] == ["memset", "graph", "memset"]
    ((nodes, edges),) = described.nodes[1].bodies
    assert [node.kind for node in nodes] == ["memset", "memcpy"]
    assert [(edge.source, edge.target) for edge in edges] == [(0, 1)]
    assert described.kinds() == {"memset": 3, "graph": 1, "memcpy": 1}
    assert [(label.name, label.start, label.stop) for label in described.labels] == [("inside", 1, 2)]
    assert graph.num_nodes == 3
    with inner.recapture():
        main.fill(block.pointer, 4, 12)
        main.copy(block.pointer + 16, block.pointer, 16)
    with main, ag.Graph(keep_graph=True) as other:
        main.fill(block.pointer, 9, 16)
        inner.replay()
        main.fill(block.pointer + 64, 5, 8)
    said = ag.diff(described, other.describe())
    assert any("inside node 1" in each and "fills with 4 instead of 3" in each for each in said), said
    assert graph.fingerprint() != other.fingerprint()
    assert graph.fingerprint().differences(other.fingerprint())
    graph.instantiate()
    assert graph.memory().nodes == 3
    profile = graph.profile(replays=2)
    assert profile.replays == 2


def test_stacks_and_diagnosis_know_the_line_that_recorded_a_run(main, inner, block):
    graph = ag.Graph(keep_graph=True, observe=ag.stacks())
    with ag.diagnose(), graph:
        main.fill(block.pointer, 9, 16)
        graph.add(inner)
    lines = [node.stack[0].line for node in graph.describe().nodes]
    assert lines[1] == lines[0] + 1
    broken = ag.Graph()
    with pytest.raises(ag.CaptureError, match=r"test_child_graphs\.py:\d+ in end_too_early"), ag.diagnose():
        end_too_early(main, inner, broken)


def end_too_early(main, inner, broken):
    with broken:
        inner.replay()
        main.synchronize()


def test_a_parent_gets_the_work_of_another_one(main, inner, block):
    """In place or not: the runs inside are those of the other parent."""
    parent = parent_of(main, inner)
    parent.replay()
    with inner.recapture():
        main.fill(block.pointer, 7, 16)
        main.copy(block.pointer + 16, block.pointer, 16)
    other = parent_of(main, inner)
    parent.update(other)
    inner.reset()
    other.reset()
    parent.replay()
    main.synchronize()
    assert block.read()[:32] == b"\7" * 32


def test_a_kept_graph_is_needed(main, block):
    graph, outer = ag.Graph(), ag.Graph()
    with graph:
        main.fill(block.pointer, 1, 16)
    with outer:
        main.fill(block.pointer, 2, 16)
        with pytest.raises(ag.CaptureError, match=r"was not kept; capture it with Graph\(keep_graph=True\)"):
            graph.replay()
        with pytest.raises(ag.CaptureError, match="was not kept"):
            outer.add(graph)
    assert outer.num_nodes == 1


def test_changes_of_nodes_are_not_forgotten(backend, main, inner):
    """They are the executable's, and the graph that would be recorded has none."""
    inner.instantiate()
    if Capability.SET_NODE not in backend.capabilities(0):
        return
    inner.set_node(0, value=5)
    with ag.Graph() as outer:
        main.fill(inner.describe().nodes[0].target, 1, 1)
        with pytest.raises(ag.CaptureError, match=r"set_node\(\) has changed nodes"):
            inner.replay()
    inner.instantiate()
    assert parent_of(main, inner).num_nodes == outer.num_nodes


def test_nodes_inside_are_changed_in_the_parent(backend, main, inner, block):
    """On HIP in none, as no node is."""
    parent, twin = parent_of(main, inner), parent_of(main, inner)
    outer = parent_of(main, parent, inner, before=lambda: main.fill(block.pointer, 1, 48))
    outer.instantiate()
    if backend.name == "hip":
        with pytest.raises(ag.UnsupportedError, match="can't change nodes of an executable"):
            outer.set_node((1, 0, 0), value=5)
        return
    copy = {"source": block.pointer + 32, "target": block.pointer + 16}
    outer.set_nodes({(1, 0, 0): {"value": 5}, (2, 0): {"value": 6}, (2, 1): copy})
    for graph, expected in (
        (outer, b"\6" * 16 + b"\1" * 16),
        (twin, b"\3" * 32),
        (outer, b"\6" * 16 + b"\1" * 16),
    ):
        graph.replay()
        main.synchronize()
        assert block.read()[:32] == expected
    first, second = (node.bodies[0][0] for node in outer.describe().nodes[1:])
    assert [node.value for node in (first[0].bodies[0][0][0], second[0])] == [5, 6]
    outer.set_node((2, 1), enabled=False)
    outer.replay()
    main.synchronize()
    assert block.read()[:32] == b"\6" * 16 + b"\5" * 16
    found = outer.check()
    assert not found.wrong, found


def test_memory_of_a_graphs_own_is_not_taken_inside(bench, backend, main):
    graph = ag.Graph(keep_graph=True)
    with graph:
        allocate_and_free(bench, main)
    with ag.Graph() as outer:
        before = backend.capture_info(main.native).nodes
        with pytest.raises((ag.CaptureError, ag.UnsupportedError), match="allocates or frees memory"):
            graph.replay()
        assert backend.capture_info(main.native).nodes == before
        allocate_and_free(bench, main)
    assert outer.num_nodes > 0


@pytest.mark.parametrize("what", ["add", "record", "wait"])
def test_in_a_broken_capture_the_error_says_so(main, inner, what):
    event, broken = main.record(external=True), ag.Graph()

    def go_on_after_an_error():
        with pytest.raises(ag.DriverError):
            main.synchronize()
        {
            "add": lambda: broken.add(inner),
            "record": lambda: main.record(external=event),
            "wait": lambda: main.wait(event),
        }[what]()

    with pytest.raises(ag.CaptureError, match="an earlier call broke the capture") as raised, broken:
        go_on_after_an_error()
    assert raised.value.reason == "invalidated"
    assert "returned :" not in str(raised.value)


def test_a_capture_of_somebody_else_refuses_it(backend, main, inner):
    """Nobody would keep what the run needs."""
    token = backend.capture_begin(main.native, "thread_local")
    try:
        expected = ag.CaptureError if backend.name == "hip" else (ag.CaptureError, ag.DriverError)
        with pytest.raises(expected):
            inner.replay(main)
    finally:
        backend.capture_abandon(token)


def test_liveness_of_what_is_inside_is_checked(main, block):
    graph, array = ag.Graph(keep_graph=True), Thing()
    with graph:
        main.fill(block.pointer, 3, 16)
    graph.watch(array)
    parent = parent_of(main, graph)
    graph.reset()
    parent.replay()
    del array
    gc.collect()
    with pytest.raises(ag.GraphStateError):
        parent.replay()


def test_a_graph_in_a_graph_in_a_graph(main, inner, block):
    middle = parent_of(main, inner, inner, before=lambda: main.fill(block.pointer, 1, 32))
    outer = parent_of(main, middle, before=lambda: main.fill(block.pointer, 2, 32))
    for each in (inner, middle):
        each.reset()
    bound = outer.bind()
    for _ in range(2):
        bound()
    main.synchronize()
    assert block.read()[:32] == b"\3" * 32
    (((nodes, _),),) = (outer.describe().nodes[1].bodies,)
    assert [node.kind for node in nodes] == ["memset", "graph", "graph"]
