"""What a graphed function writes to its arguments reaches the caller, in every call, whatever wrote it."""

from __future__ import annotations

import array
import random

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._arrays.arrays import array_type_of
from accelerator_graph.interop import registry as interop
from graphed import fakes
from graphed.functions import Pair, launch

INPUTS = ("copy", "node", "bind")
pytestmark = pytest.mark.filterwarnings("ignore:.*copies its inputs:RuntimeWarning")


def add_one(state):
    launch(np.add, state, 1, state)


def add_one_by_name(state):
    launch(np.add, state, 1, out=state)


def add_one_and_return_a_view(state):
    launch(np.add, state, 1, state)
    return state[1:]


def add_one_in_a_container(state):
    def step(box):
        launch(np.add, box["pair"].left, 1, box["pair"].left)

    step({"pair": Pair(state, 2)})


def fill(state):
    ag.current_stream().fill(state, 7, state.nbytes)


def copy(state):
    ag.current_stream().copy(state, np.array([3.0, 1, 2]))


def write_a_part(state):
    launch(np.add, state[1:2], 1, state[1:2])


def turn(state):
    launch(np.negative, state, state)


def by_a_function_of_its_own(state):
    def work():
        state[state < 2] += 1

    launch(work)


WRITES = [
    *(add_one, add_one_by_name, add_one_and_return_a_view, fill, copy, write_a_part, turn),
    by_a_function_of_its_own,
]


def bits(*arrays):
    return [each.tobytes() for each in arrays]


@pytest.mark.promise("writes-reach-the-caller")
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("warmup", [0, 1, 3])
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_a_write_reaches_the_caller_in_every_call(stream, write, warmup, inputs):
    f = ag.graphed(write, warmup=warmup, inputs=inputs)
    ours, theirs = np.zeros(3), np.zeros(3)
    for _ in range(10):
        f(ours)
        write(theirs)
        stream.synchronize()
        assert bits(ours) == bits(theirs)
    assert f.cache_info().captures == 1


@pytest.mark.parametrize("written", [slice(2, 6), slice(0, 4), slice(5, 1, -1), slice(0, 6, 2)])
def test_views_of_one_array(stream, written):
    """The one that is only read does not put back what it held before."""

    def step(**views):
        launch(np.add, views["written"], 1, views["written"])

    f = ag.graphed(step, warmup=0)
    base, want = np.zeros(6), np.zeros(6)
    for _ in range(4):
        f(a=base[1:5], written=base[written], z=base[1:5])  # which are sorted by name
        want[written] += 1
        stream.synchronize()
        assert base.tolist() == want.tolist()


def test_both_views_of_one_array_are_written(stream):
    def step(x, y):
        launch(np.add, x[:1], 1, x[:1])
        launch(np.add, y[-1:], 1, y[-1:])

    f, base = ag.graphed(step, warmup=0), np.zeros(6)
    for i in range(1, 4):
        f(base[:4], base[2:])
        stream.synchronize()
        assert base.tolist() == [i, 0, 0, 0, 0, i]


@pytest.mark.promise("writes-reach-the-caller")
@pytest.mark.parametrize("seed", range(20))
def test_random_writes_to_random_views_of_one_array(stream, seed):
    """The arguments count as separate arrays; what a run has changed goes back in their order."""
    draw = random.Random(seed)
    steps = [
        (draw.randrange(3), draw.randrange(3), draw.choice([1, 2, -1])) for _ in range(draw.randrange(1, 5))
    ]
    strides = [draw.choice([1, 1, 2, -1]) for _ in range(3)]

    def write(run, xs):
        for to, of, part in steps:
            run(np.add, xs[to][::part], xs[of][::part], xs[to][::part])

    f = ag.graphed(lambda *xs: write(launch, xs), warmup=0, outputs=draw.choice(["copy", "static"]))
    for _ in range(6):
        ours = np.array(draw.choices(range(-1, 3), k=16), float)
        theirs = ours.copy()
        ends = [draw.randrange(8) for _ in range(3)]
        where = [
            slice(end, end + 4 * step, step) if step > 0 else slice(end + 4, end, -1)
            for end, step in zip(ends, strides, strict=True)
        ]
        f(*[ours[each] for each in where])
        separate = [theirs[each].copy() for each in where]
        before = [each.copy() for each in separate]
        write(lambda work, *args: work(*args), separate)
        for each, new, old in zip(where, separate, before, strict=True):
            np.copyto(theirs[each], new, where=new != old)
        stream.synchronize()
        assert ours.tolist() == theirs.tolist()
    assert f.cache_info().captures == 1


