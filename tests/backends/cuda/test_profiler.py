"""The times of single nodes, by records as CUPTI makes them."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

import accelerator_graph as ag
from accelerator_graph.backends._cuda import profiler
from accelerator_graph.backends._cuda.profiler import Record, matched
from accelerator_graph.backends.base import GraphNode

NODES = [
    GraphNode(0, "kernel", "a", (2, 1, 1)),
    GraphNode(1, "host"),
    GraphNode(2, "memset", nbytes=64),
    GraphNode(3, "kernel", "b", (4, 1, 1)),
    GraphNode(4, "memcpy", nbytes=8),
]
EPOCH = 1_700_000_000_000_000_000


def records(run=(5, 1), shift=0):
    """Return the records of a run, in another order than that of the nodes."""
    start = EPOCH + shift
    return [
        Record(run, 43, "kernel", "b", (4, 1, 1), None, start + 3000, start + 9000),
        Record(run, 40, "kernel", "a", (2, 1, 1), None, start, start + 2500),
        Record(run, 42, "memset", "", None, 64, start + 2500, start + 3000),
        Record(run, 44, "memcpy", "", None, 8, start + 9000, start + 9250),
    ]


def test_records_are_matched_with_nodes_run_by_run():
    other = Record((9, 3), 1, "kernel", "a", (2, 1, 1), None, 0, 1)
    outside = Record((0, 4), 0, "kernel", "a", (2, 1, 1), None, 0, 1)
    found = matched([other, *records(), outside, *records((5, 2), 77)], NODES, 2)
    assert found == [{0: (0.0, 2.5), 2: (2.5, 3.0), 3: (3.0, 9.0), 4: (9.0, 9.25)}] * 2


@pytest.mark.parametrize(
    "wrong",
    [
        records()[:-1],
        [*records(), records()[0]],
        [records()[0]._replace(grid=(1, 1, 1)), *records()[1:]],
        [records()[0]._replace(name="a"), *records()[1:]],
        [records()[0]._replace(node=39), *records()[1:]],
        [*records()[:2], records()[2]._replace(nbytes=65), records()[3]],
        [],
    ],
)
def test_records_that_are_not_those_of_the_nodes_are_refused(wrong):
    with pytest.raises(ag.UnsupportedError, match="could not be matched"):
        matched(wrong, NODES, 1)


def test_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(ag.UnsupportedError, match="pip install cupti-python"), profiler.recording():
        pass


class CuptiError(Exception):
    pass


@pytest.fixture
def cupti(monkeypatch):
    """A package that hands out the records in `made` when it is flushed."""
    package, module = ModuleType("cupti"), ModuleType("cupti.cupti")
    module.cuptiError = CuptiError
    module.ActivityKind = SimpleNamespace(MEMCPY=1, MEMSET=2, CONCURRENT_KERNEL=10)
    module.enabled, module.made, module.callbacks = [], [], []
    module.activity_register_callbacks = lambda *functions: module.callbacks.extend(functions)
    module.activity_enable = module.enabled.append
    module.activity_disable = module.enabled.remove
    module.activity_flush_all = lambda flag: module.callbacks[1](module.made)
    package.cupti = module
    monkeypatch.setitem(sys.modules, "cupti", package)
    monkeypatch.setitem(sys.modules, "cupti.cupti", module)
    return module


def test_records_are_read_and_nothing_stays_enabled(cupti):
    with profiler.recording() as found:
        assert sorted(cupti.enabled) == [1, 2, 10]
        assert cupti.callbacks[0]()[0] > 0
        kernel = {"name": "k", "grid_x": 3, "grid_y": 2, "grid_z": 1}
        common = {"graph_id": 5, "correlation_id": 6, "graph_node_id": 7, "start": 1, "end": 2}
        cupti.made += [
            SimpleNamespace(kind=10, **common, **kernel),
            SimpleNamespace(kind=2, **common, bytes=64),
            SimpleNamespace(kind=99),
        ]
    assert found == [
        Record((5, 6), 7, "kernel", "k", (3, 2, 1), None, 1, 2),
        Record((5, 6), 7, "memset", "", None, 64, 1, 2),
    ]
    assert cupti.enabled == []


@pytest.mark.parametrize("call", ["activity_register_callbacks", "activity_enable", "activity_flush_all"])
def test_a_failure_of_the_library_is_told(cupti, monkeypatch, call):
    def fail(*args):
        raise CuptiError("not now")

    monkeypatch.setattr(cupti, call, fail)
    with pytest.raises(ag.UnsupportedError, match="not now"), profiler.recording():
        pass
    assert cupti.enabled == []


@pytest.mark.needs("cuda")
def test_a_profile_has_the_times_of_its_nodes(cupti):
    from backends.cuda.bench import Block

    stream, block = ag.Stream(backend="cuda"), Block()
    with stream, ag.Graph(keep_graph=True) as graph:
        stream.fill(block, 1)
        stream.fill(block.pointer, 2, 8)
    sizes = [node.nbytes for node in graph.describe().nodes]
    for run in range(3):
        for number, nbytes in enumerate(sizes):
            fields = {"graph_id": 1, "correlation_id": run, "graph_node_id": 8 + number, "bytes": nbytes}
            cupti.made.append(SimpleNamespace(kind=2, **fields, start=1000 * number, end=1000 * number + 500))
    profile = graph.profile(3, kernels=True)
    assert [(each.node.id, each.begin, each.time) for each in profile.kernels] == [(0, 0, 0.5), (1, 1, 0.5)]
    cupti.made.pop()
    with pytest.raises(ag.UnsupportedError, match="could not be matched"):
        graph.profile(3, kernels=True)
    block.free()


def test_a_graph_that_was_not_kept_is_refused():
    with ag.Stream(backend="cpu") as stream, ag.Graph() as graph:
        stream.launch(int)
    with pytest.raises(ag.GraphStateError, match=r"profile\(\).*not kept"):
        graph.profile(kernels=True)


def test_a_backend_without_a_profiler_is_refused_and_nothing_runs():
    runs = []
    with ag.Stream(backend="cpu") as stream, ag.Graph(keep_graph=True) as graph:
        stream.launch(runs.append, 1)
    with pytest.raises(ag.UnsupportedError, match="backend 'cpu' has no profiler"):
        graph.profile(kernels=True)
    assert runs == []
