"""Forks and the interpreter's exit."""

import os
from pathlib import Path

import pytest

from processes import python

ROOT = str(Path(__file__).resolve().parents[2])


def run(code, timeout=300):
    return python(code, "-W", "ignore::DeprecationWarning", timeout=timeout)


FORK = """
import os, sys
import accelerator_graph as ag
def in_child(check):
    pid = os.fork()
    if pid == 0:
        try:
            check()
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
def refused(call, kind=ag.GraphStateError):
    try:
        call()
    except kind as error:
        assert "fork" in str(error), error
        return
    raise AssertionError(f"{call} did not raise")
"""


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.mark.promise("graphs-stay-in-their-process")
@needs_fork
def test_what_was_made_before_a_fork_raises_in_the_child_and_works_in_the_parent():
    out = run(
        FORK
        + """
log = []
with ag.Stream(backend="cpu") as s, ag.Graph() as g:
    s.launch(log.append, 1)
launch, old = g.bind(), g.pool()
launch(); s.synchronize()
def check():
    refused(launch)
    refused(s.synchronize)
    refused(lambda: s.launch(log.append, 2))
    for use in (g.replay, g.bind, g.instantiate, g.pool, g.raw_graph, g.raw_executable, g.raw_cuda_graph):
        refused(use)
    refused(lambda: g.debug_dump("never-written.dot"))
    refused(lambda: g.num_nodes)
    refused(g.capture_end)
    assert g.state == "empty"
    def in_grandchild():
        refused(g.replay)
    in_child(in_grandchild)
    with ag.Stream(backend="cpu") as another, g:
        another.launch(log.append, 2)
    g.replay(); another.synchronize()
    assert log[-1] == 2
    g.reset()
    try:
        g.replay()
    except ag.GraphStateError as error:
        assert "nothing was captured" in str(error)
    pool = ag.Graph(pool=old)
    with ag.Stream(backend="cpu"):
        refused(pool.capture_begin, ValueError)
    del_me = g
    with ag.Stream(backend="cpu") as mine, ag.Graph() as fresh:
        mine.launch(log.append, 3)
    fresh.replay(); mine.synchronize()
    assert log[-1] == 3
in_child(check)
launch(); g.replay(); s.synchronize()
print(log)
"""
    )
    assert out == "[1, 1, 1]\n"


@needs_fork
def test_a_fork_in_the_middle_of_a_capture():
    out = run(
        FORK
        + """
log = []
def check():
    from accelerator_graph._core import capture_table
    assert not capture_table.live and not capture_table.thread.graphs
    refused(g.capture_end)
    refused(g.replay)
    refused(lambda: g.__exit__(None, None, None))
    refused(lambda: s.launch(log.append, 2))
    with ag.Stream(backend="cpu") as mine, ag.Graph() as fresh:
        mine.launch(log.append, 3)
    fresh.replay(); mine.synchronize()
    assert log == [3]
with ag.Stream(backend="cpu") as s, ag.Graph() as g:
    s.launch(log.append, 1)
    in_child(check)
g.replay(); s.synchronize()
print(log)
"""
    )
    assert out == "[1]\n"


@needs_fork
@pytest.mark.parametrize("busy", ["instantiating", "launching"])
def test_a_fork_while_another_thread_is_busy(busy):
    """What that thread has locked is locked in the child for ever."""
    run(
        FORK
        + f"busy = {busy!r}"
        + """
import signal, threading
from accelerator_graph.backends.cpu import CpuBackend

begun, go = threading.Event(), threading.Event()
instantiate = CpuBackend.instantiate
def slowly(self, graph):
    begun.set()
    assert go.wait(120)
    return instantiate(self, graph)
def launch_slowly():
    with g._runner.launching:
        begun.set()
        assert go.wait(120)
with ag.Stream(backend="cpu") as s:
    g, kept = ag.Graph(), ag.Graph(keep_graph=True)
    for each in (g, kept):
        with each:
            s.launch(int)
    replay = g.bind()
    CpuBackend.instantiate = slowly
    other = threading.Thread(target=kept.replay if busy == "instantiating" else launch_slowly, daemon=True)
    other.start()
    assert begun.wait(120)
    def check():
        signal.alarm(120)
        CpuBackend.instantiate = instantiate
        refused(replay)
        with ag.Stream(backend="cpu") as s, ag.Graph() as anew:
            s.launch(int)
        anew.bind()()
    in_child(check)
    go.set()
    other.join(120)
    replay()
"""
    )


def test_exit_with_live_graphs_streams_and_callables():
    run(
        """
        import accelerator_graph as ag
        log = []
        with ag.Stream(backend="cpu") as s, ag.Graph(keep_graph=True) as g:
            s.launch(log.append, 1)
        launch = g.bind()
        launch()
        cycle = [g, launch]; cycle.append(cycle)
        """
    )


def test_exit_in_the_middle_of_a_capture_and_of_a_replay():
    run(
        """
        import time
        import accelerator_graph as ag
        with ag.Stream(backend="cpu") as s, ag.Graph() as g:
            s.launch(time.sleep, 1000)
        g.replay()
        other = ag.Graph(stream=ag.Stream(backend="cpu"))
        other.capture_begin()
        """
    )
