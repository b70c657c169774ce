"""`Graph.memory`, `memory_report` and `measure_memory` on the cpu backend."""

import gc
import json
import weakref
from types import SimpleNamespace

import pytest

import accelerator_graph as ag
from accelerator_graph._core import memory as core
from accelerator_graph.backends.base import DeviceMemory
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.errors import DriverError
from accelerator_graph.interop.base import PoolContents, PoolSegment
from threads import in_thread


@pytest.fixture
def stream():
    return ag.Stream(backend="cpu")


@pytest.fixture(name="free")
def free_fixture(monkeypatch):
    """What the driver tells, one number for each call."""
    answers = []

    def device_memory(self, obj):
        answer = answers.pop(0)
        if answer is None:
            raise DriverError("no")
        return DeviceMemory(answer, 1000)

    monkeypatch.setattr(CpuBackend, "device_memory", device_memory)
    return answers


@pytest.mark.parametrize(("told", "used"), [((3, 4), 7), ((3, None), None), ((None, None), None)])
def test_what_is_used_of_two_pools_is_known_if_it_is_of_each(stream, monkeypatch, told, used):
    answers = [PoolContents((PoolSegment(64, 8),), each) for each in told]
    monkeypatch.setattr(core.interop, "pool_contents", lambda *_: answers.pop())
    lease = SimpleNamespace(ids={(0, 1), (0, 2)})
    assert core.pool_contents(stream, [lease]) == ((PoolSegment(64, 8),), used)


def captured(stream, nodes=1, **how):
    graph = ag.Graph(**how)
    with stream, graph:
        for _ in range(nodes):
            stream.launch(int)
    return graph


def test_an_executable_is_measured_when_it_is_made(stream, free):
    free += [900, 700, 700]
    with ag.measure_memory():
        graph = captured(stream)
    memory = graph.memory()
    assert memory.executable.nbytes == 200
    assert "free memory fell" in memory.executable.note
    assert memory.nodes == 1
    assert memory.definition == (0, "the graph was not kept")
    assert memory.nbytes == 200 + memory.executable_host.nbytes


@pytest.mark.promise("unknown-amount-is-none")
@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([700, 900], "another thread or program freed memory while this was measured"),
        ([None, 900], "backend 'cpu' does not report how much memory is free"),
        ([900, None], "backend 'cpu' does not report how much memory is free"),
    ],
)
def test_what_can_not_be_measured_is_none_and_says_why(stream, free, answers, why):
    free += answers
    with ag.measure_memory():
        graph = captured(stream)
    assert graph.memory().executable == (None, why)
    graph.replay()


@pytest.mark.promise("measured-in-a-block")
def test_nothing_is_measured_outside_a_block_or_on_another_thread(stream, free):
    outside = captured(stream)
    with ag.measure_memory():
        elsewhere = in_thread(lambda: captured(ag.Stream(backend="cpu")))
    for graph in (outside, elsewhere):
        assert graph.memory().executable.nbytes is None
        assert "inside `with accelerator_graph.measure_memory()`" in graph.memory().executable.note


def test_a_block_inside_a_block_ends_nothing(stream, free):
    free += [900, 800]
    with ag.measure_memory():
        with pytest.raises(ZeroDivisionError), ag.measure_memory():
            raise ZeroDivisionError
        graph = captured(stream)
    assert graph.memory().executable.nbytes == 100


def test_a_kept_graph_can_be_measured_later(stream, free):
    graph = captured(stream, keep_graph=True)
    assert graph.memory().executable == (None, "there is no executable yet")
    assert graph.memory().definition.note == "as backend 'cpu' reports it"
    assert captured(stream, 9, keep_graph=True).memory().definition.nbytes > graph.memory().definition.nbytes
    graph.instantiate()
    free += [900, 850]
    with ag.measure_memory():
        graph.instantiate()
    assert graph.memory().executable.nbytes == 50
    graph.instantiate()
    assert graph.memory().executable.nbytes is None


@pytest.mark.parametrize(
    ("addresses", "touched"),
    [
        ([], set()),
        ([99], set()),
        ([100], {100}),
        ([149], {100}),
        ([150], set()),  # one past the first segment
        ([199, 200], {200}),
        ([209], {200}),
        ([210, 1 << 60], set()),
        ([101, 102, 205], {100, 200}),
    ],
)
def test_a_segment_is_touched_by_an_address_in_it(addresses, touched):
    segments = [PoolSegment(100, 50), PoolSegment(200, 10)]
    assert core._around(segments, addresses) == touched


def test_a_graph_without_a_capture_has_no_memory(stream):
    graph = ag.Graph()
    with pytest.raises(ag.GraphStateError, match=r"^Graph\.memory\(\): nothing was captured"):
        graph.memory()
    assert ag.memory_report([graph]).graphs == ()


def test_the_report_is_of_all_live_graphs_biggest_first(stream, free, monkeypatch):
    monkeypatch.setattr(CpuBackend, "host_bytes", lambda *_: None)
    monkeypatch.setattr(core, "heap_bytes", lambda: None)
    free += [42]
    before = captured(stream)
    free[:] = [900, 700, 700, 300, 300, 299]
    with ag.measure_memory():
        graphs = {f"size {nodes}": captured(stream, nodes, pool=None) for nodes in (1, 2, 3)}
    free[:] = [42] * 2
    report = ag.memory_report()  # of other tests' graphs as well
    sizes = [each.nbytes for each in report.graphs]
    assert sizes == sorted(sizes, reverse=True)
    assert {400, 200, 1, None} <= {each.executable.nbytes for each in report.graphs}
    assert before.memory().nodes == 1
    report = ag.memory_report(graphs)
    assert [each.name for each in report.graphs] == ["size 2", "size 1", "size 3"]
    assert [each.executable.nbytes for each in report.graphs] == [400, 200, 1]
    assert report.on_devices == 601
    assert report.devices == (("cpu", 0, DeviceMemory(42, 1000)),)


