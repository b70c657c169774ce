"""`graphed(on_capture_error="break")`: what no capture bears is left out of the graph."""

import os

import pytest

import accelerator_graph as ag
from accelerator_graph._core import current_stream
from accelerator_graph.testing.works import work_of
from diagnosis.planted import marked

LANES = [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("cpu", "cuda", "hip")]


class Cell:
    """Work on a cell, and what was read from it on the host."""

    def __init__(self, work):
        self.work, self.cell, self.seen = work, work.new(), []

    def add(self, number):
        self.work.enqueue(ag.current_stream(), self.cell, 1, number)

    def look(self):
        ag.current_stream().synchronize()  # breaks
        self.seen.append(self.work.read(self.cell))


@pytest.fixture(params=LANES)
def cell(request):
    with ag.Stream(backend=request.param) as stream:
        yield Cell(work_of(request.param)())
        stream.synchronize()
    current_stream._thread.streams.clear()  # which the thread would keep until the process ends


def graphed(function, **options):
    return ag.graphed(function, on_capture_error="break", **{"warmup": 1, **options})


def breaks_of(f):
    """Return the names of the eager calls of a function's only graph."""
    (recorded,) = f._cache.graphs.values()
    return [each.name for each in recorded.graph._runner.calls]


@pytest.mark.promise("graphed-breaks")
def test_a_call_is_left_out_and_each_call_does_its_work_once(cell):
    def step():
        cell.add(1)
        cell.look()
        cell.add(10)
        cell.look()

    f = graphed(step)
    f(), f(), f()  # the warm-up, and two that are watched, ahead of which a capture has failed
    assert cell.seen == [1, 11, 12, 22, 23, 33]
    with pytest.warns(RuntimeWarning) as found:
        f()
    (warning,) = found
    assert warning.filename == __file__
    file, line = marked(Cell.look)
    file = os.path.relpath(file) if file.startswith(os.getcwd()) else file
    said = f"every replay calls\n  Cell.look ({file}:{line - 1}), since no capture bears {file}:{line} in"
    assert said in str(warning.message)
    f(), f()
    assert cell.seen == [11 * (i // 2) + (1, 11)[i % 2] for i in range(12)]
    assert f.cache_info() == ag.CacheInfo(3, 3, 1, 0, 1, 16)
    assert breaks_of(f) == ["Cell.look"] * 2


def waits():
    ag.current_stream().synchronize()


def waits_for_a_number():
    ag.current_stream().synchronize()
    return 0


lengths = iter(range(1000))


def waits_for_a_length():
    ag.current_stream().synchronize()
    return ((),) * next(lengths)


def waits_at_last():
    ag.current_stream().synchronize()
    yield


def waits_inside(times):
    waits_inside(times - 1) if times else ag.current_stream().synchronize()


INSIDE = {
    "a number": lambda: waits_for_a_number(),
    "another result": lambda: waits_for_a_length(),
    "a generator": lambda: list(waits_at_last()),
    "a recursion": lambda: waits_inside(3),
    "a table": waits,
    "no name": lambda: ag.current_stream().synchronize(),
}


def around(which):
    INSIDE[which]()


@pytest.mark.promise("graphed-smallest-breaks")
@pytest.mark.filterwarnings("ignore:.*captured with breaks")
@pytest.mark.parametrize("which", INSIDE)
def test_the_break_is_the_smallest_function_that_can_be_one(cell, which):
    def step():
        cell.add(1)
        around(which)
        cell.add(1)

    f = graphed(step)
    for _ in range(6):
        f()
    ag.current_stream().synchronize()
    assert cell.work.read(cell.cell) == 12
    assert breaks_of(f) == ["around"]


def waits_itself(cell):
    cell.add(1)
    ag.current_stream().synchronize()  # breaks


class Module:
    def __call__(self, cell):
        return self.forward(cell)

    def forward(self, cell):
        cell.add(1)
        ag.current_stream().synchronize()  # breaks


@pytest.mark.promise("graphed-without-a-break")
@pytest.mark.parametrize(("function", "line"), [(waits_itself, waits_itself), (Module(), Module.forward)])
def test_where_nothing_can_be_left_out_the_error_names_the_call(cell, function, line):
    f = graphed(function)
    for _ in range(3):
        f(cell)
    for _ in range(2):
        with pytest.raises(ag.CaptureError, match=r"mark one with accelerator_graph\.eager") as raised:
            f(cell)
        assert [(each.file, each.line) for each in raised.value.calls] == [marked(line)]
        assert isinstance(raised.value.__cause__, ag.CaptureError)
    assert cell.work.read(cell.cell) == 3


def test_a_failure_without_such_a_call_says_so(cell):
    def step():
        cell.add(1)
        if ag.is_current_stream_capturing():
            raise ag.CaptureError("not here.", reason="other")

    f = graphed(step, warmup=0)
    f(), f()
    with pytest.raises(
        ag.CaptureError, match=r"not here\. Two eager calls were watched, and nothing that the function"
    ):
        f()


@pytest.mark.promise("graphed-marks")
def test_marks_are_breaks_from_the_start(cell):
    look = ag.eager(cell.look)

    def step():
        cell.add(1)
        look()
        cell.add(1)

    f = graphed(step, warmup=0)
    for i in range(4):
        f()
        assert cell.seen == list(range(1, 2 * i + 2, 2))
    assert f.cache_info() == ag.CacheInfo(4, 0, 1, 0, 1, 16)


@ag.eager
def waits_marked():
    ag.current_stream().synchronize()


def test_nothing_is_looked_for_inside_a_mark(cell):
    def step():
        cell.add(1)
        waits()
        waits_marked()

    f = graphed(step, warmup=0)
    f(), f()
    with pytest.warns(RuntimeWarning, match="waits ") as found:
        f()
    assert "waits_marked" not in str(found[0].message)
    assert breaks_of(f) == ["waits", "waits_marked"]


def test_a_function_without_breaks_has_an_ordinary_graph(cell):
    f = graphed(lambda: cell.add(1), warmup=0)
    for i in range(4):
        f()
        ag.current_stream().synchronize()
        assert cell.work.read(cell.cell) == i + 1
    (recorded,) = f._cache.graphs.values()
    assert breaks_of(f) == []
    recorded.graph.bind(ag.current_stream())()
    ag.current_stream().synchronize()
    assert cell.work.read(cell.cell) == 5


@pytest.mark.promise("graphed-breaks-once")
def test_a_capture_that_fails_behind_an_eager_call_is_not_tried_again(cell):
    runs = []

    def step():
        runs.append(1)
        ag.eager(cell.look)()
        ag.current_stream().synchronize()

    f = graphed(step, warmup=0)
    for _ in range(2):
        with pytest.raises(ag.CaptureError):
            f()
    assert len(runs) == len(cell.seen) == 2
    assert f.cache_info() == ag.CacheInfo(0, 0, 0, 0, 0, 16)
    assert not ag.is_current_stream_capturing()


@pytest.mark.filterwarnings("ignore:.*captured with breaks")
def test_other_signatures_have_the_same_breaks(cell):
    def step(number):
        cell.add(number)
        cell.look()

    f = graphed(step, warmup=0)
    f(1), f(1), f(1)
    f(5)
    assert cell.seen == [1, 2, 3, 8]
    assert f.cache_info() == ag.CacheInfo(2, 2, 2, 0, 2, 16)


def test_what_a_call_raises_while_it_is_watched_passes(cell):
    fails = iter([True])

    def step():
        cell.look()
        if not ag.is_current_stream_capturing() and next(fails, False):
            raise LookupError

    f = graphed(step, warmup=0)
    with pytest.raises(LookupError):
        f()
    f(), f()
    with pytest.warns(RuntimeWarning, match=r"Cell\.look"):
        f()


@pytest.mark.parametrize("options", [{"inputs": "bind"}, {"inputs": "node"}, {"verify": "first"}])
def test_options_that_do_not_go_together(options):
    with pytest.raises(ValueError, match="on_capture_error='break' is for copied inputs and without verify="):
        graphed(len, **options)


@pytest.mark.needs("cpu")
def test_an_interrupt_between_the_capture_and_its_call_gives_no_other_call_that_result(monkeypatch):
    import numpy as np

    def ready(self, *args):
        monkeypatch.undo()
        raise KeyboardInterrupt

    @ag.eager
    def look(x):
        return x * 1

    def run(x):
        out = np.empty_like(x)
        ag.current_stream().launch(np.add, x, look(x), out)
        return out

    with ag.Stream(backend="cpu") as stream:
        f = ag.graphed(run, warmup=1, on_capture_error="break")
        f(np.full(2, 1.0))
        monkeypatch.setattr("accelerator_graph._graphed.call_order.ReplayStreams.ready", ready)
        with pytest.raises(KeyboardInterrupt):
            f(np.full(2, 10.0))
        found = f(np.full(2, 50.0))
        stream.synchronize()
        assert found.tolist() == [100, 100]
