"""An exception of a callable on a cpu stream reaches somebody who waits, once; it is never lost."""

import gc
import inspect
import os
import sys
import textwrap
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import accelerator_graph as ag
from processes import execute

ROOT = str(Path(__file__).resolve().parents[3])
LIMIT = 120  # seconds, for everything that waits


class Oops(Exception):
    pass


def boom(*_):
    raise Oops


def line():
    """The place where this is called."""
    caller = inspect.currentframe().f_back
    return f"{caller.f_code.co_filename}:{caller.f_lineno}"


@pytest.fixture
def streams():
    made = [ag.Stream(backend="cpu") for _ in range(3)]
    yield made
    for stream in made:
        stream.close()


@pytest.fixture
def reports(monkeypatch):
    """What reaches `threading.excepthook`, which nobody but this list keeps."""
    found = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    return found


def told(call, where):
    """Expect a failure of `boom` that was enqueued at that place."""
    with pytest.raises(ag.errors.DriverError) as caught:
        call()
    error = caught.value
    assert (error.code_name, type(error.__cause__)) == ("WORK_FAILED", Oops)
    assert "'boom'" in str(error)
    assert where in str(error)


def until(condition):
    end = threading.Event()
    for _ in range(LIMIT * 1000):
        if condition():
            return
        end.wait(0.001)
    raise AssertionError("it did not happen in time")


def fails(stream):
    """Enqueue it; return the line."""
    return (stream.launch(boom), line())[1]


def test_the_line_that_enqueued_is_named(streams):
    stream = streams[0]
    where = fails(stream)
    told(stream.synchronize, where)
    stream.synchronize()  # once


@pytest.mark.parametrize("branches", [1, 2])
def test_the_line_that_recorded_is_named(streams, branches):
    stream, side, _ = streams
    with ag.Graph(stream=stream) as graph:
        if branches == 2:
            side.wait(stream)
            side.launch(int)
        where = fails(stream)
        if branches == 2:
            stream.wait(side)
    for _ in range(2):
        graph.replay()
        told(stream.synchronize, where)
    with ag.Graph(stream=stream) as outer:
        graph.replay()
    outer.replay()
    told(stream.synchronize, where)


def test_a_query_raises_it(streams):
    stream = streams[0]
    where = fails(stream)
    with pytest.raises(ag.errors.DriverError) as caught:
        until(stream.query)
    assert where in str(caught.value)
    assert stream.query()
    stream.synchronize()


@pytest.mark.parametrize("way", ["stream", "event", "entering"])
@pytest.mark.parametrize("idle", [False, True])
def test_whoever_waits_for_another_stream_gets_it_if_nobody_has(streams, way, idle):
    first, second, third = streams
    gate = threading.Event()
    if not idle:
        first.launch(gate.wait, LIMIT)
    where = fails(first)
    if idle:
        other = first.record()
        until(lambda: not first._native.worker._pending)
    log = []
    if way == "entering":
        with first, second:
            pass
    else:
        second.wait(first.record() if way == "event" else first)
    second.launch(log.append, 1)
    third.wait(second)
    gate.set()
    told(third.synchronize, where)
    second.synchronize()
    first.synchronize()
    assert log == [1]
    if idle:
        third.wait(other)  # an event of the failed work
    third.wait(first)
    for stream in streams:
        stream.synchronize()


def test_a_failure_that_was_told_hides_no_later_one(streams):
    first, second, _ = streams
    where = fails(first)
    second.wait(first)
    told(first.synchronize, where)
    where = fails(second)
    first.wait(second)
    told(first.synchronize, where)
    second.synchronize()


def test_a_failed_callable_is_raised_by_one_later_capture_only(streams):
    stream, raised = streams[0], []
    with stream:
        where = fails(stream)
        for _ in range(3):
            function = ag.graphed(lambda array: ag.current_stream().launch(int) or array, warmup=1)
            for _ in range(3):
                try:
                    function(np.zeros(1))
                except ag.DriverError as error:
                    raised.append(str(error))
            with ag.graph(ag.Graph()):
                ag.current_stream().launch(int)
        stream.synchronize()
    assert len(raised) == 1
    assert where in raised[0]


