"""`graphed` where only work that goes through our streams is recorded: what no replay repeats is refused."""

import ctypes
import functools
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._arrays.placement import extent
from accelerator_graph._graphed.results import RecordedWork, check_unwritten, reachable
from accelerator_graph.backends.base import CaptureInfo
from graphed import fakes
from graphed.functions import launch

OUT = np.zeros(2)


def at_once(x):
    return x * 2


def beside_recorded_work(x):
    launch(int)
    return x * 2


def from_recorded_work(x):
    out = np.empty_like(x)
    launch(np.multiply, x, 2, out)
    return out.copy()


def from_an_argument(x):
    launch(np.sum, x)
    return x.copy()


def a_scalar(x):
    launch(np.sum, x)
    return {"sum": x.sum()}


def half_of_it(x):
    out = np.empty(4)
    launch(np.multiply, x, 2, out[:2])
    out[2:] = x
    return out[2:]


def in_a_container(x):
    out = np.empty_like(x)
    launch(np.multiply, x, 2, out)
    return [out, (x + 1,)]


def a_buffer(x):
    launch(int)
    return bytearray(x.tobytes())


def in_place(x):
    launch(np.sum, x)
    x += 1
    return x


def in_place_by_a_view(x):
    out = np.empty_like(x)
    launch(np.multiply, x, 2, out)
    x[:1].fill(7)
    return out


WRONG = [
    (at_once, "recorded nothing"),
    (beside_recorded_work, "returned an array .* that no recorded work was given"),
    (from_recorded_work, "returned an array .* that no recorded work was given"),
    (from_an_argument, "returned an array .* that no recorded work was given"),
    (a_scalar, "returned a scalar of type 'float64'"),
    (half_of_it, "returned an array .* that no recorded work was given"),
    (in_a_container, "returned an array .* that no recorded work was given"),
    (a_buffer, "returned an array of type 'bytearray' that no recorded work was given"),
    (in_place, "wrote argument x itself"),
    (in_place_by_a_view, "wrote argument x itself"),
]


