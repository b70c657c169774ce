"""The graphs that a graphed function keeps: which are dropped, when, and what goes with them."""

import gc
import threading
import weakref

import numpy as np
import pytest

import accelerator_graph as ag
from graphed.functions import LIMIT, doubled, launch, replays


def test_the_least_recently_used_goes(stream):
    double, runs = doubled(warmup=0, max_graphs=2)
    one, two, three = (np.ones(n) for n in (1, 2, 3))
    for x in (one, two, one):
        double(x)
    oldest = min(double._cache.graphs.values(), key=lambda recorded: recorded.used).graph
    double(three)
    assert oldest.state == "empty"
    assert replays(double, one)
    assert replays(double, three)
    assert len(runs) == 3
    y = double(two)
    stream.synchronize()
    assert y.tolist() == [2.0, 2.0]
    assert double.cache_info() == ag.CacheInfo(7, 0, 4, 2, 2, 2)


def test_one_graph_at_most(stream):
    double, _ = doubled(warmup=0, max_graphs=1)
    for n in (1, 2, 1):
        y = double(np.ones(n))
        stream.synchronize()
        assert y.tolist() == [2.0] * n
    assert double.cache_info().evictions == 2


def test_a_dropped_signature_warms_up_again(stream):
    double, runs = doubled(warmup=1, max_graphs=1)
    for n in (1, 1, 2, 2, 1):
        double(np.ones(n))
    assert double.cache_info().eager == 3
    assert len(runs) == 5


def test_clear(stream):
    double, _ = doubled(warmup=1)
    for _ in range(3):
        double(np.ones(2))
    (recorded,) = double._cache.graphs.values()
    double.cache_clear()
    assert recorded.graph.state == "empty"
    assert double.cache_info() == ag.CacheInfo(0, 0, 0, 0, 0, 16)
    for i in range(4):
        y = double(np.full(2, float(i)))
        stream.synchronize()
        assert y.tolist() == [2.0 * i] * 2
    assert double._replay(recorded, None, []) is None  # another thread may just have found it
    with pytest.raises(ag.GraphStateError, match="this thread is capturing"), ag.Graph():
        double.cache_clear()


def test_clear_waits_for_the_calls(stream):
    double, _ = doubled(warmup=0, outputs="static")
    double(np.ones(2))
    gate = threading.Event()
    stream.launch(gate.wait, LIMIT)
    y = double(np.full(2, 4.0))
    timer = threading.Timer(0.05, gate.set)
    timer.start()
    double.cache_clear()
    assert y.tolist() == [8.0, 8.0]
    timer.join(LIMIT)


def test_the_graphs_share_a_pool(stream):
    pool = ag.graph_pool_handle()
    for options in ({}, {"pool": pool}):
        double, _ = doubled(warmup=0, **options)
        for n in (1, 2):
            double(np.ones(n))
        used = {recorded.graph.pool() for recorded in double._cache.graphs.values()}
        assert len(used) == 1
        assert not options or used == {pool}
        captured = {recorded.graph.stream._native for recorded in double._cache.graphs.values()}
        assert len(captured) == 1  # a framework reuses memory on one stream only


def test_a_pool_is_not_used_again_once_it_has_ended(stream):
    double, _ = doubled(warmup=0, max_graphs=1)
    used = []
    for n in (1, 2):
        double(np.ones(n))
        used += [recorded.graph.pool() for recorded in double._cache.graphs.values()]
        double.cache_clear()
    assert len(set(used)) == 2


def test_a_function_that_goes_takes_its_graphs_along(stream):
    double, _ = doubled(warmup=0)
    double(np.ones(3))
    (recorded,) = double._cache.graphs.values()
    refs = weakref.ref(double), weakref.ref(recorded.graph), weakref.ref(recorded.inputs.arrays[0])
    del double, recorded
    stream.synchronize()
    gc.collect()
    stream.synchronize()
    assert [ref() for ref in refs] == [None] * 3


@pytest.mark.promise("failed-capture-keeps-nothing")
def test_a_capture_that_fails_drops_no_graph(stream):
    @ag.graphed(warmup=0, max_graphs=1)
    def f(x, bad):
        launch(int)
        if bad:
            stream.synchronize()
            ag.current_stream().synchronize()

    f(np.ones(1), False)
    with pytest.raises(ag.CaptureError):
        f(np.ones(1), True)
    assert f.cache_info() == ag.CacheInfo(1, 0, 1, 0, 1, 1)
    f(np.ones(1), False)
    assert f.cache_info().captures == 1


def test_an_argument_that_always_changes_is_warned_of_once(stream):
    @ag.graphed
    def f(x, i):
        launch(int)

    x = np.ones(1)
    for i in range(64):
        f(x, i)
    with pytest.warns(RuntimeWarning, match="f> was called with 65 signatures too seldom") as found:
        f(x, 64)
    assert found[0].filename == __file__
    for i in range(65, 400):
        f(x, i)
    assert len(f._cache._uncaptured) == 256