def test_an_event_from_before_or_after_is_none_of_it(streams):
    first, second, _ = streams
    before = first.record()
    where = fails(first)
    second.wait(before)
    second.synchronize()
    told(first.synchronize, where)
    second.wait(first)
    second.synchronize()


def test_later_failures_are_counted(streams):
    stream = streams[0]
    gate = threading.Event()
    stream.launch(gate.wait, LIMIT)
    where = fails(stream)
    fails(stream)
    fails(stream)
    gate.set()
    with pytest.raises(ag.errors.DriverError, match=r"2 more failed after it\.$") as caught:
        stream.synchronize()
    assert where in str(caught.value)


@pytest.mark.parametrize("end", ["closed", "dropped"])
def test_what_nobody_waits_for_is_reported_once_when_the_stream_is_gone(reports, end):
    stream = ag.Stream(backend="cpu")
    where = fails(stream)
    if end == "closed":
        stream.close()
    else:
        del stream
        gc.collect()
        ag.Stream(backend="cpu").synchronize()
    until(lambda: reports)
    (report,) = reports
    assert isinstance(report.exc_value, ag.errors.DriverError)
    assert isinstance(report.exc_value.__cause__, Oops)
    assert where in str(report.exc_value)
    assert report.exc_type is type(report.exc_value)
    assert "cpu stream" in report.thread.name


def test_what_another_stream_still_has_to_wait_for_is_not_reported(reports, streams):
    source, waiting = ag.Stream(backend="cpu"), streams[0]
    gate = threading.Event()
    waiting.launch(gate.wait, LIMIT)
    where = fails(source)
    waiting.wait(source)
    pending = source._native.worker._pending
    source.close()
    until(lambda: not pending)
    gc.collect()
    gate.set()
    told(waiting.synchronize, where)
    gc.collect()
    assert not reports


def test_what_somebody_was_told_is_not_reported(reports):
    stream = ag.Stream(backend="cpu")
    told(stream.synchronize, fails(stream))
    gc.collect()  # the error's traceback has the stream
    worker = stream._native.worker
    (thread,) = (each for each in threading.enumerate() if getattr(each, "worker", None) is worker)
    stream.close()
    thread.join(LIMIT)
    assert not thread.is_alive()
    gc.collect()
    assert not reports


def test_a_report_leaves_no_cycle(reports):
    gone = threading.Event()

    def fail():
        error = Oops()
        weakref.finalize(error, gone.set)
        try:
            raise error
        finally:
            del error

    gc.disable()
    try:
        stream = ag.Stream(backend="cpu")
        stream.launch(fail)
        stream.close()
        until(lambda: reports)
        reports.clear()
        assert gone.wait(LIMIT)
    finally:
        gc.enable()


def run(code):
    done = execute(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": ROOT},
        timeout=LIMIT,
    )
    assert done.returncode == 0
    return done.stderr


def test_what_nobody_waits_for_is_reported_at_the_exit():
    said = run(
        """
        import accelerator_graph as ag
        def boom():
            raise ValueError("on the stream")
        stream = ag.Stream(backend="cpu")
        stream.launch(boom)
        """
    )
    assert said.count("ValueError: on the stream") == 1
    assert said.count("'boom', enqueued at <string>:6, raised ValueError") == 1
    assert "Exception in thread accelerator_graph cpu stream" in said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_does_not_report_what_its_parent_will():
    said = run(
        """
        import gc, os, sys, time
        import accelerator_graph as ag
        stream = ag.Stream(backend="cpu")
        event = stream.record()
        stream.launch(int, "x")
        while stream._native.worker._pending:
            time.sleep(0.001)
        event = stream.record()
        pid = os.fork()
        if not pid:
            del stream, event
            gc.collect()
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """
    )
    assert said.count("ValueError: ") == 1


def test_a_finaliser_needs_no_names_of_its_module():
    """The interpreter takes those away before the last objects."""
    code = """
    from accelerator_graph.backends._cpu import work
    failure = work.Failure(ValueError())
    failure.told = True
    unfinished = work.Failure.__new__(work.Failure)
    vars(work).update(dict.fromkeys(vars(work)))
    del failure, unfinished
    """
    assert run(code) == ""
