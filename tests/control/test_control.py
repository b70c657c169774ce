"""Loops and branches on the cpu backend: arguments, results, what captures make of them, refusals."""

import gc
import weakref
from array import array
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._core import capture_table
from accelerator_graph.inspection.progress import markers_of
from core.test_interrupts import Interrupter, nothing_is_captured, sample
from graphed.functions import launch


def countdown(flag, body=lambda: None, **how):
    """Repeat a body as often as a flag says."""

    def once():
        body()
        launch(np.subtract, flag, 1, flag)

    return ag.while_(flag, once, **how)


def with_g(graph):
    return graph


class ByHand:
    def __init__(self, graph):
        self.graph = graph

    def __enter__(self):
        self.graph.capture_begin()

    def __exit__(self, *error):
        self.graph.capture_end() if error[0] is None else self.graph.reset()


X = np.zeros(1)
WAYS = pytest.mark.parametrize("capture", [ag.graph, with_g, ByHand])


@WAYS
@pytest.mark.promise("control-in-any-capture")
def test_every_way_to_capture_takes_loops(stream, capture):
    n, x, y = np.zeros(1, "i4"), np.zeros(1), np.zeros(1)
    graph = ag.Graph()
    with capture(graph):
        launch(np.add, x, 1, x)
        loop = countdown(n, lambda: launch(np.add, y, x, y))
        launch(np.multiply, y, 10, y)
    stream.synchronize()
    assert (x[0], y[0], loop.count) == (0, 0, 0)
    for times in (3, 0, 1):
        x[0] = y[0] = 0
        n[0] = times
        graph.replay()
        stream.synchronize()
        assert (x[0], y[0], n[0], loop.count) == (1, 10 * times, 0, times)


@pytest.mark.promise("control-nothing-runs")
def test_nothing_runs_in_a_capture_and_a_body_is_called_once(stream):
    flag, calls = np.ones(1, bool), []
    with ag.Graph() as graph:
        ag.while_(flag, lambda: (calls.append(1), launch(flag.fill, False)))
        ag.cond(flag, lambda: calls.append("then"), lambda: calls.append("otherwise"))
    assert calls == [1, "then", "otherwise"]
    graph.replay(), graph.replay()
    stream.synchronize()
    assert not flag[0]
    assert calls == [1, "then", "otherwise"]


def solver(x, b, residual, going, carry):
    """Newton's square root, until the residual is small: what `carry` is for."""

    def step(x):
        new = np.empty_like(x)
        launch(lambda: np.copyto(new, (x + b / x) / 2))
        launch(lambda: np.copyto(residual, abs(new * new - b)))
        launch(lambda: np.copyto(going, residual.max() > 1e-9))
        return new

    return ag.while_(going, step, carry, limit=100)


@pytest.mark.promise("control-carry")
def test_a_solver_stops_by_itself_and_carries_its_solution(stream):
    x, b, residual, going = np.ones(4), np.ones(4), np.ones(4), np.ones((), bool)
    with ag.Graph() as graph:
        loop = solver(x, b, residual, going, (x,))
    counts = []
    for start in (1.0, 2.0, 3.0, 1000.0):
        found = []
        for run in (graph.replay, lambda: solver(x, b, residual, going, x)):
            x[...], b[...], going[...] = start, start, True
            result = run()
            stream.synchronize()
            found.append((x.tolist(), (result or loop).count))
        assert found[0] == found[1]
        assert np.allclose(np.array(found[0][0]) ** 2, start)
        counts.append(loop.count)
    assert counts[0] == 1
    assert counts == sorted(counts)
    assert counts[-1] < 20