def test_pools_that_are_shared_are_counted_once(stream):
    pool = ag.graph_pool_handle()
    graphs = [captured(stream, pool=pool) for _ in range(3)]
    report = ag.memory_report([*graphs, captured(stream)])
    assert [each.graphs for each in sorted(report.pools, key=lambda each: each.id)] == [3, 1]
    assert graphs[0].memory().pool.graphs == 3
    graphs.pop().reset()
    assert graphs[0].memory().pool.graphs == 2


@pytest.mark.promise("reports-are-data")
def test_a_report_goes_to_json_and_back(stream, free):
    free += [900, 700, 42]
    with ag.measure_memory():
        graph = captured(stream)
    report = ag.memory_report({"a": graph})
    assert ag.MemoryReport.from_json(report.to_json(indent=1)) == report
    assert ag.GraphMemory.from_json(graph.memory().to_json()) == graph.memory()
    data = json.loads(report.to_json())
    assert data["graphs"][0]["executable"]["nbytes"] == 200
    assert ag.MemoryReport.from_json(json.dumps(data | {"more": 1})) == report


@pytest.mark.promise("reports-are-data")
def test_a_report_keeps_no_graph(stream):
    graph = captured(stream, keep_graph=True)
    of_one, of_all, gone = graph.memory(), ag.memory_report(), weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None
    assert of_one in of_all.graphs


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "not a report about memory"),
        ('{"schema": 2}', "has schema 2, and this accelerator_graph reads up to 1"),
        ('{"schema": 1}', "damaged"),
        ('{"schema": 1, "graphs": [{}], "devices": []}', "damaged"),
    ],
)
def test_other_texts_are_refused(text, why):
    with pytest.raises(ValueError, match=why):
        ag.MemoryReport.from_json(text)


def test_only_graphs_have_memory():
    with pytest.raises(
        TypeError, match=r"^memory_report: each graph must be an accelerator_graph.Graph, not 7"
    ):
        ag.memory_report([7])
    graph = ag.Graph()
    with pytest.raises(
        TypeError, match=r"^memory_report: the argument must be an iterable of graphs, not <acc"
    ):
        ag.memory_report(graph)


def test_a_graph_that_is_given_twice_counts_once(stream):
    graph = captured(stream)
    once = ag.memory_report([graph])
    assert ag.memory_report([graph, graph]) == once
    assert [each.name for each in ag.memory_report({"a": graph, "b": graph}).graphs] == ["a"]


LOW, HIGH = PoolSegment(64, 8), PoolSegment(256, 16)


@pytest.mark.parametrize(
    ("of_id", "of_shown", "expected"),
    [
        (PoolContents((HIGH,), 3), PoolContents((LOW,), 4), ((LOW, HIGH), 7)),
        (PoolContents((LOW,), 3), PoolContents((HIGH,), 4), ((LOW, HIGH), 7)),
        (PoolContents((LOW,), 4), PoolContents((LOW,), 4), ((LOW,), 8)),
        (PoolContents((LOW, HIGH), 3), PoolContents((), 0), ((LOW, HIGH), 3)),
        (None, PoolContents((LOW,), 4), None),
        (PoolContents((LOW,), 3), None, None),
    ],
)
def test_a_graph_with_two_pools_has_what_is_in_both(stream, monkeypatch, of_id, of_shown, expected):
    told, asked = {(0, 1): of_id, (0, 2): of_shown}, []

    def pool_contents(frameworks, pool, device):
        asked.append((frameworks, device))
        return told[pool]

    monkeypatch.setattr(core.interop, "pool_contents", pool_contents)
    monkeypatch.setattr(core.stream_stack, "taking_part", lambda backend: [backend])
    home = SimpleNamespace(_backend=stream._backend, device=7)
    assert core.pool_contents(home, [SimpleNamespace(ids={(0, 1), (0, 2)})]) == expected
    assert asked == [([stream._backend], 7)] * 2


@pytest.mark.parametrize(
    ("heap", "host"),
    [
        ((100, 130), (30, "")),
        ((100, 100), (0, "")),
        ((130, 100), (None, "another thread or program freed memory while this was measured")),
        ((None, 100), (None, "the C library does not report how much memory is in use")),
        ((100, None), (None, "the C library does not report how much memory is in use")),
    ],
)
def test_the_heap_grows_by_what_the_host_has_taken(stream, free, monkeypatch, heap, host):
    answers = [*heap]
    monkeypatch.setattr(core, "heap_bytes", lambda: answers.pop(0))
    free += [900, 900]
    graph = captured(stream, keep_graph=True)
    answers[:] = heap
    with ag.measure_memory():
        graph.instantiate()
    measured = graph._runner.measured
    assert measured.device == (0, "")
    assert measured.host == host


@pytest.mark.parametrize(
    ("segments", "parameters", "touched"),
    [
        ((), DriverError("no"), set()),
        ((LOW, HIGH), DriverError("no"), None),
        ((LOW, HIGH), "addresses", {256}),
    ],
)
def test_what_is_touched_is_not_known_without_the_parameters(monkeypatch, segments, parameters, touched):
    def told(value):
        assert value == "graph"
        if isinstance(parameters, Exception):
            raise parameters
        return parameters

    monkeypatch.setattr(core, "addresses_in", lambda given: [72, 271] if given == "addresses" else [64])
    graph = SimpleNamespace(native="graph", backend=SimpleNamespace(parameters=told))
    assert core.touched_segments(segments, graph) == touched
