"""`graphed` on the CPU backend: how to decorate, when it captures, what comes out, what goes wrong."""

from __future__ import annotations

import functools
import gc
import inspect
import warnings
import weakref

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._core import pools
from accelerator_graph.interop import registry
from graphed.functions import Outputs, Pair, Point, doubled, launch, twice

INTERFACE = {"data": (1, False), "shape": (1,), "typestr": "<f4", "version": 3}


@pytest.mark.promise("one-graph-for-each-signature")
def test_eager_then_captured_then_replayed(stream):
    double, runs = doubled(warmup=3)
    for i in range(7):
        y = double(np.arange(4.0) + i)
        stream.synchronize()
        assert y.tolist() == [2.0 * (i + k) for k in range(4)]
    assert len(runs) == 4
    assert double.cache_info() == ag.CacheInfo(4, 3, 1, 0, 1, 16)


@pytest.mark.promise("work-runs-once-a-call")
def test_work_happens_once_for_each_call(stream):
    counter = np.zeros(1)

    @ag.graphed
    def step():
        launch(np.add, counter, 1, counter)

    for i in range(6):
        assert step() is None
        stream.synchronize()
        assert counter[0] == i + 1


def test_the_ways_to_decorate(stream):
    def f(x, y: int = 2) -> int:
        """Do it."""
        return x + y

    f.mark = 5
    for graphed in (ag.graphed(f), ag.graphed(warmup=1)(f), ag.graphed(f, warmup=1)):
        assert (graphed.__name__, graphed.__doc__, graphed.mark) == ("f", "Do it.", 5)
        assert graphed.__wrapped__ is f
        assert inspect.signature(graphed) == inspect.signature(f)
        assert "f" in repr(graphed)
        assert graphed(1) == 3


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"warmup": -1}, ValueError, "warmup must be at least 0, not -1"),
        ({"warmup": 1.5}, TypeError, "warmup must be an int"),
        ({"warmup": True}, TypeError, "warmup must be an int"),
        ({"max_graphs": 0}, ValueError, "max_graphs must be at least 1, not 0"),
        ({"key": 3}, TypeError, "key must be a callable"),
        ({"outputs": "none"}, ValueError, "outputs must be 'copy' or 'static', not 'none'"),
        ({"on_capture_error": "ignore"}, ValueError, "on_capture_error must be .* not 'ignore'"),
        ({"pool": (1, 2)}, ValueError, "is not a pool id"),
        ({"pool": 3}, TypeError, "a pool must be"),
    ],
)
def test_bad_options_are_refused_at_once(options, error, words):
    with pytest.raises(error, match=words):
        ag.graphed(**options)


def test_numbers_of_numpy_are_numbers(stream):
    double, _ = doubled(warmup=np.int64(1), max_graphs=np.uint8(1))
    for n in (1, 1, 2, 2):
        double(np.ones(n))
    assert double.cache_info() == ag.CacheInfo(2, 2, 2, 1, 1, 1)


async def coroutine(): ...


def generator():
    yield


class AsyncCall:
    async def __call__(self): ...


class GeneratorCall:
    def __call__(self):
        yield


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (3, "must be a callable, not 3"),
        (coroutine, "is a coroutine"),
        (generator, "or a generator"),
        (functools.partial(generator), "or a generator"),
        (AsyncCall(), "is a coroutine"),
        (GeneratorCall(), "or a generator"),
        (AsyncCall, "is a class.* decorate one of its methods"),
        (int, "is a class"),
        (staticmethod(len), "put @graphed below @staticmethod"),
        (classmethod(len), "put @graphed below @classmethod"),
        (property(len), "put @graphed below @property"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"warmup": 1}])
def test_what_can_not_be_captured_is_refused_at_decoration(function, words, options):
    with pytest.raises(TypeError, match="graphed: .*" + words):
        ag.graphed(function, **options)


# ---- what comes out ----------------------------------------------------------------------------


def test_copied_outputs_are_the_callers(stream):
    double, _ = doubled(warmup=0)
    results = [double(np.full(3, float(i))) for i in range(4)]
    stream.synchronize()
    assert [y.tolist() for y in results] == [[2.0 * i] * 3 for i in range(4)]


def test_static_outputs_are_always_the_same(stream):
    double, _ = doubled(warmup=0, outputs="static")
    results = [double(np.full(3, float(i))) for i in range(4)]
    stream.synchronize()
    assert all(y is results[0] for y in results)
    assert results[0].tolist() == [6.0] * 3


def test_static_results_in_tuples_are_not_made_anew(stream):
    @ag.graphed(warmup=0, outputs="static")
    def f(x):
        out = np.empty_like(x)
        launch(np.add, x, 1, out)
        return out, (out, None)

    y = f(np.ones(1))
    assert f(np.full(1, 4.0)) is y
    stream.synchronize()
    assert y[1][0].tolist() == [5.0]


