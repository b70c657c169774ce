"""Streams of the cpu backend while the interpreter exits."""

import textwrap
from pathlib import Path

import pytest

from processes import python

ROOT = str(Path(__file__).resolve().parents[3])
LIMIT = 120  # seconds: a hang fails

PRELUDE = """
import atexit, sys, threading, time
log = []
def say(*words):
    sys.__stdout__.write(" ".join(map(str, words)) + "\\n")
    sys.__stdout__.flush()
def at_exit_after_the_library(function):  # which registers its own hook when it is imported
    assert "accelerator_graph" not in sys.modules
    atexit.register(function)
class AtShutdown:  # the interpreter destroys it when every other thread is frozen
    def __init__(self, function):
        self.function, self.finalizing = function, sys.is_finalizing
    def __del__(self):
        assert self.finalizing()
        self.function()
"""

GRAPH = """
import accelerator_graph as ag
stream = ag.Stream(backend="cpu")
graph = ag.Graph(stream=stream)
with graph:
    stream.launch(log.append, 1)
graph.replay()
stream.synchronize()
"""


def run(code, stderr=""):
    return python(PRELUDE + textwrap.dedent(code), stderr=stderr, timeout=LIMIT)


def test_a_handler_that_was_registered_first_can_replay_and_wait():
    code = """
    @at_exit_after_the_library
    def last():
        graph.replay()
        stream.launch(log.append, 2)
        stream.synchronize()
        say(log, stream.query())
    """
    assert run(textwrap.dedent(code) + GRAPH) == "[1, 1, 2] True\n"


@pytest.mark.parametrize("wait", ["main.synchronize()", "while not main.query(): pass"])
def test_a_handler_that_was_registered_first_can_make_streams(wait):
    """Python 3.12 starts no threads any more by then."""
    code = f"""
    @at_exit_after_the_library
    def last():
        main, side = ag.Stream(backend="cpu"), ag.Stream(backend="cpu")
        graph = ag.Graph(stream=main)
        with graph:
            side.wait(main)
            for each in (main, side):
                each.launch(log.append, 2)
            main.wait(side)
        graph.replay()
        side.wait(main)
        side.launch(log.append, 3)
        main.wait(side)
        main.launch(log.append, 4)
        {wait}
        say(log)
    """
    assert run(textwrap.dedent(code) + GRAPH) == "[1, 2, 2, 3, 4]\n"


def test_several_threads_can_wait_in_a_handler():
    code = """
    go, waited, streams = threading.Event(), [], []
    def wait(number):
        go.wait()
        streams[number % 2].synchronize()
        waited.append(number)
    for number in range(8):
        threading.Thread(target=wait, args=(number,), daemon=True).start()
    @at_exit_after_the_library
    def last():
        streams[:] = [ag.Stream(backend="cpu") for _ in range(2)]
        for number in range(100):
            one, other = streams[:: (-1) ** number]
            one.launch(log.append, number)
            other.wait(one)
        go.set()
        while len(waited) < 8:
            time.sleep(0.001)
        say(log == list(range(100)))
    """
    assert run(textwrap.dedent(code) + GRAPH.replace("log.append, 1", "int")) == "True\n"


def test_an_object_that_dies_at_shutdown_can_replay_and_wait():
    code = """
    def last():
        graph.replay()
        stream.launch(log.append, 2)
        other.wait(stream)
        other.launch(log.append, 3)
        other.synchronize()
        fresh = ag.Stream(backend="cpu")
        fresh.launch(log.append, 4)
        fresh.synchronize()
        say(log, stream.query(), stream.synchronize())
    other = ag.Stream(backend="cpu")
    kept = AtShutdown(last)
    """
    assert run(GRAPH + textwrap.dedent(code)) == "[1, 1, 2, 3, 4] True None\n"


def test_branches_run_where_no_thread_can_be_started():
    code = """
    graph = ag.Graph(stream=stream)
    with graph:
        other.wait(stream)
        for each in (stream, other):
            each.launch(time.sleep, 0.01)
            each.launch(log.append, 2)
        stream.wait(other)
    for _ in range(replays):
        graph.replay()
        stream.synchronize()
    def last():
        del log[:]
        graph.replay()
        stream.synchronize()
        graph.replay()
        stream.synchronize()
        say(log)
    kept = AtShutdown(last)
    """
    for replays in (0, 1, 2):
        begin = f"other, replays = ag.Stream(backend='cpu'), {replays}\n"
        assert run(GRAPH + begin + textwrap.dedent(code)) == "[2, 2, 2, 2]\n"


def test_work_that_a_frozen_thread_has_begun_is_an_error_and_no_hang():
    code = """
    begun = threading.Barrier(3)
    stream.launch(begun.wait)
    stream.launch(time.sleep, 1000)  # not a function of this module, which would live as long as its frame
    stream.launch(log.append, 2)
    other.wait(stream)
    other.launch(log.append, 3)
    running = ag.Graph(stream=third)
    with running:
        third.launch(begun.wait)
        third.launch(time.sleep, 1000)
    running.replay()
    begun.wait()
    def last():
        for wait in (stream.synchronize, stream.query, other.synchronize, other.query):
            try:
                wait()
            except ag.errors.DriverError as error:
                say(error.code_name, str(error).partition(":")[0])
        try:
            running.replay(fourth)
            fourth.synchronize()
        except ag.errors.DriverError as error:
            say(error.code_name)
        say(log)
    kept = AtShutdown(last)
    """
    streams = "other, third, fourth = (ag.Stream(backend='cpu') for _ in range(3))\n"
    out = run(GRAPH + streams + textwrap.dedent(code))
    assert out == "THREAD_STOPPED backend 'cpu'\n" * 4 + "THREAD_STOPPED\n[1]\n"


def test_work_goes_on_in_the_handlers_after_the_librarys():
    code = """
    @at_exit_after_the_library
    def last():
        gate.set()
        stream.synchronize()
        say(log)
    gate = threading.Event()
    """
    rest = """
    stream.launch(gate.wait)
    stream.launch(log.append, 2)
    """
    assert run(textwrap.dedent(code) + GRAPH + textwrap.dedent(rest)) == "[1, 2]\n"


def test_a_thread_that_is_being_started_is_no_error():
    code = """
    from accelerator_graph.backends._cpu import worker
    starting = threading.Event()
    class Slow(worker.WorkerThread):
        def start(self):
            threading._limbo[self] = self
            starting.set()
            time.sleep(1000)
    worker.WorkerThread = Slow
    other = ag.Stream(backend="cpu")
    threading.Thread(target=other.launch, args=(int,), daemon=True).start()
    starting.wait()
    """
    assert run(GRAPH + textwrap.dedent(code)) == ""


@pytest.mark.promise("exit-does-not-wait-for-ever")
def test_work_that_takes_less_than_a_second_completes():
    code = """
    stream.launch(time.sleep, 0.2)
    graph.replay()
    stream.launch(lambda: say(log))
    """
    assert run(GRAPH + textwrap.dedent(code)) == "[1, 1]\n"


@pytest.mark.promise("exit-does-not-wait-for-ever")
def test_work_that_never_ends_delays_no_exit():
    code = """
    other, begun = ag.Stream(backend="cpu"), threading.Barrier(3)
    def work():
        begun.wait()
        threading.Event().wait()
    with ag.Graph(stream=stream) as graph:
        other.wait(stream)
        for each in (stream, other):
            each.launch(work)
        stream.wait(other)
    graph.replay()
    begun.wait()
    """
    assert run(GRAPH + textwrap.dedent(code)) == ""