def test_conjugate_gradients_end_by_what_they_compute(stream):
    """The same bytes as the loop of Python, for right sides that need different numbers of iterations."""
    a, b = np.diag(np.arange(1.0, 9)) + 0.1, np.zeros(8)
    x, r, p, rr, going = np.zeros(8), np.zeros(8), np.zeros(8), np.zeros(()), np.zeros((), bool)

    def begin():
        x[:], r[:], p[:], rr[...], going[...] = 0, b, b, b @ b, b.any()

    def iterate():
        q = a @ p
        alpha = rr / (p @ q)
        x[:], r[:] = x + alpha * p, r - alpha * q
        new = r @ r
        p[:], rr[...], going[...] = r + new / rr * p, new, new > 1e-20

    with ag.Graph() as graph:
        launch(begin)
        loop = ag.while_(going, lambda: launch(iterate), limit=100)
    counts = []
    for b[:] in (np.arange(8), np.zeros(8), np.eye(8)[3], np.ones(8)):
        graph.replay()
        stream.synchronize()
        found, count = x.tobytes(), 0
        begin()
        while going:
            iterate()
            count += 1
        assert (found, loop.count) == (x.tobytes(), count)
        assert np.allclose(a @ x, b)
        counts.append(count)
    assert counts[1] == 0 < min(counts[0], counts[2])


@pytest.mark.promise("control-carry")
def test_carried_arrays_are_copied_as_if_at_once(stream):
    a, b, n = np.array([1.0]), np.array([2.0]), np.zeros(1, "u1")
    with ag.Graph() as graph:
        ag.while_(n, lambda a, b: (launch(np.subtract, n, 1, n), (b, a))[1], (a, b))
    for times in (3, 2):
        n[0] = times
        graph.replay()
    stream.synchronize()
    assert (a[0], b[0]) == (2.0, 1.0)


@pytest.mark.parametrize("breaks", [False, True])
def test_an_inner_loop_begins_in_the_second_run_of_the_outer_one(stream, breaks):
    outer, inner, log = np.full(1, 3), np.zeros(1, "i8"), []

    def body():
        countdown(inner, lambda: launch(log.append, "inner"))
        launch(log.append, "outer")
        launch(inner.fill, 2)

    graph = ag.Graph()
    with ag.graph(graph, breaks=breaks):
        countdown(outer, body)
    want = ["outer", *["inner"] * 2, "outer", *["inner"] * 2, "outer"]
    stream.synchronize()
    assert log == (want if breaks else [])
    for _ in range(2):
        outer[0], inner[0] = 3, 0
        log.clear()
        graph.replay()
        stream.synchronize()
        assert log == want


@pytest.mark.promise("control-check-every")
def test_a_flag_that_is_read_seldom_is_found_false_late(stream):
    log, flag = [], np.ones(1, bool)

    def step():
        launch(lambda: (log.append(1), flag.fill(len(log) < 4)))

    with ag.Graph() as graph:
        loop = ag.while_(flag, step, check_every=3, limit=5)
    for flags, runs in ((4, 5), (0, 3)):
        log[:] = [] if flags else [1] * 10
        before = len(log)
        flag[0] = True
        graph.replay()
        stream.synchronize()
        assert len(log) - before == runs == loop.count
    log.clear()
    flag[0] = True
    assert ag.while_(flag, step, check_every=3).count == 6


def test_a_flag_can_be_memory_with_a_type(stream):
    for kind in ("bool", "int8", "uint16", "int32", "uint64"):
        n = np.array([0, 2, 0], kind)
        address = (n.ctypes.data + n.itemsize, kind)

        def step(n=n):
            launch(np.copyto, n, np.maximum(n, 1) - 1 if n.dtype != bool else np.zeros(3, bool))

        with ag.Graph() as graph:
            ag.while_(address, step, limit=3)
        graph.replay()
        stream.synchronize()
        n[1] = 1
        ag.while_(address, lambda n=n: launch(n.fill, 0))
        stream.synchronize()
        assert not n.any()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1, int), TypeError, "while_: the flag must be an array of one element, or a tuple of memory"),
        ((np.zeros(2, bool), int), ValueError, "while_: the flag must have one element, not 2"),
        ((np.zeros(1), int), TypeError, "must be boolean or an integer, not of type float64"),
        (((123, "float32"), int), TypeError, "must be memory and the name of its type, one of bool"),
        (((123,), int), TypeError, "must be memory and the name of its type"),
        (((123, ["int32"]), int), TypeError, "must be memory and the name of its type"),
        ((np.zeros(2).any(), int), TypeError, "the flag is a NumPy scalar, which never changes"),
        ((np.zeros(1, bool), 3), TypeError, "while_: the body must be a function, not 3"),
        (
            (np.zeros(1, bool), int, 3),
            TypeError,
            "while_: carry must be different arrays that can be copied to",
        ),
        ((np.zeros(1, bool), int, [bytearray(8)]), TypeError, "arrays that can be copied to, not bytearray"),
        (
            (np.zeros(1, bool), int, np.broadcast_to(X, 3)),
            TypeError,
            "arrays that can be copied to, not array",
        ),
        ((np.zeros(1, bool), int, (X, X)), TypeError, "must be different arrays"),
        ((np.zeros(1, bool), int, (), 0), ValueError, "while_: limit must be 1 or more, not 0"),
        ((np.zeros(1, bool), int, (), 1.5), TypeError, "while_: limit must be an int, not 1.5"),
        ((np.zeros(1, bool), int, (), 1, 0), ValueError, "while_: check_every must be 1 or more, not 0"),
    ],
)
@pytest.mark.parametrize("capturing", [False, True])
def test_wrong_arguments_are_refused_and_captures_go_on(stream, arguments, error, message, capturing):
    def refused():
        with pytest.raises(error, match=message):
            ag.while_(*arguments)

    if not capturing:
        refused()
        return
    with ag.Graph() as graph:
        launch(int)
        refused()
        launch(int)
    assert graph.num_nodes == 2


