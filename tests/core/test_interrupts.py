"""A KeyboardInterrupt at any line of the library, or on entry to a function, leaves no trace of a capture."""

import dis
import gc
import inspect
import linecache
import os
import signal
import sys
import threading
import time

import pytest

import accelerator_graph as ag
from accelerator_graph import interop
from accelerator_graph._core import capture_table
from accelerator_graph._core.observers import ambient
from accelerator_graph.interop.base import Framework
from lanes import sample

from . import random_signals

PACKAGE = os.path.dirname(ag.__file__)
UNINTERRUPTIBLE = ("try:", "finally:", "else:", "with ")  # no signal is handled there, only traced
LEAVES_HANDLER = dis.opmap["POP_EXCEPT"]
"""Likewise; raised before it, an error would leave the one that was handled the thread's for ever."""


@pytest.fixture(autouse=True)
def framework(monkeypatch):
    """A framework takes part, so that it is asked during all this."""

    class Loaded(Framework):
        api_version = 1

        def backend(self):
            return "cpu"

        def current_stream(self, device=None):
            return None

    interop.register("a_loaded_framework", Loaded)
    monkeypatch.setitem(sys.modules, "a_loaded_framework", sys)
    yield
    interop.unregister("a_loaded_framework")


class Interrupter:
    """Raises at the n-th line, or entry to a function, of the package that this thread runs.

    With `inside`, in those modules of Python's as well, and when one of their functions returns.
    """

    def __init__(self, at, error, inside=()):
        self.at = at
        self.error = error
        self.inside = tuple(module.__file__ for module in inside)
        self.lines = 0
        self.where = ""

    def strike(self, work, *args, **how):
        """Do work until the error is raised in it, or to its end."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            work(*args, **how)
        except self.error:
            pass
        finally:
            sys.settrace(before)

    def __call__(self, frame, event, arg):
        code = frame.f_code
        inside = code.co_filename in self.inside
        if not code.co_filename.startswith(PACKAGE) and not inside:
            return None
        points = ("call", "return") if inside else ("call",)
        if event == "line" or (event in points and not code.co_flags & inspect.CO_GENERATOR):
            text = linecache.getline(code.co_filename, frame.f_lineno).strip()
            leaves = code.co_code[frame.f_lasti] == LEAVES_HANDLER
            if event in points or not (leaves or text.startswith(UNINTERRUPTIBLE)):
                self.lines += 1
                if self.lines == self.at:
                    self.where = f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {text}"
                    sys.settrace(None)
                    raise self.error
        return self


def nothing_is_captured(where):
    """Check that no capture is under way, and that this thread has no current stream."""
    assert not capture_table.live, where
    assert not capture_table.thread.graphs, where
    assert ag.current_stream(required=False) is None, where


def body_passes(stream, log):
    stream.launch(log.append, 1)


def body_raises(stream, log):
    stream.launch(log.append, 1)
    raise LookupError


def body_invalidates(stream, log):
    stream.launch(log.append, 1)
    stream.synchronize()


def with_graph(graph, stream, body, log):
    with graph:
        body(stream, log)


def with_side_stream(graph, stream, body, log):
    with ag.graph(graph):
        body(ag.current_stream(), log)


def by_hand(graph, stream, body, log):
    graph.capture_begin()
    try:
        body(stream, log)
        graph.capture_end()
    finally:
        if graph.state == "capturing":
            graph.reset()


class HandlerRaised(Exception):
    """What a signal handler may raise instead, a time limit for example."""


def attempt(way, body, at, pool, error=KeyboardInterrupt):
    """Capture with an interrupt at the given line; return what became of it."""
    log = []
    stream = ag.Stream(backend="cpu")
    graph = ag.Graph(pool=pool)
    interrupter = Interrupter(at, error)
    with stream:
        before = sys.gettrace()
        try:
            sys.settrace(interrupter)
            way(graph, stream, body, log)
        except (KeyboardInterrupt, HandlerRaised, LookupError, ag.CaptureError):
            pass
        finally:
            sys.settrace(before)
        assert ag.current_stream() is stream
    return graph, stream, log, interrupter


@pytest.mark.promise("interrupt-leaves-no-trace")
@pytest.mark.parametrize("error", [KeyboardInterrupt, HandlerRaised])
@pytest.mark.parametrize("body", [body_passes, body_raises, body_invalidates])
@pytest.mark.parametrize("way", [with_graph, with_side_stream])
def test_an_interrupt_at_any_line_leaves_no_trace(way, body, error):
    lines = attempt(way, body, 0, ag.graph_pool_handle())[3].lines
    assert lines > 50
    for at in sample("lines", lines):
        pool = ag.graph_pool_handle()
        graph, stream, log, interrupter = attempt(way, body, at, pool, error)
        where = f"interrupted at line {at} of {lines}, {interrupter.where}"
        assert graph.state in ("empty", "ready"), where
        nothing_is_captured(where)
        assert stream._backend.capture_status(stream.native) == "none", where
        stream.synchronize()
        assert log == [], where
        graph.reset()
        with stream, graph:
            stream.launch(log.append, 2)
        graph.replay()
        stream.synchronize()
        assert log == [2], where
        other = ag.Graph(pool=pool)
        with stream, other:
            stream.launch(log.append, 3)


@pytest.mark.parametrize("body", [body_passes, body_raises, body_invalidates])
@pytest.mark.parametrize("way", [with_graph, with_side_stream])
def test_a_stack_that_is_full_leaves_no_trace(way, body, monkeypatch):
    """The capture begins with little room, one frame more each time, until it has enough."""
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)

    def at_depth(frames):
        if frames:
            at_depth(frames - 1)
        else:
            way(graph, stream, body, log)

    limit, log, stream, failed = sys.getrecursionlimit(), [], ag.Stream(backend="cpu"), 0
    for frames in range(200, 100, -1):
        graph = ag.Graph(stream=stream if way is with_graph else None)
        with stream:
            depth = len(inspect.stack(0))
            sys.setrecursionlimit(depth + 200)
            try:
                at_depth(frames)
            except (RecursionError, LookupError, ag.CaptureError) as error:
                failed += isinstance(error, RecursionError)
            finally:
                sys.setrecursionlimit(limit)
            assert ag.current_stream() is stream
        where = f"{200 - frames} frames were left"
        assert graph.state in ("empty", "ready"), where
        assert not capture_table.live, where
        assert not capture_table.thread.graphs, where
        assert not capture_table.thread.unfinished, where
        assert stream._backend.capture_status(stream.native) == "none", where
        assert gc.isenabled(), where
    assert failed > 5  # some ten frames are a capture
    assert graph.state == ("ready" if body is body_passes else "empty")


OTHER = bytearray(1)
"""What other work than the graph's writes."""