@pytest.mark.parametrize("outputs", ["copy", "static"])
def test_results_of_every_kind(stream, outputs):
    @ag.graphed(warmup=1, outputs=outputs)
    def f(x):
        out = np.empty_like(x)
        launch(np.negative, x, out)
        return Pair({"a": out, "n": None}, Point([out, 3, "s"], (out[:1], x)))

    for i in range(4):
        x = np.full(2, float(i))
        y = f(x)
        stream.synchronize()
        assert type(y) is Pair
        assert type(y.right) is Point
        assert y.left["a"].tolist() == [-i, -i]
        assert y.left["n"] is None
        assert y.right.x[0] is y.left["a"]
        assert y.right.x[1:] == [3, "s"]
        assert y.right.y[0].tolist() == [-i]
        assert y.right.y[1] is x
        assert x.tolist() == [i, i]


@pytest.mark.parametrize("outputs", ["copy", "static"])
def test_a_result_that_is_a_dataclass_and_a_dict(stream, outputs):
    @ag.graphed(warmup=1, outputs=outputs)
    def f(x):
        y = twice(x)
        found = Outputs(y, (y, [x]))
        found["more"] = twice(y)
        return found

    for i in range(4):
        x = np.full(1, float(i))
        y = f(x)
        stream.synchronize()
        assert list(y) == ["logits", "hidden", "more"]
        assert y.logits is y["logits"]
        assert y.hidden is y["hidden"]
        assert y.hidden[0] is y.logits
        assert y.hidden[1][0] is x
        assert (y["logits"][0], y["more"][0]) == (2 * i, 4 * i)


@pytest.mark.parametrize(
    ("wrap", "change"),
    [
        (lambda y: [y], lambda result: result.append(3)),
        (lambda y: {"y": y}, lambda result: result.update(z=3)),
        (lambda y: (1, [y]), lambda result: result[1].clear()),
        (lambda y: Pair(y, [2]), lambda result: result.right.append(3)),
        (lambda y: (y, 2), None),
    ],
)
def test_what_the_caller_does_to_a_static_result_is_not_in_the_next_one(stream, wrap, change):
    f = ag.graphed(lambda x: wrap(twice(x)), warmup=0, outputs="static")
    first = f(np.ones(3))
    stream.synchronize()
    shown = repr(first)
    if change is None:
        assert f(np.ones(3)) is first
    else:
        change(first)
    for _ in range(2):
        result = f(np.ones(3))
        stream.synchronize()
        assert repr(result) == shown
        if change is not None:
            change(result)


@pytest.mark.promise("an-argument-as-the-result")
def test_an_argument_that_is_written_and_returned(stream):
    @ag.graphed(warmup=1)
    def add(x):
        launch(np.add, x, 1, x)
        return x

    x = np.zeros(3)
    for _ in range(5):
        assert add(x) is x
    stream.synchronize()
    assert x.tolist() == [5.0] * 3


def test_an_argument_that_is_returned_and_can_not_be_written(stream):
    @ag.graphed(warmup=0)
    def f(x):
        launch(int)
        return x

    x = np.ones(3)
    x.flags.writeable = False
    for _ in range(2):
        assert f(x) is x
    stream.synchronize()


def test_arguments_are_not_kept_and_not_changed(stream):
    double, _ = doubled(warmup=0)
    x = np.ones(3)
    double(x)
    y = double(np.full(3, 5.0))
    stream.synchronize()
    assert x.tolist() == [1.0] * 3
    assert y.tolist() == [10.0] * 3
    ref = weakref.ref(x)
    del x
    gc.collect()
    assert ref() is None


def test_python_buffers(stream):
    def flip(x, out):
        out[:] = bytes(255 - each for each in x)

    @ag.graphed(warmup=0)
    def f(x):
        out = bytearray(len(x))
        launch(flip, x, out)
        return out

    for i in range(3):
        y = f(bytearray([i, 0]))
        stream.synchronize()
        assert y == bytes([255 - i, 255])


# ---- what goes wrong ---------------------------------------------------------------------------


@pytest.mark.promise("failed-capture-keeps-nothing")
def test_an_error_in_the_function_during_the_capture(stream):
    fail = True

    @ag.graphed(warmup=0, on_capture_error="eager")
    def f(x):
        launch(int)
        if fail:
            raise KeyError("boom")
        return 3

    for _ in range(2):
        with pytest.raises(KeyError, match="boom"):
            f(np.ones(1))
        assert f.cache_info() == ag.CacheInfo(0, 0, 0, 0, 0, 16)
    fail = False
    assert f(np.ones(1)) == 3
    assert f.cache_info().captures == 1


def breaking(**options):
    runs = []

    @ag.graphed(warmup=1, **options)
    def f(x):
        runs.append(x)
        launch(int)
        ag.current_stream().synchronize()
        return x

    return f, runs


def test_a_capture_error_is_raised(stream, monkeypatch):
    monkeypatch.delenv("ACCELERATOR_GRAPH_DIAGNOSE", raising=False)
    f, runs = breaking()
    f(1)
    for _ in range(2):
        with pytest.raises(ag.CaptureError):
            f(1)
    assert len(runs) == 4  # the warm-up, the capture and a second one that finds the call, and the next call
    assert not ag.is_current_stream_capturing()


