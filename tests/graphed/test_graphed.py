"""`graphed` on the CPU backend, over NumPy arrays and plain Python."""

from __future__ import annotations

import functools
import gc
import inspect
import os
import sys
import threading
import warnings
import weakref
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._core import pools
from accelerator_graph._graphed.recorded_call import RecordedCall
from accelerator_graph.interop import registry
from processes import execute

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 20
INTERFACE = {"data": (1, False), "shape": (1,), "typestr": "<f4", "version": 3}


@pytest.fixture
def stream():
    with ag.Stream(backend="cpu") as stream:
        yield stream
        stream.synchronize()


def doubled(**options):
    """A graphed function that doubles an array, and the list of the factors that it was run with."""
    runs = []

    @ag.graphed(**options)
    def double(x, factor=2, *rest, **more):
        runs.append(factor)
        out = np.empty_like(x)
        ag.current_stream().launch(np.multiply, x, factor, out)
        return out

    return double, runs


def replays(function, *args, **kwargs):
    """Whether a call replays a graph."""
    before = function.cache_info()
    function(*args, **kwargs)
    after = function.cache_info()
    return (after.replays, after.captures) == (before.replays + 1, before.captures)


def test_eager_then_captured_then_replayed(stream):
    double, runs = doubled(warmup=3)
    for i in range(7):
        y = double(np.arange(4.0) + i)
        stream.synchronize()
        assert y.tolist() == [2.0 * (i + k) for k in range(4)]
    assert len(runs) == 4
    assert double.cache_info() == ag.CacheInfo(4, 3, 1, 0, 1, 16)


def test_work_happens_once_for_each_call(stream):
    counter = np.zeros(1)

    @ag.graphed
    def step():
        ag.current_stream().launch(np.add, counter, 1, counter)

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


# ---- the signature -----------------------------------------------------------------------------


def test_every_way_to_give_an_argument_is_one_signature(stream):
    double, _ = doubled(warmup=0)
    x = np.ones(3)
    double(x)
    for args, kwargs in [((x, 2), {}), ((x,), {"factor": 2}), ((), {"factor": 2, "x": x})]:
        assert replays(double, *args, **kwargs)
    double(x, 2, 3, a=1, b=2)
    assert replays(double, x, 2, 3, b=2, a=1)
    assert double.cache_info().captures == 2
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        double(factor=3)


def test_keyword_arguments_reach_the_right_parameters(stream):
    seen = []

    @ag.graphed(warmup=1)
    def f(a, /, b, *rest, c, **more):
        seen.append((a, b, rest, c, more))
        ag.current_stream().launch(int)

    for _ in range(2):
        f(1, 2, 3, 4, c=5, e=7, d=6)
    f(1, c=3, b=2)
    assert seen == [(1, 2, (3, 4), 5, {"d": 6, "e": 7})] * 2 + [(1, 2, (), 3, {})]


@dataclass
class Pair:
    left: Any
    right: Any


Point = namedtuple("Point", "x y")

ONE = np.ones((4, 4))
DIFFERENT = [
    ONE,
    np.ones((4, 5)),
    np.ones(16),
    ONE.astype(np.float32),
    np.asfortranarray(ONE),
    np.ones((8, 4))[::2],
    [ONE],
    (ONE,),
    {"a": ONE},
    {"b": ONE},
    [ONE, ONE],
    [ONE, [ONE]],
    Pair(ONE, 1),
    Pair(1, ONE),
    Point(ONE, 1),
    (ONE, 1),
    1,
    1.0,
    True,
    1 + 0j,
    np.float64(1),
    0.0,
    -0.0,
    np.float32(0.0),
    np.float32(-0.0),
    np.complex64(complex(1, 0.0)),
    np.complex64(complex(1, -0.0)),
    frozenset({1}),
    frozenset({True}),
    {1: 0},
    {True: 0},
    float("inf"),
    "1",
    b"1",
    None,
    (),
    [],
    {},
    int,
    bytearray(3),
    bytearray(4),
]


def test_what_differs_has_a_graph_of_its_own(stream):
    @ag.graphed(warmup=0, max_graphs=99)
    def f(x):
        ag.current_stream().launch(int)

    for i, x in enumerate(DIFFERENT):
        f(x)
        assert f.cache_info().captures == i + 1, x
    for x in DIFFERENT:
        assert replays(f, x), x


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, complex, np.complex64])
def test_nan_is_one_signature(stream, kind):
    @ag.graphed(warmup=0)
    def f(x):
        ag.current_stream().launch(int)

    f(kind("nan"))
    assert replays(f, kind("nan"))