@pytest.mark.parametrize("warmup", [0, 1])
def test_a_static_result_as_the_argument(stream, warmup):
    def double(x):
        launch(np.multiply, x, 2, out := np.empty_like(x))
        return out

    f = ag.graphed(double, warmup=warmup, outputs="static")
    x = f(np.ones(3))
    for i in range(2, 6):
        x = f(x)
        stream.synchronize()
        assert x.tolist() == [2.0**i] * 3


def test_the_state_of_the_function_as_the_argument(stream):
    state = np.ones(3)
    f = ag.graphed(lambda x: launch(np.add, state, x, state), warmup=0)
    for i in range(1, 5):
        f(state)
        stream.synchronize()
        assert state.tolist() == [2.0**i] * 3


@pytest.mark.parametrize("outputs", ["copy", "static"])
def test_an_argument_that_is_given_twice_and_returned(stream, outputs):
    def step(x, y, z):
        launch(np.add, x, z, y)
        return y, z

    f = ag.graphed(step, warmup=0, outputs=outputs)
    x, z = np.zeros(3), np.ones(3)
    for i in range(1, 4):
        result = f(x, x, z)
        assert (result[0] is x, result[1] is z) == (True, True)
        stream.synchronize()
        assert (x.tolist(), z.tolist()) == ([i] * 3, [1] * 3)


@pytest.mark.parametrize("outputs", ["copy", "static"])
@pytest.mark.parametrize("writeable", [True, False])
def test_an_array_that_is_given_twice_is_one_argument(stream, writeable, outputs):
    """In the result, too, though the function gets a view of the static array if the array is read-only."""

    def step(x, y, z):
        launch(np.add, x, z, z)
        return x, y, z, x is y

    f = ag.graphed(step, warmup=0, outputs=outputs)
    for i in range(3):
        x, z = np.full(2, float(i)), np.ones(2)
        x.flags.writeable = writeable
        result = f(x, x, z)
        assert [each is given for each, given in zip(result, (x, x, z, True), strict=True)] == [True] * 4
        stream.synchronize()
        assert (x.tolist(), z.tolist()) == ([i] * 2, [i + 1] * 2)


def test_an_array_that_can_not_be_written(stream):
    f = ag.graphed(lambda x, y: launch(np.add, x, 1, y), warmup=0)
    x, y = np.ones(3), np.zeros(3)
    x.flags.writeable = False
    for _ in range(3):
        f(x, y)
        stream.synchronize()
    assert (x.tolist(), y.tolist()) == ([1] * 3, [2] * 3)


@pytest.mark.parametrize("make", [lambda: bytearray(b"abc"), lambda: array.array("B", b"abc")])
def test_python_buffers(stream, make):
    def step(box):
        def work():
            box[1] = (box[1] + 1) % 256

        launch(work)

    f, box = ag.graphed(step, warmup=1), make()
    for i in range(1, 6):
        f(box)
        stream.synchronize()
        assert bytes(box) == bytes([97, 98 + i, 99])


def test_an_array_with_a_mask(stream):
    def step(x):
        launch(np.ma.MaskedArray.__setitem__, x, 1, np.ma.masked)

    f = ag.graphed(step, warmup=0)
    x = np.ma.array([1.0, 2, 3], mask=[True, False, False])
    f(x)
    stream.synchronize()
    assert x.mask.tolist() == [True, True, False]