def test_a_capture_error_means_eager_from_then_on(stream):
    f, runs = breaking(on_capture_error="eager")
    f(1)
    with pytest.warns(RuntimeWarning, match="runs eagerly from now on") as found:
        assert f(1) == 1
    assert found[0].filename == __file__
    assert len(runs) == 3  # the warm-up, the capture, and the same call eagerly
    assert [f(1), f(1)] == [1, 1]
    assert len(runs) == 5
    assert f.cache_info() == ag.CacheInfo(0, 4, 0, 0, 0, 16)


@pytest.fixture
def no_frameworks(monkeypatch):
    monkeypatch.setattr(registry, "initialised", list)


def test_no_current_stream(no_frameworks):
    double, runs = doubled()
    for _ in range(2):
        with pytest.raises(ag.CaptureError, match="while no stream is current") as info:
            double(np.ones(2))
        assert info.value.reason == "default_stream"
        assert "with accelerator_graph.Stream():" in str(info.value)
    assert runs == []
    with ag.Stream(backend="cpu") as s:
        for _ in range(4):
            double(np.ones(2))
        s.synchronize()
    assert double.cache_info() == ag.CacheInfo(1, 3, 1, 0, 1, 16)
    with pytest.raises(ag.CaptureError, match="while no stream is current"):
        double(np.ones(2))


def test_no_current_stream_means_eager_where_capture_errors_do(no_frameworks):
    runs = []

    @ag.graphed(on_capture_error="eager")
    def f(x):
        runs.append(x)
        return x

    with pytest.warns(RuntimeWarning, match="runs eagerly from now on .*no stream is current") as found:
        assert f(1) == 1
    assert len(found) == 1
    assert found[0].filename == __file__
    assert f(1) == 1
    assert runs == [1, 1]


@pytest.mark.parametrize("warmup", [0, 3])
def test_an_argument_that_no_replay_can_read_is_refused_before_the_function_runs(stream, warmup):
    class Device:
        __cuda_array_interface__ = INTERFACE

    double, runs = doubled(warmup=warmup)
    with pytest.raises(TypeError, match=r"argument x\[0\] is in device memory"):
        double([Device()])
    assert runs == []
    assert double.cache_info() == ag.CacheInfo(0, 0, 0, 0, 0, 16)


def test_an_output_that_can_not_be_copied(stream):
    class Opaque:
        __cuda_array_interface__ = INTERFACE

        def __dlpack_device__(self):
            return (1, 0)

    def f():
        made = Opaque()
        launch(id, made)
        return made

    pool = ag.graph_pool_handle()
    with pytest.raises(TypeError, match="can't be copied; use outputs='static'") as info:
        ag.graphed(f, warmup=0, pool=pool)()
    assert info.value.__traceback__ is not None  # which holds the graph: it was reset
    assert pool not in pools._pools
    static = ag.graphed(f, warmup=0, outputs="static")
    assert static() is static()


# ---- in captures -------------------------------------------------------------------------------


def test_a_graphed_function_in_another_ones_capture(stream):
    double, runs = doubled(warmup=0)

    @ag.graphed(warmup=0)
    def outer(x):
        return double(double(x))

    for i in range(3):
        y = outer(np.full(2, float(i)))
        stream.synchronize()
        assert y.tolist() == [4.0 * i] * 2
    assert len(runs) == 2
    assert double.cache_info().captures == 0


def test_recursion(stream):
    @ag.graphed(warmup=1)
    def down(x, n):
        launch(np.add, x, 1, x)
        return down(x, n - 1) if n else x

    x = np.zeros(1)
    for i in range(6):
        assert down(x, 3) is x
        stream.synchronize()
        assert x[0] == 4 * (i + 1)


@pytest.mark.promise("graphed-in-a-capture")
def test_in_a_capture_of_the_users(stream):
    double, runs = doubled(warmup=0)
    x = np.ones(2)
    double(x)
    with ag.Graph() as g:
        y = double(x)
    x[:] = 4
    g.replay()
    stream.synchronize()
    assert y.tolist() == [8.0, 8.0]
    assert len(runs) == 2


def test_a_call_in_a_capture_is_no_warm_up(stream):
    double, _ = doubled(warmup=1)
    with ag.Graph():
        double(np.ones(2))
        double(np.ones(2))
    assert double.cache_info() == ag.CacheInfo(0, 0, 0, 0, 0, 16)


@pytest.mark.promise("graphed-in-a-capture")
@pytest.mark.parametrize("captured", [False, True])
def test_in_a_capture_that_the_library_does_not_know_of(stream, captured):
    double, runs = doubled(warmup=0)
    x = np.ones(2)
    if captured:
        double(x)
        stream.synchronize()
    runs.clear()
    backend, native = stream._backend, stream._native
    token = backend.capture_begin(native, "default")
    y = double(x)
    graph = backend.capture_end(token)
    assert len(backend.nodes(graph)[0]) == 1
    assert runs == [2]
    assert double.cache_info().replays == captured
    backend.replay(backend.instantiate(graph), native)
    stream.synchronize()
    assert y.tolist() == [2.0, 2.0]


def test_no_warning_on_the_way(stream):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        double, _ = doubled(warmup=0)
        double(np.ones(3))
