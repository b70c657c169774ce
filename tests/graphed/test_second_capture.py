"""A graphed function whose capture is broken is captured once more, so that the error names the line."""

import re

import pytest

import accelerator_graph as ag
from accelerator_graph._core import current_stream
from accelerator_graph._core.observers import DIAGNOSE
from accelerator_graph.testing.works import work_of
from diagnosis.planted import marked

LANES = [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("cpu", "cuda", "hip")]


@pytest.fixture(params=LANES)
def enqueue(request, monkeypatch):
    """Enqueues work on the current stream."""
    monkeypatch.delenv(DIAGNOSE, raising=False)
    work = work_of(request.param)()
    cell = work.new()
    with ag.Stream(backend=request.param) as stream:
        yield lambda: work.enqueue(ag.current_stream(), cell, 3, 5)
        stream.synchronize()
    current_stream._thread.streams.clear()  # which the thread would keep until the process ends


class Breaks:
    """A function that breaks so many captures of it, and counts how often it has run."""

    def __init__(self, enqueue, times=100):
        self.enqueue, self.times, self.runs = enqueue, times, 0

    def __call__(self):
        self.runs += 1
        self.enqueue()
        if ag.is_current_stream_capturing() and self.times:
            self.times -= 1
            ag.current_stream().synchronize()  # breaks


LINE = marked(Breaks)
"""Where it does that."""


def failed(f):
    with pytest.raises(ag.CaptureError) as raised:
        f()
    assert not ag.is_current_stream_capturing()
    return raised.value


def lines(error):
    return [(each.file, each.line) for each in error.calls]


def test_the_line_is_named(enqueue):
    function = Breaks(enqueue)
    f = ag.graphed(function, warmup=1)
    f()
    error = failed(f)
    assert lines(error) == [LINE], error
    # from Python 3.12 on, the call into C is known: cuStreamSynchronize, hipStreamSynchronize
    assert re.search("[sS]ynchronize waits for work that is only being recorded", str(error)), error
    assert "captured a second time, with the diagnosis on" in error.__notes__[-1]
    assert function.runs == 3  # the warm-up, and two captures


def test_later_captures_are_diagnosed_at_once(enqueue):
    function = Breaks(enqueue)
    f = ag.graphed(function, warmup=1)
    f()
    for runs in (3, 4, 5):
        assert lines(failed(f)) == [LINE]
        assert function.runs == runs


@pytest.mark.promise("second-capture-is-used")
def test_a_second_capture_that_succeeds_is_used(enqueue):
    function = Breaks(enqueue, 1)
    f = ag.graphed(function, warmup=1)
    f()
    with pytest.warns(RuntimeWarning, match="second attempt; the first one failed: the capture") as found:
        f()
    assert found[0].filename == __file__
    f()
    assert function.runs == 3
    assert f.cache_info() == ag.CacheInfo(2, 1, 1, 0, 1, 16)


@pytest.mark.promise("second-capture-or-not")
@pytest.mark.parametrize(
    ("options", "value", "runs"),
    [({"warmup": 0}, None, 1), ({"on_capture_error": "eager"}, None, 3), ({}, "0", 2), ({}, "1", 2)],
    ids=["without the warm-up", "eager", "forbidden", "diagnosed at once"],
)
def test_the_function_does_not_run_again(enqueue, monkeypatch, options, value, runs):
    if value is not None:
        monkeypatch.setenv(DIAGNOSE, value)
    function = Breaks(enqueue)
    f = ag.graphed(function, **{"warmup": 1, **options})
    if not options.get("warmup", 1):
        assert lines(failed(f)) == []
    else:
        f()
        if "on_capture_error" in options:
            with pytest.warns(RuntimeWarning, match="runs eagerly from now on"):
                f()
        else:
            assert lines(failed(f)) == ([LINE] if value == "1" else [])
    assert function.runs == runs


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (ag.CaptureError, {"reason": "illegal_call"}),
        (LookupError, {}),
        *(
            (ag.CaptureError, {"reason": reason, "code_name": "REFUSED"})
            for reason in ("out_of_memory", "device_lost", "wrong_thread")
        ),
    ],
    ids=["ours", "its own", "no memory", "no device", "another thread"],
)
def test_other_errors_are_raised_at_once(enqueue, kind, how):
    runs = []

    @ag.graphed(warmup=1)
    def f():
        runs.append(1)
        enqueue()
        if ag.is_current_stream_capturing():
            raise kind("no, not here.", **how)

    f()
    with pytest.raises(kind, match=r"no, not here\."):
        f()
    assert len(runs) == 2


def test_the_first_error_stands_if_the_second_run_raises_another(enqueue):
    function = Breaks(enqueue)

    @ag.graphed(warmup=1)
    def f():
        if function.runs == 2:
            raise LookupError("an iterator that is exhausted")
        function()

    f()
    error = failed(f)
    assert error.reason == "illegal_call"
    assert lines(error) == []