def test_arrays_in_containers_are_copied_too(stream):
    @ag.graphed(warmup=1)
    def f(pair, rest):
        out = np.empty(2)
        ag.current_stream().fill(out, 0)
        for x in (pair.left["a"], pair.right[0], *rest):
            ag.current_stream().launch(np.add, out, x, out)
        return out

    for i in range(4):
        arrays = [np.full(2, 10.0**k * i) for k in range(4)]
        y = f(Pair({"a": arrays[0], "n": None}, (arrays[1], "x")), arrays[2:])
        stream.synchronize()
        assert y.tolist() == [1111.0 * i] * 2
    assert f.cache_info().captures == 1


@pytest.mark.parametrize(
    ("args", "kwargs", "path"),
    [
        (({1},), {}, "argument x is"),
        ((1, [2, {"a": {3}}]), {}, r"argument factor\[1\]\['a'\] is"),
        ((1, 2, 3, set()), {}, r"argument rest\[1\] is"),
        ((1,), {"z": Pair(1, set())}, r"argument z.right is"),
        ((memoryview(bytearray(3)),), {}, "argument x is"),
    ],
)
def test_an_argument_that_no_graph_can_be_found_by(stream, args, kwargs, path):
    double, runs = doubled()
    with pytest.raises(TypeError, match=path + " neither an array nor hashable"):
        double(*args, **kwargs)
    assert runs == []


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


@pytest.mark.parametrize("outputs", ["copy", "static"])
def test_results_of_every_kind(stream, outputs):
    @ag.graphed(warmup=1, outputs=outputs)
    def f(x):
        out = np.empty_like(x)
        ag.current_stream().launch(np.negative, x, out)
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


def test_an_argument_that_is_written_and_returned(stream):
    @ag.graphed(warmup=1)
    def add(x):
        ag.current_stream().launch(np.add, x, 1, x)
        return x

    x = np.zeros(3)
    for _ in range(5):
        assert add(x) is x
    stream.synchronize()
    assert x.tolist() == [5.0] * 3


def test_an_argument_that_is_returned_and_can_not_be_written(stream):
    @ag.graphed(warmup=0)
    def f(x):
        ag.current_stream().launch(int)
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
        ag.current_stream().launch(flip, x, out)
        return out

    for i in range(3):
        y = f(bytearray([i, 0]))
        stream.synchronize()
        assert y == bytes([255 - i, 255])


# ---- dropping ----------------------------------------------------------------------------------


def test_the_least_recently_used_goes(stream):
    double, runs = doubled(warmup=0, max_graphs=2)
    one, two, three = (np.ones(n) for n in (1, 2, 3))
    for x in (one, two, one):
        double(x)
    oldest = min(double._graphs.values(), key=lambda recorded: recorded.used)._graph
    double(three)
    assert oldest.state == "empty"
    assert replays(double, one)
    assert replays(double, three)
    assert len(runs) == 3
    y = double(two)
    stream.synchronize()
    assert y.tolist() == [2.0, 2.0]
    assert double.cache_info() == ag.CacheInfo(7, 0, 4, 2, 2, 2)


def test_one_graph_at_most(stream):
    double, _ = doubled(warmup=0, max_graphs=1)
    for n in (1, 2, 1):
        y = double(np.ones(n))
        stream.synchronize()
        assert y.tolist() == [2.0] * n
    assert double.cache_info().dropped == 2


def test_a_dropped_signature_warms_up_again(stream):
    double, runs = doubled(warmup=1, max_graphs=1)
    for n in (1, 1, 2, 2, 1):
        double(np.ones(n))
    assert double.cache_info().eager == 3
    assert len(runs) == 5


def test_clear(stream):
    double, _ = doubled(warmup=1)
    for _ in range(3):
        double(np.ones(2))
    (recorded,) = double._graphs.values()
    double.clear()
    assert recorded._graph.state == "empty"
    assert double.cache_info() == ag.CacheInfo(0, 0, 0, 0, 0, 16)
    for i in range(4):
        y = double(np.full(2, float(i)))
        stream.synchronize()
        assert y.tolist() == [2.0 * i] * 2
    assert double._replay(recorded, None, []) is not None  # what another thread may just have found
    with pytest.raises(ag.GraphStateError, match="this thread is capturing"), ag.Graph():
        double.clear()


def test_clear_waits_for_the_calls(stream):
    double, _ = doubled(warmup=0, outputs="static")
    double(np.ones(2))
    gate = threading.Event()
    stream.launch(gate.wait, LIMIT)
    y = double(np.full(2, 4.0))
    timer = threading.Timer(0.05, gate.set)
    timer.start()
    double.clear()
    assert y.tolist() == [8.0, 8.0]
    timer.join(LIMIT)