@pytest.mark.parametrize("warmup", [0, 2])
@pytest.mark.parametrize("inputs", INPUTS)
def test_arrays_like_those_of_cupy(device, monkeypatch, inputs, warmup):
    fakes.install_grids(monkeypatch)
    interop.register("gridframe", fakes.Grids)

    def step(x, y):
        x["it"].add_one()
        return x["it"] + y

    try:
        f = ag.graphed(step, warmup=warmup, inputs=inputs)
        base = np.zeros(6)
        for i in range(1, 7):
            result = f({"it": fakes.Grid(base[:4])}, fakes.Grid(base[2:]))
            device.synchronize(fakes.streams[0])
            assert base.tolist() == [i, i, i, i, 0, 0]
        assert result.data.tolist()[2:] == [6, 6]
    finally:
        interop.unregister("gridframe")


NAN, OTHER_NAN = np.array([0x7FF8_0000_0000_0000, 0x7FF8_0000_0000_0001], "u8").view("f8")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([0.0, 1.0], [-0.0, 1.0]),
        ([NAN, 1.0], [NAN, 2.0]),
        ([NAN, 1.0], [OTHER_NAN, 1.0]),
        (np.array([0.0, 1], "f4"), np.array([-0.0, 1], "f4")),
        (np.array([0.0, 1], "f2"), np.array([-0.0, 1], "f2")),
        ([0j, 1], [complex(0.0, -0.0), 1]),
        ([0j, 1], [complex(-0.0, 0.0), 1]),
        ([1, 2], [1, 3]),
        ([True, False], [True, True]),
        (["a", "b"], ["a", "c"]),
        (np.array([(1, 2.0)], "i4,f8"), np.array([(1, 3.0)], "i4,f8")),
        (np.array(["2020"], "M8[D]"), np.array(["NaT"], "M8[D]")),
        (np.array([1, "x"], object), np.array([2, "x"], object)),
        (np.array([1, 2], np.longdouble), np.array([1, 3], np.longdouble)),
        (np.array(1.0), np.array(2.0)),
        (np.zeros((0, 2)), np.zeros((0, 2))),
        (np.zeros((2, 3)).T, np.eye(3, 2)),
    ],
)
def test_the_elements_that_differ_are_copied(before, after):
    before, after = np.array(before), np.array(after)
    merge = array_type_of(before).merge
    target = before.copy()
    merge(target, after, before)
    assert bits(target) == bits(after) or before.dtype.kind == "O"
    assert repr(target) == repr(after)
    other = np.empty_like(after)
    other[...] = after.flat[0] if after.size else 0
    merge(target := other.copy(), after, after)
    assert repr(target) == repr(other)


@pytest.mark.parametrize("make", [bytearray, lambda data: array.array("H", data)])
@pytest.mark.parametrize(
    ("before", "after", "target", "want"),
    [
        (b"abcd", b"aXcd", b"1234", b"1X34"),
        (b"abcd", b"XbcY", b"1234", b"X23Y"),
        (b"abcd", b"abcd", b"1234", b"1234"),
        (b"abcd", b"\0\0\0\0", b"1234", b"\0\0\0\0"),
        (b"", b"", b"", b""),
    ],
)
def test_the_bytes_of_buffers_that_differ_are_copied(make, before, after, target, want):
    before, after, target = map(make, (before, after, target))
    kind = array_type_of(before)
    kind.merge(target, after, before)
    assert bytes(target) == want
    kind.assign(target, after)
    assert bytes(target) == bytes(after)
    new = kind.copy(after)
    assert new == after
    assert new is not after


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "c8", "c16", "U3", "M8[D]", "?"])
def test_each_element_that_differs_is_copied_and_no_other(dtype):
    before = np.array([0, 1, 0, 1], "i8").astype(dtype)
    after = np.array([0, 0, 1, 1], "i8").astype(dtype)
    other = before[[1, 1, 0, 0]]
    target = other.copy()
    array_type_of(before).merge(target, after, before)
    assert target.tolist() == [other[0], after[1], after[2], other[3]]