@pytest.mark.promise("unrecorded-work-is-refused")
@pytest.mark.parametrize(("function", "words"), WRONG)
@pytest.mark.parametrize("outputs", ["copy", "static"])
def test_what_a_replay_could_not_repeat_is_refused(stream, function, words, outputs):
    f = ag.graphed(function, outputs=outputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            f(np.ones(2))
        for _ in range(2):
            with pytest.raises(ag.CaptureError, match=words):
                f(np.ones(2))
    assert f.cache_info() == ag.CacheInfo(0, 3, 0, 0, 0, 16)
    assert not ag.is_current_stream_capturing()


@pytest.mark.promise("unrecorded-work-is-refused")
def test_a_buffer_that_the_function_writes_itself_is_refused(stream):
    @ag.graphed(warmup=0)
    def f(buffer):
        launch(int)
        buffer[0] += 1

    with pytest.raises(ag.CaptureError, match="wrote argument buffer itself"):
        f(bytearray(2))


@pytest.mark.parametrize(("function", "words"), WRONG)
def test_or_it_runs_eagerly_with_the_right_results(stream, function, words):
    f = ag.graphed(function, on_capture_error="eager")
    for i in range(6):
        ours, theirs = np.full(2, float(i)), np.full(2, float(i))
        with pytest.warns(RuntimeWarning, match=words) if i == 3 else warnings.catch_warnings():
            y = f(ours)
        right = function(theirs)
        stream.synchronize()
        if function not in (from_recorded_work, half_of_it):
            assert repr(y) == repr(right)
        assert ours.tolist() == theirs.tolist()


class Work:
    def __init__(self):
        self.out = np.zeros(2)

    def double(self, x):
        np.multiply(x, 2, self.out)


def doubles_by_name(x):
    np.multiply(x, 2, out=OUT)


def by_keyword(x):
    out = np.empty_like(x)
    launch(np.multiply, x, 2, out=out)
    return out


def by_closure(x):
    out = np.empty_like(x)
    launch(lambda: np.multiply(x, 2, out))
    return out


def by_a_function_in_a_closure(x):
    out = np.empty_like(x)

    def double():
        np.multiply(x, 2, out)

    launch(lambda: double())
    return out


def by_default(x):
    out = np.empty_like(x)
    launch(lambda out=out: np.multiply(x, 2, out))
    return out


def by_default_of_a_keyword(x):
    out = np.empty_like(x)

    def double(*, out=out):
        np.multiply(x, 2, out)

    launch(double)
    return out


def by_partial(x):
    out = np.empty_like(x)
    launch(functools.partial(np.multiply, x, 2, out=out))
    return out


def by_method(x):
    work = Work()
    launch(work.double, x)
    return work.out


def by_global(x):
    launch(doubles_by_name, x)
    return OUT


def by_global_in_a_lambda(x):
    launch(lambda: (lambda: np.multiply(x, 2, out=OUT))())
    return OUT


def by_attribute(x):
    box = SimpleNamespace(into={"out": [np.empty_like(x)]})
    launch(lambda: np.multiply(x, 2, box.into["out"][0]))
    return box.into["out"][0]


def by_view(x):
    out = np.empty_like(x)
    launch(np.multiply, x[::-1], 2, out[::-1])
    return out


def as_view(x):
    out = np.empty((1, 2))
    launch(np.multiply, x, 2, out)
    return out[0]


def of_a_buffer(x):
    out = bytearray(16)
    launch(np.multiply, x, 2, np.frombuffer(out))
    return np.frombuffer(out)


def the_buffer(x):
    out = bytearray(16)
    launch(np.multiply, x, 2, np.frombuffer(memoryview(out)))
    return out


def by_copy(x):
    out = np.empty_like(x)
    ag.current_stream().copy(out, x)
    launch(np.add, out, x, out)
    return out


def through_the_argument(x):
    launch(np.multiply, x, 2, x)
    return x


@pytest.mark.parametrize(
    "function",
    [
        *(by_keyword, by_closure, by_a_function_in_a_closure, by_default, by_default_of_a_keyword),
        *(
            by_partial,
            by_method,
            by_global,
            by_global_in_a_lambda,
            by_attribute,
            by_view,
            as_view,
            of_a_buffer,
            the_buffer,
            by_copy,
        ),
        *(through_the_argument,),
    ],
)
@pytest.mark.parametrize("outputs", ["copy", "static"])
def test_what_recorded_work_can_reach_is_a_result(stream, function, outputs):
    f = ag.graphed(function, warmup=1, outputs=outputs)
    for i in range(4):
        y = f(np.full(2, float(i)))
        stream.synchronize()
        assert np.frombuffer(y).tolist() == [2.0 * i] * 2
    assert f.cache_info().captures == 1


@pytest.mark.parametrize("outputs", ["copy", "static"])
def test_a_view_of_an_argument_is_a_result(stream, outputs):
    @ag.graphed(warmup=1, outputs=outputs)
    def f(x):
        launch(int)
        return x[1:], x.reshape(1, 2)

    for i in range(4):
        y, z = f(np.array([0.0, i]))
        stream.synchronize()
        assert (y.tolist(), z.tolist()) == ([i], [[0.0, i]])
    assert f.cache_info().captures == 1


def test_results_of_a_graph_that_is_replayed_in_the_capture(stream):
    x, out, g = np.zeros(2), np.empty(2), ag.Graph()
    with g:
        launch(np.multiply, x, 2, out)

    @ag.graphed(warmup=1)
    def f(given):
        ag.current_stream().copy(x, given)
        g.replay(ag.current_stream())
        return out

    for i in range(4):
        y = f(np.full(2, float(i)))
        stream.synchronize()
        assert y.tolist() == [2.0 * i] * 2
    assert f.cache_info().captures == 1


def test_numbers_that_were_given_or_are_pythons_are_results(stream):
    @ag.graphed(warmup=1)
    def f(x, scale):
        launch(np.multiply, x, scale, x)
        return x, scale, len(x), 0.5, "s"

    scale = np.float64(2)
    for _ in range(4):
        x = np.ones(2)
        assert f(x, scale) == (x, scale, 2, 0.5, "s")
        stream.synchronize()
        assert x.tolist() == [2.0, 2.0]
    assert f.cache_info().captures == 1


# ---- an array's memory -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view", [slice(None), slice(2, 5), slice(None, None, -1), slice(6, 1, -2), slice(3, 3)]
)
@pytest.mark.parametrize("dtype", ["f8", "i2", "U3", "S5", "M8[s]", "f4,i2"])
def test_where_the_memory_of_an_array_lies(view, dtype):
    x = np.zeros((3, 8), dtype)[:, view]
    low, high = np.lib.array_utils.byte_bounds(x)
    assert extent(x) == ((low, high) if x.size else (x.ctypes.data,) * 2)


