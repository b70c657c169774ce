"""Graphed functions with breaks on the cpu backend: arrays go in and come out by copies."""

import gc
import sys
import threading
import warnings
import weakref
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._breaks import marks
from accelerator_graph._core import capture_table
from accelerator_graph.interop._torch import observing
from core.test_interrupts import Interrupter, sample
from graphed.functions import launch


class Step:
    """Work with a step in NumPy, which writes an argument now and then."""

    def __init__(self):
        self.seen = []

    def on_host(self, x, y):
        ag.current_stream().synchronize()
        self.seen.append(float(x.max()))
        if len(self.seen) % 3 == 0:
            y += 100
        return x / 2

    def __call__(self, x, y):
        doubled, out = np.empty_like(x), np.empty_like(x)
        launch(np.multiply, x, 2, doubled)
        half = self.on_host(doubled, y)
        launch(np.add, half, y, out)
        launch(np.add, y, 1, y)
        return out, half


@pytest.mark.filterwarnings("ignore:.*captured with breaks")
@pytest.mark.parametrize(
    "options", [{}, {"outputs": "static"}, {"check": True}, {"key": lambda x, y: x.shape}]
)
def test_arguments_and_results_are_those_of_the_call(stream, options):
    ours, theirs = Step(), Step()
    f = ag.graphed(ours, warmup=1, on_capture_error="break", **options)
    y = [np.zeros(3), np.zeros(3)]
    for i in range(12):
        x, other = np.full(3, float(i)), ag.Stream(backend="cpu") if i > 8 else stream
        stream.synchronize()
        with other:
            found = f(x, y[0])
            wanted = theirs(x, y[1])
            other.synchronize()
        assert [each.tolist() for each in found] == [each.tolist() for each in wanted], i
        assert y[0].tolist() == y[1].tolist(), i
    assert ours.seen == theirs.seen
    assert f.cache_info().captures == 1


def test_arguments_that_are_enqueued_are_there_in_the_capture(stream):
    x = np.zeros(3)
    f = ag.graphed(ag.eager(lambda x: x + 0), warmup=0, on_capture_error="break")
    for i in range(3):
        launch(np.add, x, 1, x)
        found = f(x)
        stream.synchronize()
        assert found.tolist() == [i + 1] * 3


class Host:
    gates = {}  # noqa: RUF012

    def reads(self, x):
        reached, go_on = self.gates.get(threading.current_thread().name, (None, None))
        if reached is not None:
            reached.set()
            assert go_on.wait(60)
        ag.current_stream().synchronize()
        return x + 1


def step(x, y):
    launch(np.add, x, 1, y)
    launch(np.multiply, Host().reads(y), 2, y)


def test_breaks_without_a_call_between_them(stream):
    def function(x):
        y = np.empty_like(x)
        launch(np.add, x, 1, y)
        ag.graph_break()
        launch(np.multiply, y, 2, y)
        return y

    f = ag.graphed(function, warmup=1, on_capture_error="break")
    for i in range(4):
        found = f(np.full(3, float(i)))
        stream.synchronize()
        assert found.tolist() == [2 * (i + 1)] * 3


@pytest.mark.filterwarnings("ignore:.*captured with breaks")
def test_an_interrupt_at_any_line_of_a_watched_call_leaves_no_trace():
    x, before = np.arange(3.0), (Host.reads, warnings.showwarning)
    for at in sample("lines"):
        interrupter, y = Interrupter(at, KeyboardInterrupt), np.zeros(3)
        f = ag.graphed(step, warmup=0, on_capture_error="break")
        with ag.Stream(backend="cpu") as stream:
            f(x, y)  # is watched, as the next one
            interrupter.strike(f, x, y)
            if not (where := interrupter.where):
                break
            assert (Host.reads, warnings.showwarning) == before, where
            assert (sys.gettrace(), sys.getprofile(), marks.thread.recording) == (None,) * 3, where
            assert not capture_table.live, where
            (uncaptured,) = f._cache._uncaptured.values()
            if uncaptured.search.is_done():  # without results, since the interrupter has traced
                continue
            for _ in range(3):
                f(x, y)
            stream.synchronize()
            assert y.tolist() == [4, 6, 8], where
    assert at > 100


@pytest.mark.filterwarnings("ignore:.*captured with breaks")
def test_one_call_is_watched_at_a_time(stream, monkeypatch):
    before, x, y = Host.reads, np.arange(3.0), np.zeros(3)
    monkeypatch.setattr(Host, "gates", {name: (threading.Event(), threading.Event()) for name in "ab"})
    f = ag.graphed(step, warmup=0, on_capture_error="break")
    f(x, y)

    def call():
        with ag.Stream(backend="cpu") as other:
            f(x, np.zeros(3))
            other.synchronize()

    threads = [threading.Thread(target=call, name=name) for name in "ab"]
    for thread in threads:  # the second one while the first is watched
        thread.start()
        assert Host.gates[thread.name][0].wait(60)
    for thread in threads:
        Host.gates[thread.name][1].set()
        thread.join()
    assert Host.reads is before
    assert f.cache_info() == ag.CacheInfo(0, 3, 0, 0, 0, 16)
    f(x, y)
    stream.synchronize()
    assert y.tolist() == [4, 6, 8]
    assert f.cache_info() == ag.CacheInfo(1, 3, 1, 0, 1, 16)


@pytest.mark.parametrize("asked", [0, 1])
def test_warnings_that_the_program_has_asked_torch_for_are_shown(asked):
    modes, found = [], []
    cuda = SimpleNamespace(get_sync_debug_mode=lambda: asked, set_sync_debug_mode=modes.append)

    @contextmanager
    def beside(name):
        found.append(threading.current_thread().name)
        yield

    def waits():
        warnings.warn("called a synchronizing CUDA operation", stacklevel=2)
        warnings.warn("something else", stacklevel=2)

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with ExitStack() as stack:
            observing._report_synchronizations(SimpleNamespace(cuda=cuda), beside, stack)
            other = threading.Thread(target=waits)
            waits(), other.start(), other.join()
    waited = [str(each.message) for each in shown if "synchronizing" in str(each.message)]
    assert len(waited) == 2 * asked
    assert len(shown) - len(waited) == 2
    assert found == [threading.current_thread().name]
    assert modes == ["warn", asked]


def test_a_capture_that_failed_keeps_no_arrays(stream):
    made = []

    def function(x):
        y = np.empty_like(x)
        made.append(weakref.ref(y))
        launch(np.copyto, y, x)
        ag.current_stream().synchronize()

    f = ag.graphed(function, warmup=0, on_capture_error="break")
    f(np.zeros(3))
    gc.collect()
    assert [each() for each in made] == [None, None]
