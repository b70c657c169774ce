"""Arguments that compare equal and behave differently: no two of them share a graph of a graphed function."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import functools
import operator
import pathlib
import pickle
import re
import sys
import time
import types
import uuid
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._arrays.values import Values

UTC = datetime.UTC
EAST = datetime.timezone(datetime.timedelta(hours=1))
NOON = datetime.datetime(2020, 1, 1, 12, tzinfo=UTC)


NO_HASH = pytest.mark.skipif(sys.version_info < (3, 12), reason="a slice has no hash in this Python")


@pytest.fixture
def f(stream):
    """A graphed function of anything."""

    @ag.graphed(warmup=0, max_graphs=99)
    def f(x):
        ag.current_stream().launch(int)
        return [x]

    return f


class Tag(str):
    """A string with a unit."""

    def __new__(cls, text, unit):
        new = super().__new__(cls, text)
        new.unit = unit
        return new


class Slotted(float):
    __slots__ = ("unit",)

    def __new__(cls, number, unit):
        new = super().__new__(cls, number)
        new.unit = unit
        return new


class Version:
    """A value: equal by its contents."""

    def __init__(self, *parts):
        self.parts = parts

    def __eq__(self, other):
        return isinstance(other, Version) and self.parts == other.parts

    def __hash__(self):
        return hash(self.parts)


class Lower(Version):
    """Equal without case."""

    def __eq__(self, other):
        return self.parts[0].lower() == other.parts[0].lower()

    def __hash__(self):
        return hash(self.parts[0].lower())


class Closed(Version):
    """A value that can't be taken apart."""

    __hash__ = Version.__hash__

    def __reduce_ex__(self, protocol):
        raise pickle.PicklingError

    def __eq__(self, other):
        return True


class Listed(list):
    pass


class Tupled(tuple):
    pass


class Mapped(dict):
    pass


def with_note(made, note):
    made.note = note
    return made


@dataclass(frozen=True)
class Frozen:
    number: Any


Point = namedtuple("Point", "x y")


def fold(value):
    return datetime.datetime(2020, 1, 1, 2, fold=value)