def test_only_types_that_have_memory_are_asked_where_it_is():
    class Curious:
        def __getattr__(self, name):
            raise AssertionError(name)

    assert extent(Curious()) is None
    assert extent(Curious) is None


class Explicit(fakes.Device):
    """A runtime that records explicitly, on memory of its own."""

    recording = "explicit"


class Uncounted(Explicit):
    """It does not count nodes."""

    def capture_info(self, stream):
        info = super().capture_info(stream)
        return info and CaptureInfo(info.id)


@pytest.mark.parametrize("backend", [Explicit, Uncounted])
def test_a_backend_that_records_explicitly(backend):
    ag.backends.register("explicitdevice", backend)
    memory, other = np.zeros(2), np.zeros(2)
    try:
        with ag.Stream(backend="explicitdevice") as stream:

            @ag.graphed(warmup=0, outputs="static")
            def f(given, right):
                launch(np.add, given.data, 1, memory)
                return fakes.Block(memory if right else other)

            given = fakes.Block(np.zeros(2))
            for i in range(3):
                given.data[:] = i
                y = f(given, True)
                stream.synchronize()
                assert y.data.tolist() == [i + 1.0] * 2
            with pytest.raises(ag.CaptureError, match="that no recorded work was given"):
                f(given, False)
            if backend is Explicit:
                with pytest.raises(ag.CaptureError, match="recorded nothing"):
                    ag.graphed(lambda: None, warmup=0)()
    finally:
        ag.backends.unregister("explicitdevice")


def arrays_from(function):
    return [each for each in reachable([function]) if isinstance(each, np.ndarray)]


def test_what_a_function_can_reach():
    """Its closure, its defaults, its attributes, and the names of its module, in functions inside as well."""
    one, two, three, four = (np.full(1, each) for each in range(4))

    def function(a=two, *, b=three):
        return one, a, b, lambda: lambda: OUT

    function.four = four
    found = arrays_from(function)
    assert {id(each) for each in found} == {id(each) for each in (one, two, three, four, OUT)}
    assert len(found) == 5


@pytest.mark.parametrize(
    ("part", "reached"),
    [
        (slice(0, 2), False),
        (slice(2, 4), True),
        (slice(3, 5), True),
        (slice(4, 6), False),
        (slice(5, 7), False),
        (slice(7, 9), True),
        (slice(9, 12), False),
        (slice(0, 12), True),
        (slice(1, 1), True),  # no replay could write an empty array
    ],
)
def test_which_arrays_share_memory_with_recorded_work(part, reached):
    """Two parts of a buffer are known, of which nothing in Python tells that they are parts of one."""
    memory = np.zeros(12)
    start = memory.ctypes.data

    def at(where):
        low, high, _ = where.indices(12)
        return np.ctypeslib.as_array((ctypes.c_double * (high - low)).from_address(start + 8 * low))

    work = RecordedWork([at(slice(2, 4)), at(slice(7, 9))], ())
    if reached:
        work.check_result(at(part), is_array=True)
    else:
        with pytest.raises(ag.CaptureError, match="no recorded work was given"):
            work.check_result(at(part), is_array=True)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_name_of_the_argument_that_was_written(place):
    before, after, names = [1, None, b"ab"], [1, None, b"ab"], ["x", "y", "z"]
    check_unwritten(before, after, names)
    after[place] = b"c"
    with pytest.raises(ag.CaptureError, match=f"wrote argument {names[place]} itself"):
        check_unwritten(before, after, names)