def test_wrong_arguments_of_branches_are_refused(stream):
    async def later(): ...

    flag = np.ones(1, bool)
    with pytest.raises(TypeError, match="cond: then must be a function"):
        ag.cond(flag, None)
    with pytest.raises(TypeError, match=r"cond: otherwise must not be .*, whose body runs after the call"):
        ag.cond(flag, int, later)
    with pytest.raises(TypeError, match="cond: native must be True or False"):
        ag.cond(flag, int, native=1)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: (x, x), "the body must return 1 arrays, as in carry, not 2"),
        (lambda x: bytearray(8), "the body must return arrays, and result 0 is bytearray"),
        (
            lambda x: np.zeros(3),
            r"result 0 of the body has shape \(3,\) and type float64, and carry\[0\] has",
        ),
        (
            lambda x: x.astype("f4"),
            r"has shape \(2,\) and type float32, and carry\[0\] has \(2,\) and float64",
        ),
        (lambda x: None, "result 0 is None"),
    ],
)
def test_a_body_that_returns_something_else_is_refused(stream, result, message):
    x, flag, graph = np.zeros(2), np.ones(1, bool), ag.Graph()
    with pytest.raises((TypeError, ValueError), match=message):
        ag.while_(flag, result, x)
    with pytest.raises((TypeError, ValueError), match=message), graph:
        ag.while_(flag, result, x)
    assert graph.state == "empty"


@WAYS
@pytest.mark.promise("control-failures")
def test_a_body_that_raises_abandons_the_capture(stream, capture):
    graph, flag = ag.Graph(), np.ones(1, bool)

    def body():
        with capture(graph):
            launch(int)
            ag.while_(flag, lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError) as caught:
        body()
    assert "was abandoned" in caught.value.__notes__[0]
    assert graph.state == "empty"
    assert ag.current_graph() is None
    assert not capture_table.live
    with capture(graph):
        launch(int)
    graph.replay()
    assert graph.num_nodes == 1


@pytest.mark.promise("control-failures")
def test_a_capture_whose_body_raised_can_not_go_on(stream):
    graph = ag.Graph()
    with (
        pytest.raises(ag.GraphStateError, match=r"the loop at .* failed in the capture, which was"),
        graph,
        pytest.raises(ZeroDivisionError),
    ):
        ag.while_(np.ones(1, bool), lambda: 1 / 0)
    assert graph.state == "empty"


@WAYS
@pytest.mark.parametrize("calls", [["reset"], ["capture_end"], ["reset", "capture_begin"]])
@pytest.mark.promise("control-failures")
def test_a_capture_that_is_ended_in_a_body_is_refused(stream, capture, calls):
    graph, flag = ag.Graph(), np.ones(1, bool)

    def body():
        with capture(graph):
            ag.while_(flag, lambda: (launch(int), [getattr(graph, each)() for each in calls]))

    with pytest.raises(ag.CaptureError, match="ended, or was abandoned, in a body of"):
        body()
    assert graph.state == "empty"
    assert not capture_table.live
    with capture(graph):
        launch(int)
    graph.replay()


