"""Calls of one graphed function on several streams, from several threads, and after a fork."""

import functools
import os
import threading

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._graphed.recorded_call import RecordedCall
from graphed.functions import LIMIT, doubled, launch
from processes import python
from threads import in_threads


@pytest.mark.promise("calls-wait-for-each-other")
def test_a_call_on_another_stream_waits_for_the_one_before():
    gate, through = threading.Event(), []
    double, _ = doubled(warmup=0, outputs="static")
    one, two = ag.Stream(backend="cpu"), ag.Stream(backend="cpu")
    with one:
        double(np.ones(2))
        one.launch(gate.wait, LIMIT)
        double(np.full(2, 5.0))
        one.launch(lambda: through.append("one"))
    with two:
        y = double(np.full(2, 7.0))
        two.launch(lambda: through.append("two"))
    assert not two.query()
    gate.set()
    two.synchronize()
    one.synchronize()
    assert y.tolist() == [14.0, 14.0]
    assert through == ["one", "two"]


def test_a_call_after_one_on_a_stream_that_is_being_captured_now():
    double, _ = doubled(warmup=0)
    one, two = ag.Stream(backend="cpu"), ag.Stream(backend="cpu")
    with one:
        double(np.ones(2))
    one.synchronize()
    begun, called, results, graph = threading.Event(), threading.Event(), [], ag.Graph(stream=one)

    def capture():
        with graph:
            one.launch(results.append, "replayed")
            begun.set()
            assert called.wait(LIMIT)

    def call():
        assert begun.wait(LIMIT)
        try:
            with two:
                y = double(np.full(2, 7.0))
                two.synchronize()
            results.append(y.tolist())
        finally:
            called.set()

    in_threads(capture, call)
    assert results == [[14.0, 14.0]]
    assert graph.num_nodes == 1


@pytest.mark.promise("stream-of-a-call-may-go")
def test_a_stream_that_was_closed_meanwhile():
    double, _ = doubled(warmup=0)
    for i in range(20):
        stream = ag.Stream(backend="cpu")
        with stream:
            y = double(np.full(2, float(i)))
            stream.synchronize()
            assert y.tolist() == [2.0 * i] * 2
        stream.close()


@pytest.mark.promise("calls-one-at-a-time")
def test_one_call_at_a_time(monkeypatch):
    double, _ = doubled(warmup=0)
    with ag.Stream(backend="cpu"):
        double(np.ones(1))
    both, together = threading.Barrier(2), []

    def run(self, leaves, where):
        try:
            both.wait(0.2)
            together.append(1)
        except threading.BrokenBarrierError:
            pass

    monkeypatch.setattr(RecordedCall, "run", run)

    def work():
        with ag.Stream(backend="cpu"):
            double(np.ones(1))

    in_threads(work, work)
    assert together == []


def test_clear_while_another_thread_captures_on_the_same_side_stream():
    double, _ = doubled(warmup=0)
    inside, cleared, results = threading.Event(), threading.Event(), []

    @ag.graphed(warmup=0)
    def slow(x):
        out = np.empty_like(x)
        launch(np.add, x, 1, out)
        inside.set()
        assert cleared.wait(LIMIT)
        return out

    def work():
        with ag.Stream(backend="cpu") as stream:
            double(np.ones(2))
            results.append(slow(np.ones(2)))
            stream.synchronize()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert inside.wait(LIMIT)
    try:
        double.cache_clear()
    finally:
        cleared.set()
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert [y.tolist() for y in results] == [[2.0, 2.0]]
    assert double.cache_info().graphs == 0


def test_calls_from_several_threads():
    double, _ = doubled(warmup=1)
    wrong = []

    def work(n):
        with ag.Stream(backend="cpu") as stream:
            for i in range(50):
                y = double(np.full(3, float(i * n)))
                stream.synchronize()
                if y.tolist() != [2.0 * i * n] * 3:
                    wrong.append((n, i, y))

    in_threads(*[functools.partial(work, n) for n in range(1, 5)])
    assert wrong == []
    info = double.cache_info()
    assert info.captures == 1
    assert info.replays + info.eager == 200


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_begins_again():
    assert python(FORKING, "-W", "error") == "parent 6.0\nchild 8.0\n"


FORKING = """
import os
import accelerator_graph as ag

@ag.graphed(warmup=0)
def double(x):
    out = bytearray(1)
    def work(x, out):
        out[0] = 2 * x[0]
    ag.current_stream().launch(work, x, out)
    return out

def call(n):
    with ag.Stream(backend="cpu") as stream:
        y = double(bytearray([n]))
        stream.synchronize()
        return float(y[0])

call(1)
before = double.cache_info()
print("parent", call(3), flush=True)
child = os.fork()
if not child:
    try:
        assert double.cache_info().graphs == 0
        print("child", call(4), flush=True)
    finally:
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert before.captures == double.cache_info().captures == 1
"""