def test_the_graphs_share_a_pool(stream):
    pool = ag.graph_pool_handle()
    for options in ({}, {"pool": pool}):
        double, _ = doubled(warmup=0, **options)
        for n in (1, 2):
            double(np.ones(n))
        used = {recorded._graph.pool() for recorded in double._graphs.values()}
        assert len(used) == 1
        assert not options or used == {pool}
        captured = {recorded._graph.stream._native for recorded in double._graphs.values()}
        assert len(captured) == 1  # a framework reuses memory on one stream only


def test_a_pool_is_not_used_again_once_it_has_ended(stream):
    double, _ = doubled(warmup=0, max_graphs=1)
    used = []
    for n in (1, 2):
        double(np.ones(n))
        used += [recorded._graph.pool() for recorded in double._graphs.values()]
        double.clear()
    assert len(set(used)) == 2


def test_a_function_that_goes_takes_its_graphs_along(stream):
    double, _ = doubled(warmup=0)
    double(np.ones(3))
    (recorded,) = double._graphs.values()
    refs = weakref.ref(double), weakref.ref(recorded._graph), weakref.ref(recorded._statics[0])
    del double, recorded
    stream.synchronize()
    gc.collect()
    stream.synchronize()
    assert [ref() for ref in refs] == [None] * 3


# ---- what goes wrong ---------------------------------------------------------------------------


def test_an_error_in_the_function_during_the_capture(stream):
    fail = True

    @ag.graphed(warmup=0, on_capture_error="eager")
    def f(x):
        ag.current_stream().launch(int)
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
        ag.current_stream().launch(int)
        ag.current_stream().synchronize()
        return x

    return f, runs


def test_a_capture_error_is_raised(stream):
    f, runs = breaking()
    f(1)
    for _ in range(2):
        with pytest.raises(ag.CaptureError):
            f(1)
    assert len(runs) == 3
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
def no_frameworks():
    with registry.left_out():
        yield


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


def test_an_argument_that_no_replay_can_read_is_refused_before_the_function_runs(stream):
    class Device:
        __cuda_array_interface__ = INTERFACE

    double, runs = doubled()
    with pytest.raises(TypeError, match=r"argument x\[0\] is an array in device memory"):
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
        ag.current_stream().launch(id, made)
        return made

    pool = ag.graph_pool_handle()
    with pytest.raises(TypeError, match="can't be copied; use outputs='static'") as info:
        ag.graphed(f, warmup=0, pool=pool)()
    assert info.value.__traceback__ is not None  # which holds the graph: it was reset
    assert pool not in pools._pools
    static = ag.graphed(f, warmup=0, outputs="static")
    assert static() is static()


def test_device_memory_is_not_for_this_backend(stream):
    class Device:
        __cuda_array_interface__ = INTERFACE

    double, runs = doubled(warmup=0)
    with pytest.raises(TypeError, match=r"argument x\[0\] is an array in device memory"):
        double([Device()])
    assert runs == []


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
        ag.current_stream().launch(np.add, x, 1, x)
        return down(x, n - 1) if n else x

    x = np.zeros(1)
    for i in range(6):
        assert down(x, 3) is x
        stream.synchronize()
        assert x[0] == 4 * (i + 1)


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
    assert backend.node_count(graph) == 1
    assert runs == [2]
    assert double.cache_info().replays == captured
    backend.replay(backend.instantiate(graph), native)
    stream.synchronize()
    assert y.tolist() == [2.0, 2.0]


# ---- methods -----------------------------------------------------------------------------------


class Scale:
    def __init__(self, factor):
        self.factor = factor
        self.runs = 0

    @ag.graphed(warmup=1)
    def apply(self, x, *, offset=0):
        self.runs += 1
        out = np.empty_like(x)
        ag.current_stream().launch(np.multiply, x, self.factor, out)
        ag.current_stream().launch(np.add, out, offset, out)
        return out

    __hash__ = None


def test_a_method_has_graphs_for_every_instance(stream):
    two, three = Scale(2), Scale(3)
    for i in range(4):
        y, z = two.apply(np.full(1, float(i))), three.apply(np.full(1, float(i)), offset=1)
        stream.synchronize()
        assert (y[0], z[0]) == (2 * i, 3 * i + 1)
    assert (two.runs, three.runs) == (2, 2)
    assert two.apply.cache_info().graphs == 1
    assert isinstance(Scale.apply.cache_info(), ag.CacheInfo)
    two.apply.clear()
    assert two.apply.cache_info().graphs == 0
    assert three.apply.cache_info().graphs == 1
    ref = weakref.ref(three)
    stream.synchronize()
    del three
    gc.collect()
    assert ref() is None
    assert list(Scale.apply._instances) == [two.apply.__func__]