EQUAL = [
    (frozenset({0.0}), frozenset({-0.0})),
    (frozenset({(1,)}), frozenset({(1.0,)})),
    (frozenset({(1,)}), frozenset({(True,)})),
    (frozenset({frozenset({1})}), frozenset({frozenset({1.0})})),
    (frozenset({Point(1, 2)}), frozenset({(1, 2)})),
    (frozenset({Version(1)}), frozenset({Version(1.0)})),
    ({(1,): 0}, {(1.0,): 0}),
    ({0.0: 0}, {-0.0: 0}),
    ({frozenset({1}): 0}, {frozenset({True}): 0}),
    ({1: 2, 3: 4}, {3: 4, 1: 2}),
    ((0.0,), (-0.0,)),
    ([1], [True]),
    ((1, (2,)), (1, (2.0,))),
    (Frozen(0.0), Frozen(-0.0)),
    (Frozen((1,)), Frozen((1.0,))),
    (complex(0.0, -0.0), complex(0.0, 0.0)),
    (Tag("a", "m"), Tag("a", "s")),
    (Tag("a", "m"), "a"),
    (Slotted(1.0, "m"), Slotted(1.0, "s")),
    (Slotted(0.0, "m"), Slotted(-0.0, "m")),
    (Version(1), Version(True)),
    (Version((0.0,)), Version((-0.0,))),
    (Version(1, "a"), Version(1.0, "a")),
    (Lower("a"), Lower("A")),
    (Closed(1), Closed(2)),
    (NOON, NOON.astimezone(EAST)),
    (fold(0), fold(1)),
    (datetime.time(1, fold=0), datetime.time(1, fold=1)),
    (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
    (decimal.Decimal("0"), decimal.Decimal("-0")),
    (decimal.Decimal(1), 1),
    (fractions.Fraction(1), 1),
    (range(0, 3, 2), range(0, 4, 2)),
    (range(0), range(1, 1)),
    pytest.param(slice(1), slice(True), marks=NO_HASH),
    (pathlib.PureWindowsPath("a"), pathlib.PureWindowsPath("A")),
    (np.datetime64("2020"), np.datetime64("2020-01-01")),
    (np.timedelta64(1, "h"), np.timedelta64(60, "m")),
    (np.float32(1), np.float64(1)),
    (np.bool_(1), True),
    (np.str_("a"), "a"),
    (np.int64(1), np.int32(1)),
    (np.float16(0.0), np.float16(-0.0)),
    (np.longdouble(0.0), np.longdouble(-0.0)),
    (enum.IntEnum("A", "ONE").ONE, 1),
    (enum.IntEnum("A", "ONE").ONE, enum.IntEnum("B", "ONE").ONE),
    (enum.StrEnum("A", "ONE").ONE, "one"),
    (enum.IntFlag("A", "ONE").ONE, 1),
    (OrderedDict({1: 2}), {1: 2}),
    (defaultdict(int, {1: 2}), defaultdict(list, {1: 2})),
    (with_note(Listed([1]), 1), with_note(Listed([1]), 2)),
    (with_note(Tupled([1]), 0.0), with_note(Tupled([1]), -0.0)),
    (with_note(Mapped({1: 1}), [1]), with_note(Mapped({1: 1}), [True])),
]


@pytest.mark.promise("values-that-behave-differently")
@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_values_that_behave_differently_have_graphs_of_their_own(f, one, other):
    f(one)
    f(other)
    assert f.cache_info().captures == 2
    for x in (one, other, one):
        assert repr(f(x)) == repr([x])
    assert f.cache_info().captures == 2


class Model:
    def method(self): ...


MODEL = Model()
SAME = [
    lambda: frozenset({0.5, (1, (2.0, "a")), None}),
    lambda: frozenset({float("nan")}),
    lambda: frozenset([8, 0, 16, "a"]),
    lambda: {(1, "a"): 2, frozenset({3}): [4]},
    lambda: Frozen((1, float("nan"))),
    lambda: Tag("a", ["m"]),
    lambda: Slotted(0.5, {"unit": {1, 2}}),
    lambda: Version(1, "a", (0.5, None)),
    lambda: Version(MODEL),
    lambda: datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
    lambda: datetime.date(2020, 1, 1),
    lambda: decimal.Decimal("1.50"),
    lambda: fractions.Fraction(1, 3),
    lambda: range(1, 10, 3),
    lambda: pathlib.PurePosixPath("a/b"),
    lambda: uuid.UUID(int=5),
    lambda: re.compile("a+", re.IGNORECASE),
    lambda: list[int],
    lambda: MODEL.method,
    lambda: "abc".upper,
    lambda: weakref.ref(MODEL),
    lambda: functools.partial,
    lambda: operator.add,
    lambda: MODEL,
    lambda: types.SimpleNamespace,
    lambda: enum.Enum,
    lambda: Ellipsis,
    lambda: np.dtype("f4"),
    lambda: np.dtype([("a", "i4"), ("b", "f8", (2,))]),
    lambda: np.float32(0.1),
    lambda: np.datetime64("NaT", "s"),
    lambda: np.datetime64("2020-01-01"),
    lambda: np.str_("a"),
    lambda: b"abc",
    lambda: 2**100,
    lambda: defaultdict(int, {1: 2}),
    lambda: with_note(Listed([1]), {"a": [1, {2}]}),
]


@pytest.mark.parametrize("make", SAME)
def test_values_that_are_alike_share_a_graph(f, make):
    if type(make()) is weakref.ref:
        make = functools.partial(lambda x: x, make())
    for _ in range(3):
        f(make())
    assert f.cache_info().captures == 1


def test_attributes_of_a_tuples_subclass_reach_the_function(stream):
    @ag.graphed(warmup=0)
    def f(x):
        out = np.empty(1)
        ag.current_stream().launch(np.multiply, x[0], x.note, out)
        return out

    for _ in range(2):
        y = f(with_note(Tupled([np.full(1, 4.0)]), 3))
        stream.synchronize()
        assert y[0] == 12


class Couple(tuple):
    def __new__(cls, left, right):
        return super().__new__(cls, (left, right))


@pytest.mark.parametrize("make", [Couple, lambda *parts: time.struct_time([*parts, *range(7)])])
def test_a_tuple_of_any_class_is_passed_on_and_returned(stream, make):
    @ag.graphed(warmup=0)
    def f(x):
        out = np.empty(1)
        ag.current_stream().launch(np.add, x[0], x[1], out)
        return make(out, x[1])

    for _ in range(2):
        y = f(make(np.full(1, 4.0), 3))
        stream.synchronize()
        assert type(y) is type(make(1, 2))
        assert (y[0], y[1]) == (7, 3)


def test_attributes_don_t_count_in_a_bucket(stream):
    @ag.graphed(warmup=0, key=lambda x: 1)
    def f(x):
        ag.current_stream().launch(int)

    f(with_note(Listed([1]), 1))
    f(with_note(Listed([1]), 2))
    assert f.cache_info().captures == 1


def test_an_array_in_a_value_is_read_where_it_is(stream):
    @ag.graphed(warmup=0)
    def f(x):
        out = np.empty(2)
        ag.current_stream().launch(np.copyto, out, x.parts[1])
        return out

    table = np.zeros(2)

    class Table(Version):
        def __eq__(self, other):
            return self.parts[0] == other.parts[0]

        def __hash__(self):
            return hash(self.parts[0])

    for i in range(3):
        table[:] = i
        y = f(Table("a", table))
        stream.synchronize()
        assert y.tolist() == [i, i]
    assert f.cache_info().captures == 1
    y = f(Table("a", np.full(2, 9.0)))
    stream.synchronize()
    assert y.tolist() == [9.0, 9.0]


def test_a_value_that_refers_to_itself(f):
    loop = Version()
    loop.parts = (loop,)
    loop.__class__ = type(
        "Loop", (Version,), {"__hash__": lambda self: 1, "__eq__": lambda self, other: True}
    )
    f(loop)
    f(loop)
    assert f.cache_info().captures == 1


# ---- arrays that can't be written --------------------------------------------------------------


def read_only(n, value):
    x = np.full(n, float(value))
    x.flags.writeable = False
    return x


def add_one(x):
    ag.current_stream().launch(np.add, x, 1, x)
    return x


@pytest.mark.promise("read-only-arguments")
@pytest.mark.parametrize("calls", [1, 2])
def test_a_write_to_a_read_only_argument_fails_as_it_does_eagerly(calls):
    with ag.Stream(backend="cpu") as stream:
        f = ag.graphed(add_one, warmup=0)
        for _ in range(calls):
            f(read_only(2, 1))
            with pytest.raises(ag.DriverError) as info:
                stream.synchronize()
            assert isinstance(info.value.__cause__, ValueError)
        x = np.ones(2)
        f(x)
        stream.synchronize()
        assert x.tolist() == [2.0, 2.0]
        assert f.cache_info().captures == 2


@pytest.mark.parametrize("outputs", ["copy", "static"])
def test_a_read_only_argument_is_read(stream, outputs):
    @ag.graphed(warmup=1, outputs=outputs)
    def f(x, y):
        assert x.flags.writeable is y.flags.writeable is False
        out = np.empty_like(x)
        ag.current_stream().launch(np.add, x, y[::-1], out)
        return out, x

    for i in range(4):
        x = read_only(2, i)
        out, same = f(x, np.broadcast_to(np.float64(i), 2))
        assert same is x
        stream.synchronize()
        assert out.tolist() == [2.0 * i] * 2
    assert f.cache_info().captures == 1


class Endless:
    """A value that is made of others of its kind."""

    def __eq__(self, other):
        return isinstance(other, Endless)

    def __hash__(self):
        return 1

    def __reduce__(self):
        return Endless, (Endless(), Endless(), Endless())


@pytest.mark.parametrize(
    "value",
    [Endless(), [Endless(), 1], None, ..., NotImplemented],
    ids=["endless", "endless in a list", "None", "Ellipsis", "NotImplemented"],
)
def test_a_value_is_described_in_no_time(value):
    begin = time.thread_time()
    assert Values().describe(value) == Values().describe(value)
    assert time.thread_time() - begin < 5