@pytest.mark.promise("control-breaks")
def test_in_a_capture_with_breaks_the_loop_runs_as_it_is_recorded(stream):
    n, y, seen = np.full(1, 3), np.zeros(1), []
    look = ag.eager(lambda: seen.append(y[0]))
    graph = ag.Graph(keep_graph=True)
    with ag.graph(graph, breaks=True):
        launch(np.add, y, 1, y)
        loop = countdown(n, lambda: (launch(np.add, y, 1, y), look()))
        ag.cond(n, lambda: launch(np.add, y, 1000, y), lambda: launch(np.add, y, 100, y))
    stream.synchronize()
    assert (y[0], n[0], loop.count, seen) == (104, 0, 3, [2, 3, 4])
    n[0] = 2
    graph.replay()
    stream.synchronize()
    assert (y[0], n[0], loop.count, seen[3:]) == (207, 0, 2, [106, 107])
    kinds = [[node.kind for node in body] for body, _ in graph.describe().nodes[1].bodies]
    assert kinds == [["host", "eager", "host"]]


@pytest.mark.promise("control-breaks")
def test_live_objects_and_collectives_of_bodies_are_known(stream):
    n, seen, given = np.array([3]), [], [0]
    graph = ag.Graph()

    def body():
        ag.eager(seen.extend)(ag.live("steps", given))
        ag.note_collective("all_reduce", "float32", 4)

    with ag.graph(graph, breaks=True):
        ag.note_collective("all_reduce", "float32", 4)
        launch(int)
        countdown(n, body)
    assert seen == [0, 0, 0]
    assert len(graph.collectives) == 2
    n[0] = 2
    graph.replay(live={"steps": [7]})
    assert seen[3:] == [7, 7]


def test_a_flag_can_not_be_live(stream):
    n, graph = np.array([1]), ag.Graph()

    def capture():
        with ag.graph(graph, breaks=True):
            ag.eager(len)(ag.live("n", n))
            countdown(n)

    with pytest.raises(ag.CaptureError, match=r"'n'"):
        capture()
    assert graph.state == "empty"


def test_what_is_watched_is_checked_at_each_replay(stream):
    graph, watched = ag.Graph(), np.zeros(3)
    with graph:
        ag.cond(np.array([1]), lambda: launch(int))
    graph.watch(watched)
    graph.replay()
    del watched
    with pytest.raises(ag.GraphStateError):
        graph.replay()


def silent(body):
    return pytest.param(body, False)


def warned(body):
    return pytest.param(body, True)


@pytest.mark.promise("control-endless")
@pytest.mark.parametrize(
    ("body", "warns"),
    [
        warned(lambda flag, other: None),
        warned(lambda flag, other: ag.current_stream().fill(other, 1, 4)),
        warned(lambda flag, other: ag.current_stream().copy(other, flag)),
        warned(lambda flag, other: launch(other.fill, 1)),
        silent(lambda flag, other: ag.current_stream().fill(flag, 0)),
        silent(lambda flag, other: ag.current_stream().fill(flag.ctypes.data, 0, 1)),
        silent(lambda flag, other: ag.current_stream().copy(flag, other)),
        silent(lambda flag, other: launch(np.add, other, 1, flag)),
        silent(lambda flag, other: launch(flag.fill, 0)),
        silent(lambda flag, other: launch(np.copyto, flag, other)),
        silent(lambda flag, other: launch(lambda: flag.fill(0))),
        silent(lambda flag, other: launch(partial(np.add, other, 1), flag)),
        silent(lambda flag, other: launch(np.vectorize(lambda x: flag.fill(0)), other)),
        silent(lambda flag, other: launch(np.frompyfunc(lambda x: flag.fill(0), 1, 1), other)),
        silent(lambda flag, other: launch(np.apply_along_axis, lambda x: flag.fill(0), 0, other)),
    ],
)
def test_a_loop_whose_flag_no_work_writes_is_warned_of(stream, body, warns):
    flag, other = np.zeros(1, "i4"), np.zeros(1, "i4")

    def capture(graph, of=flag, **how):
        with graph:
            launch(int)
            ag.while_(of, lambda: body(flag, other), **how)

    for of in (flag, (flag.ctypes.data, "int32")):
        for graph in (ag.Graph(keep_graph=True), ag.Graph(observe=ag.diagnose())):
            expected = pytest.warns(
                RuntimeWarning, match=r"the loop at .*: no work in its body writes its flag"
            )
            with expected if warns else nullcontext():
                capture(graph, of)
    capture(ag.Graph())
    capture(ag.Graph(keep_graph=True), limit=3)