def test_static_and_class_methods(stream):
    class Two:
        factor = 2

        @staticmethod
        @ag.graphed(warmup=0)
        def static(x):
            ag.current_stream().launch(np.multiply, x, 2, x)
            return x

        @ag.graphed(warmup=0)
        def plain(self):
            ag.current_stream().launch(int)
            return 3

    x = np.ones(1)
    for _ in range(2):
        Two().static(x)
    stream.synchronize()
    assert x[0] == 4
    assert Two().plain() == 3


def test_instances_that_can_not_be_referenced_weakly():
    class Slots:
        __slots__ = ()

        @ag.graphed
        def f(self): ...

    with pytest.raises(TypeError, match="__weakref__"):
        Slots().f  # noqa: B018


# ---- buckets -----------------------------------------------------------------------------------


def test_calls_of_one_bucket_share_a_graph(stream):
    double, runs = doubled(warmup=1, key=lambda x, factor=2, *rest: len(x))
    for factor in (2, 3, 4):
        y = double(np.ones(3), factor)
    stream.synchronize()
    assert y.tolist() == [3.0] * 3  # the factor stays what it was in the capture
    assert runs == [2, 3]
    assert replays(double, np.ones(3), {1, 2})  # needs no hash


def test_a_bucket_refuses_other_arrays(stream):
    double, runs = doubled(warmup=2, key=lambda x, *rest: "all")
    double(np.ones(3))
    for _ in range(2):  # in the warm-up, and once there is a graph
        for x in (np.ones(4), np.ones(3, np.float32), [np.ones(3)], np.ones(6)[::2]):
            with pytest.raises(ValueError, match="let `key` tell them apart"):
                double(x)
        double(np.ones(3))
        double(np.ones(3))
    assert len(runs) == 3


def test_a_key_without_a_hash(stream):
    double, _ = doubled(key=lambda x: [1])
    with pytest.raises(TypeError, match=r"`key` returned \[1\], which is not hashable"):
        double(np.ones(1))


def test_an_error_of_the_key_passes(stream):
    double, _ = doubled(key=lambda x: x.no_such_attribute)
    with pytest.raises(AttributeError, match="no_such_attribute"):
        double(np.ones(1))


# ---- streams and threads -----------------------------------------------------------------------


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


def test_a_stream_that_was_closed_meanwhile():
    double, _ = doubled(warmup=0)
    for i in range(20):
        stream = ag.Stream(backend="cpu")
        with stream:
            y = double(np.full(2, float(i)))
            stream.synchronize()
            assert y.tolist() == [2.0 * i] * 2
        stream.close()


def test_one_call_at_a_time(monkeypatch):
    double, _ = doubled(warmup=0)
    with ag.Stream(backend="cpu"):
        double(np.ones(1))
    both, together = threading.Barrier(2), []

    def run(self, leaves, here):
        try:
            both.wait(0.2)
            together.append(1)
        except threading.BrokenBarrierError:
            pass

    monkeypatch.setattr(RecordedCall, "run", run)
    threads = [threading.Thread(target=double, args=(np.ones(1),), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert together == []


def test_clear_while_another_thread_captures_on_the_same_side_stream():
    double, _ = doubled(warmup=0)
    inside, cleared, results = threading.Event(), threading.Event(), []

    @ag.graphed(warmup=0)
    def slow(x):
        out = np.empty_like(x)
        ag.current_stream().launch(np.add, x, 1, out)
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
        double.clear()
    finally:
        cleared.set()
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert [y.tolist() for y in results] == [[2.0, 2.0]]
    assert double.cache_info().graphs == 0


def test_static_results_in_tuples_are_not_made_anew(stream):
    @ag.graphed(warmup=0, outputs="static")
    def f(x):
        out = np.empty_like(x)
        ag.current_stream().launch(np.add, x, 1, out)
        return out, (out, None)

    y = f(np.ones(1))
    assert f(np.full(1, 4.0)) is y
    stream.synchronize()
    assert y[1][0].tolist() == [5.0]


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

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert wrong == []
    info = double.cache_info()
    assert info.captures == 1
    assert info.replays + info.eager == 200


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_begins_again():
    done = execute([sys.executable, "-W", "error", "-c", FORKING])
    assert (done.returncode, done.stdout) == (0, "parent 6.0\nchild 8.0\n"), done.stderr


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


def test_no_warning_on_the_way(stream):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        double, _ = doubled(warmup=0)
        double(np.ones(3))