def capture(stream, **options):
    with ag.Graph(stream=stream, **options), ag.label("part"):
        stream.fill(OTHER, 1)


def graphed(graph, stream, file):
    with stream:
        ag.graphed(lambda array: ag.current_stream().fill(array, 1), warmup=0)(OTHER)


def timed(graph, stream, file):
    events = [stream.record(timing=True) for _ in range(2)]
    stream.wait(events[0])
    events[1].synchronize()
    assert events[1].query()
    events[0].elapsed_time(events[1])


def diagnosed(all):
    def call(graph, stream, file):
        with ag.diagnose(all=all):
            capture(stream)

    return call


def verified(graph, stream, file):
    with stream:
        ag.verify(lambda: ag.current_stream().fill(OTHER, 1), state=[OTHER], rounds=1)


CALLS = {
    "instantiate": lambda graph, stream, file: graph.instantiate(),
    "replay": lambda graph, stream, file: graph.replay(),
    "replay on a stream": lambda graph, stream, file: graph.replay(stream),
    "bind": lambda graph, stream, file: graph.bind(),
    "clone": lambda graph, stream, file: graph.clone(),
    "describe": lambda graph, stream, file: graph.describe(),
    "memory": lambda graph, stream, file: graph.memory(),
    "pool": lambda graph, stream, file: graph.pool(),
    "watch": lambda graph, stream, file: graph.watch(stream),
    "debug_dump": lambda graph, stream, file: graph.debug_dump(file),
    "set_node": lambda graph, stream, file: graph.set_node(0, value=2),
    "set_nodes": lambda graph, stream, file: graph.set_nodes({0: {"value": 2}}),
    "bound": lambda graph, stream, file: graph.bind()(),
    "fingerprint": lambda graph, stream, file: graph.fingerprint(),
    "memory_report": lambda graph, stream, file: ag.memory_report(),
    "progress": lambda graph, stream, file: capture(stream, observe=ag.progress()),
    "ownership": lambda graph, stream, file: capture(stream, observe=ag.ownership()),
    "graphed": graphed,
    "events": timed,
    "fill": lambda graph, stream, file: stream.fill(OTHER, 1),
    "copy": lambda graph, stream, file: stream.copy(OTHER, bytes(1)),
    "query": lambda graph, stream, file: stream.query(),
    "synchronize": lambda graph, stream, file: stream.synchronize(),
    "wait": lambda graph, stream, file: ag.Stream(like=stream).wait(stream),
    "launch": lambda graph, stream, file: stream.launch(int),
    "close": lambda graph, stream, file: ag.Stream(like=stream).close(),
    "diagnose": diagnosed(all=False),
    "diagnose all": diagnosed(all=True),
    "verify": verified,
}
LONG = {"verify": 41}
"""Of calls with tens of thousands of lines, every so many lines are interrupted."""