def test_what_an_eager_call_and_a_loop_inside_write_is_not_warned_of(stream):
    flag, inner, graph = np.ones(1, "i4"), np.ones(1, "i4"), ag.Graph(keep_graph=True)
    with ag.graph(graph, breaks=True):
        ag.while_(flag, lambda: ag.eager(flag.fill)(0))
    flag[0] = 1
    with ag.Graph(keep_graph=True):
        ag.while_(flag, lambda: ag.while_(inner, lambda: (launch(inner.fill, 0), launch(flag.fill, 0))))
    with (
        pytest.warns(RuntimeWarning, match="no work in its body writes its flag"),
        ag.Graph(keep_graph=True),
    ):
        ag.while_(flag, lambda: ag.while_(inner, lambda: launch(inner.fill, 0)))


def test_what_observers_have_found_stays_with_all_segments(stream):
    n, graph = np.full(1, 2), ag.Graph(observe=[ag.progress(), ag.ownership()])
    graph.watch(watched := np.zeros(1))
    with graph:
        ag.note_collective("all_reduce", "float32", 4)
        launch(int)
        countdown(n)
        launch(int)
    assert len(graph.collectives) == 1
    graph.replay()
    stream.synchronize()
    assert str(markers_of(graph).place()) == "the last run has ended"
    del watched
    with pytest.raises(ag.GraphStateError):
        graph.replay()


def test_progress_of_a_graph_whose_body_did_not_run(stream):
    n, graph = np.zeros(1, int), ag.Graph(observe=ag.progress())
    with graph:
        countdown(n)
        launch(int)
    graph.replay()
    stream.synchronize()
    assert str(markers_of(graph).place()) == "the last run has ended"
    with ag.Graph(observe=ag.progress(), keep_graph=True) as graph, ag.label("loop"):
        countdown(n)
    assert [(each.start, each.stop) for each in graph.describe().labels] == [(0, 1)]


def test_an_eager_call_in_a_body_that_does_not_run_is_refused(stream):
    graph = ag.Graph()
    with (
        pytest.raises(ag.CaptureError, match="is in a body that does not run in this capture"),
        ag.graph(graph, breaks=True),
    ):
        ag.while_(np.zeros(1, bool), ag.eager(int))
    assert graph.state == "empty"
    assert ag.while_(np.zeros(1, bool), int).count == 0


@pytest.mark.promise("control-refuses")
def test_what_a_graph_with_loops_does_not_do(stream):
    n, other = np.zeros(1, "i4"), ag.Stream(backend="cpu")
    graph = ag.Graph(keep_graph=True)
    with graph, ag.label("all"):
        launch(int)
        countdown(n, lambda: launch(int))
    for name in ("bind", "clone", "instantiate", "raw_graph", "raw_executable"):
        with pytest.raises(ag.GraphStateError, match="loops or branches that the host tests"):
            getattr(graph, name)()
    with ag.Graph(keep_graph=True) as plain:
        launch(int)
    for one, two in ((graph, plain), (plain, graph)):
        with pytest.raises(ag.GraphStateError, match="is not changed in place"):
            one.update(two)
    with (
        pytest.raises(ag.GraphStateError, match="is not changed in place"),
        plain.recapture(),
    ):
        countdown(n)
    with (
        pytest.raises(ag.CaptureError, match="calls Python between its segments"),
        ag.Graph(stream=other) as outer,
    ):
        graph.replay(other)
    assert outer.state == "empty"
    assert plain.num_nodes == 1
    assert graph.check().findings == ()
    assert graph.memory().nodes == 3
    assert [(each.name, each.start, each.stop) for each in graph.describe().labels] == [("all", 0, 2)]
    assert ag.diff(graph.describe(), graph.describe()) == ag.diff(plain.describe(), plain.describe())
    profile = graph.profile(replays=2)
    assert len(profile.times) == 2
    with pytest.raises(ag.UnsupportedError, match="loops or branches that the host tests, can't be copied"):
        graph.profile(replays=2, kernels=True)
    graph.reset()


