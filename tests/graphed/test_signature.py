"""Which calls of a graphed function share a graph: how arguments are given and nested, and `key`."""

import functools
import itertools
import warnings

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._arrays.arrays import array_type_of
from accelerator_graph._arrays.signatures import has_repeats, repeats
from graphed.functions import Outputs, Pair, Point, doubled, launch, replays


@pytest.mark.promise("ways-to-give-an-argument")
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


def test_a_function_in_c_is_not_given_its_defaults(stream):
    """np.add has the defaults dtype=None and signature=None, and refuses both together."""
    x = np.ones(3)
    for function in (np.add, functools.partial(np.add, x)):
        given = (x, x) if function is np.add else (x,)
        assert (ag.graphed(function)(*given) == 2).all()


def test_keyword_arguments_reach_the_right_parameters(stream):
    seen = []

    @ag.graphed(warmup=1)
    def f(a, /, b, *rest, c, **more):
        seen.append((a, b, rest, c, more))
        launch(int)

    for _ in range(2):
        f(1, 2, 3, 4, c=5, e=7, d=6)
    f(1, c=3, b=2)
    assert seen == [(1, 2, (3, 4), 5, {"d": 6, "e": 7})] * 2 + [(1, 2, (), 3, {})]


def test_a_parameter_may_have_any_name(stream):
    @ag.graphed(warmup=0)
    def f(self, **more):
        launch(int)
        return self, more

    for _ in range(2):
        assert f(self=1, args=2, kwargs=3) == (1, {"args": 2, "kwargs": 3})
    assert (f.cache_info().captures, f.cache_info().replays) == (1, 2)


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


@pytest.mark.promise("one-graph-for-each-signature")
def test_what_differs_has_a_graph_of_its_own(stream):
    @ag.graphed(warmup=0, max_graphs=99)
    def f(x):
        launch(int)

    for i, x in enumerate(DIFFERENT):
        f(x)
        assert f.cache_info().captures == i + 1, x
    for x in DIFFERENT:
        assert replays(f, x), x


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, complex, np.complex64])
def test_nan_is_one_signature(stream, kind):
    @ag.graphed(warmup=0)
    def f(x):
        launch(int)

    f(kind("nan"))
    assert replays(f, kind("nan"))


def test_arrays_in_containers_are_copied_too(stream):
    @ag.graphed(warmup=1)
    def f(pair, rest):
        out = np.empty(2)
        ag.current_stream().fill(out, 0)
        for x in (pair.left["a"], pair.right[0], *rest):
            launch(np.add, out, x, out)
        return out

    for i in range(4):
        arrays = [np.full(2, 10.0**k * i) for k in range(4)]
        y = f(Pair({"a": arrays[0], "n": None}, (arrays[1], "x")), arrays[2:])
        stream.synchronize()
        assert y.tolist() == [1111.0 * i] * 2
    assert f.cache_info().captures == 1


def test_an_argument_that_is_a_dataclass_and_a_dict(stream):
    @ag.graphed(warmup=1)
    def f(given):
        out = np.empty(1)
        launch(np.add, given["logits"], given["more"], out)
        return out

    for i in range(4):
        given = Outputs(np.full(1, float(i)))
        given["more"] = np.full(1, 10.0)
        y = f(given)
        stream.synchronize()
        assert y[0] == 10 + i
    assert f.cache_info().captures == 1


@pytest.mark.promise("an-array-given-twice")
def test_one_array_given_several_times_is_one_in_the_graph(stream):
    @ag.graphed(warmup=1)
    def f(x, y, *more):
        launch(np.add, x, 1, x)
        launch(np.add, y, 1, y)
        return x, y

    for _ in range(4):
        x, y = np.zeros(2), np.zeros(2)
        assert f(x, x)[1] is x
        f(x, y)
        f(x, y, 3, 4, 5, x)
        f(x, y, x, y, x, y)
        stream.synchronize()
        assert (x.tolist(), y.tolist()) == ([5.0] * 2, [3.0] * 2)
    assert f.cache_info().captures == 4


@pytest.mark.parametrize("where", [(0, 0), (0, 1, 0), (0, 1, 2, 1), (0, 1, 2, 3, 4, 0)])
def test_which_arrays_are_the_same_is_part_of_the_signature(stream, where):
    arrays = [np.zeros(1) for _ in range(9)]

    @ag.graphed(warmup=0)
    def f(*given):
        launch(int)

    f(*[arrays[i] for i in where])
    f(*[arrays[-1 - i] for i in where])
    assert f.cache_info().captures == 1
    f(*arrays[: len(where)])
    assert f.cache_info().captures == 2
    bucket = ag.graphed(f.__wrapped__, warmup=0, key=lambda *given: 1)
    bucket(*arrays[: len(where)])
    with pytest.raises(ValueError, match="let `key` tell them apart"):
        bucket(*[arrays[i] for i in where])


def test_an_array_that_says_only_on_a_device_where_it_is(stream):
    class Somewhere:
        __hash__ = None

        def __init__(self, on_device):
            self.on_device = on_device

        def __dlpack__(self): ...

        def __getattr__(self, name):
            if name == "__cuda_array_interface__" and self.on_device:
                return {"data": (1, False), "shape": (1,), "typestr": "<f4"}
            raise AttributeError(name)

    def read(family, on_device):
        return family.read(Somewhere(on_device), [])

    assert read(array_type_of(Somewhere(True)), True) == read(array_type_of(Somewhere(False)), True)
    f = ag.graphed(lambda x: None)
    with pytest.raises(TypeError, match="argument x is not a strided array whose address can be read"):
        f(Somewhere(False))


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


@pytest.mark.parametrize("kind", [list, dict])
def test_an_argument_that_contains_itself(stream, kind):
    endless = kind()
    endless.append(endless) if kind is list else endless.update(a=endless)
    double, runs = doubled()
    with pytest.raises(TypeError, match="argument factor contains itself"):
        double(1, endless)
    assert runs == []


def test_names_of_arguments_are_not_kept_for_ever(stream):
    f = ag.graphed(lambda **named: None, key=lambda **named: 1)
    for i in range(200):
        with pytest.raises(ValueError, match="let `key`") if i else warnings.catch_warnings():
            f(**{f"name{i}": 1})
    assert len(f._arguments._plans) <= 64


# ---- `key` -------------------------------------------------------------------------------------


def test_calls_of_one_bucket_share_a_graph(stream):
    double, runs = doubled(warmup=1, key=lambda x, factor=2, *rest: len(x))
    for factor in (2, 3, 4):
        y = double(np.ones(3), factor)
    stream.synchronize()
    assert y.tolist() == [3.0] * 3  # the factor stays as it was in the capture
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
    with pytest.raises(TypeError, match=r"`key` must return a hashable value, not \[1\]"):
        double(np.ones(1))


def test_an_error_of_the_key_passes(stream):
    double, _ = doubled(key=lambda x: x.no_such_attribute)
    with pytest.raises(AttributeError, match="no_such_attribute"):
        double(np.ones(1))


@pytest.mark.parametrize("count", range(1, 8))
def test_arrays_that_are_given_again_are_seen_wherever_they_are(count):
    arrays = [np.zeros(1) for _ in range(count)]
    assert not has_repeats(arrays)
    assert repeats(arrays) == tuple(range(count))
    for i, j in itertools.combinations(range(count), 2):
        given = arrays[:]
        given[j] = given[i]
        assert has_repeats(given)
        assert repeats(given) == (*range(j), i, *range(j + 1, count))