@pytest.mark.promise("interrupt-leaves-no-trace")
@pytest.mark.parametrize("call", CALLS)
def test_an_interrupt_at_any_line_of_a_call_leaves_a_graph_that_works(call, tmp_path):
    cell, collecting, watching = bytearray(1), [*gc.callbacks], (threading.gettrace(), threading.getprofile())
    for at in (number * LONG.get(call, 1) for number in sample("lines")):
        log, stream = [], ag.Stream(backend="cpu")
        with ag.Graph(keep_graph=True, stream=stream) as graph:
            stream.fill(cell, 1)
            with ag.label("part"):
                stream.launch(log.append, 1)
        bound, interrupter, found = graph.bind(), Interrupter(at, KeyboardInterrupt), []
        interrupter.strike(CALLS[call], graph, stream, tmp_path / "graph.json")
        if not (where := interrupter.where):
            break
        nothing_is_captured(where)
        assert gc.isenabled(), where
        assert gc.callbacks == collecting, where
        assert (threading.gettrace(), threading.getprofile()) == watching, where
        assert not ambient.get(), where
        deadline = time.monotonic() + 120
        while not stream.query():
            assert time.monotonic() < deadline, where
        log.clear()
        for replay in (bound, graph.replay):
            cell[0] = 0
            replay()
            stream.synchronize()
            found.append(cell[0])
        assert found == [graph.describe().nodes[0].value] * 2, where
        assert log == [1, 1], where
        graph.reset()
    assert at > 20


@pytest.mark.promise("verify-puts-everything-back")
def test_verify_puts_back_what_a_run_writes_after_its_interrupt():
    cell = bytearray(1)

    def step():
        stream = ag.current_stream()
        stream.launch(time.sleep, 0.05)
        stream.fill(cell, 1)
        raise KeyboardInterrupt

    with ag.Stream(backend="cpu") as stream:
        with pytest.raises(KeyboardInterrupt):
            ag.verify(step, state=[cell])
        early = cell[0]
        time.sleep(0.2)
        stream.synchronize()
    assert (early, cell[0]) == (0, 0)


@pytest.mark.promise("reset-abandons")
def test_by_hand_reset_recovers():
    lines = attempt(by_hand, body_passes, 0, None)[3].lines
    for at in range(1, lines + 1):
        graph, stream, log, interrupter = attempt(by_hand, body_passes, at, None)
        where = f"interrupted at line {at} of {lines}, {interrupter.where}"
        graph.reset()
        assert not capture_table.live, where
        with stream, graph:
            stream.launch(log.append, 2)
        graph.replay()
        stream.synchronize()
        assert log == [2], where


@pytest.mark.promise("interrupt-leaves-no-trace")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timer")
def test_real_signals_at_random_moments_leave_no_trace():
    def capture():
        with graph:
            stream.launch(log.append, 1)

    def check():
        graph.reset()
        assert not capture_table.live
        assert ag.current_stream(required=False) is None
        assert stream._backend.capture_status(stream.native) == "none"

    stream, log = ag.Stream(backend="cpu"), []
    graph = ag.Graph(stream=stream)
    random_signals.interrupt(capture, check, rounds=600)
    with stream, graph:
        stream.launch(log.append, 2)
    graph.replay()
    stream.synchronize()
    assert log == [2]


@pytest.mark.parametrize("body", [lambda: None, lambda: [][0]], ids=["passes", "raises"])
def test_an_interrupt_at_any_line_leaves_no_stream_current(body):
    outer, inner = ag.Stream(backend="cpu"), ag.Stream(backend="cpu")
    at, where = 0, "begin"
    while where:
        interrupter, at = Interrupter(at + 1, KeyboardInterrupt), at + 1
        with outer:
            sys.settrace(interrupter)
            try:
                with inner, inner:
                    body()
            except (KeyboardInterrupt, IndexError):
                pass
            finally:
                sys.settrace(None)
            where = interrupter.where
            assert ag.current_stream() is outer, f"interrupted at {where}"
    assert at > 60


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timer")
def test_real_signals_leave_no_stream_current():
    def enter():
        with stream:
            pass

    def check():
        assert ag.current_stream(required=False) is None

    stream = ag.Stream(backend="cpu")
    random_signals.interrupt(enter, check, rounds=2000)