def test_flag_and_carried_arrays_live_as_long_as_the_graph(stream):
    class Array(np.ndarray):
        pass

    flag, x = np.zeros(1, bool).view(Array), np.zeros(1).view(Array)
    alive = [weakref.ref(each) for each in (flag, x)]
    graph = ag.Graph()
    with graph:
        loop = ag.while_(flag, lambda x: x + 1, x)
    del flag, x
    gc.collect()
    assert None not in [each() for each in alive]
    graph.replay()
    stream.synchronize()
    assert loop.count == 0
    graph.reset()
    assert [each() for each in alive] == [None, None]
    with pytest.raises(ag.GraphStateError, match="the graph of this loop was reset, or has got other work"):
        loop.count  # noqa: B018


def test_a_graphed_function_may_have_loops(stream):
    @ag.graphed
    def power(x, n):
        count, y = n.copy() if ag.current_graph() is None else np.empty_like(n), np.empty_like(x)
        launch(np.copyto, count, n)
        launch(y.fill, 1)
        countdown(count, lambda: launch(np.multiply, y, x, y))
        return y

    for x, n in ((2.0, 5), (3.0, 2), (7.0, 0)):
        found = power(np.array([x]), np.array([n]))
        stream.synchronize()
        assert found[0] == x**n


def test_without_a_stream_the_flag_is_read_and_the_body_called():
    n, log = np.full(1, 3), []
    assert ag.while_(n, lambda: (n.__isub__(1), log.append(1))).count == 3
    ag.cond(n, lambda: log.append("then"), lambda: log.append("otherwise"))
    ag.cond(n, lambda: log.append("then"))
    assert log == [1, 1, 1, "otherwise"]
    with pytest.raises(TypeError, match="is read on the current stream; make one current"):
        ag.cond((n.ctypes.data, "int64"), int)
    with pytest.raises(TypeError, match="is read on the current stream; make one current"):
        ag.cond(array("i", [1]), int)


def with_loops(graph, log, flag):
    with graph:
        launch(log.append, 1)
        with ag.label("part"):
            countdown(flag, lambda: launch(log.append, 2))
            ag.cond(flag, lambda: launch(log.append, 3), lambda: launch(log.append, 4))


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_at_any_line_of_a_capture_leaves_no_trace(error):
    with ag.Stream(backend="cpu"):
        with_loops(ag.Graph(), [], np.zeros(1, bool))
    for at in sample("lines"):
        stream, pool, flag = ag.Stream(backend="cpu"), ag.graph_pool_handle(), np.zeros(1, "i4")
        graph, log, interrupter = ag.Graph(pool=pool, stream=stream), [], Interrupter(at, error)
        interrupter.strike(with_loops, graph, log, flag)
        if not (where := interrupter.where):
            break
        assert graph.state in ("empty", "ready"), where
        nothing_is_captured(where)
        stream.synchronize()
        graph.reset()
        assert log == [], where
        with stream, graph:
            stream.launch(log.append, 5)
        graph.replay()
        stream.synchronize()
        assert log == [5], where
    assert at > 100


def test_an_interrupt_at_any_line_of_a_replay_leaves_a_graph_that_works(stream):
    log, graph, flag = [], ag.Graph(stream=stream), np.zeros(1, "i4")
    with_loops(graph, log, flag)
    for at in sample("lines"):
        interrupter, flag[0] = Interrupter(at, KeyboardInterrupt), 2
        interrupter.strike(graph.replay)
        if not (where := interrupter.where):
            break
        assert ag.current_stream() is stream, where
        stream.synchronize()
        log.clear()
        flag[0] = 2
        graph.replay()
        stream.synchronize()
        assert log == [1, 2, 2, 4], where
    assert at > 20
