"""Random programs, called in random order with random arguments: graphed, they do what they do eagerly."""

from __future__ import annotations

import copy
import datetime
import decimal
import random
import zlib
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import accelerator_graph as ag

PROGRAMS = 80
CALLS = 40

Point = namedtuple("Point", "x y")


@dataclass
class Pair:
    left: Any
    right: Any


UTC, EAST = datetime.UTC, datetime.timezone(datetime.timedelta(hours=1))
ALIKE = [
    (0, False, 0.0, -0.0, np.float32(0.0), np.float32(-0.0), 0j, complex(0.0, -0.0), decimal.Decimal("-0")),
    (
        1,
        True,
        1.0,
        np.float64(1.0),
        np.int8(1),
        np.bool_(True),
        decimal.Decimal("1.0"),
        decimal.Decimal("1.00"),
    ),
    ("1", b"1", np.str_("1"), 2**70, float("nan"), float("inf"), None),
    (frozenset({0.0}), frozenset({-0.0}), frozenset({0}), frozenset({False})),
    (frozenset({(1,)}), frozenset({(1.0,)}), frozenset({(True,)})),
    ((1, (0.0,)), (1.0, (0.0,)), (True, (0.0,)), (1, (-0.0,)), [1, (0.0,)]),
    (range(0), range(1, 1), (), [], {}, OrderedDict(), defaultdict(int), defaultdict(list)),
    (np.datetime64("2020"), np.datetime64("2020-01-01"), np.datetime64("2020-01-01", "s")),
    (datetime.datetime(2020, 1, 1, 12, tzinfo=UTC), datetime.datetime(2020, 1, 1, 13, tzinfo=EAST)),
    ({1: 2, 3: 4}, {3: 4, 1: 2}, {1.0: 2, 3: 4}, {True: 2, 3: 4}, OrderedDict({1: 2, 3: 4})),
    ({(1,): 0}, {(1.0,): 0}, {0.0: 0}, {-0.0: 0}),
]
"""Values of a row compare equal, or nearly so, and differ in their `repr`."""


def an_array(again, now, count, kept):
    """An array of a kind that comes again; sometimes one that differs in one way, or a known one."""
    kind, dtype = again.randrange(5), again.choice(["f8", "f4", "i4"])
    other = now.randrange(8)
    if other == 0 and kept:
        return now.choice(kept)
    x = np.array([now.randrange(-40, 41) / 10 for _ in range(count)], "f4" if other == 1 else dtype)
    if kind == 1:
        x = np.repeat(x, 2)[::2]
    elif kind == 2:
        x = x[::-1]
    elif kind == 3:
        x = np.broadcast_to(x[:1], (count,))
    if other == 2:
        x.flags.writeable = False
    kept.append(x)
    return x


def an_argument(again, now, count, kept, depth=0):
    kind = again.randrange(10 if depth < 2 else 6)
    if kind < 3:
        return an_array(again, now, count, kept)
    if kind < 6:
        return copy.copy(now.choice(again.choice(ALIKE)))
    parts = [an_argument(again, now, count, kept, depth + 1) for _ in range(2)]
    return {6: list, 7: tuple, 8: lambda p: Pair(*p), 9: lambda p: dict(zip("ab", p, strict=True))}[kind](
        parts
    )


def leaves(value):
    """The arrays and the other values in an argument or a result, in order."""
    if isinstance(value, Pair):
        value = (value.left, value.right)
    if type(value) is dict and set(value) == {"a", "b"}:
        value = tuple(value.values())
    if isinstance(value, list | tuple) and not isinstance(value, Point) and any(map(has_array, value)):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def has_array(value):
    if isinstance(value, Pair):
        value = (value.left, value.right)
    if type(value) is dict:
        value = tuple(value.values())
    return isinstance(value, np.ndarray) or (isinstance(value, list | tuple) and any(map(has_array, value)))


def put(target, source):
    np.copyto(target, np.fmod(source, 97), "unsafe")


def a_program(rng):
    """A function of any arguments whose arrays have one length, which works on the current stream."""
    steps = [(rng.randrange(9), rng.randrange(99), rng.randrange(99)) for _ in range(rng.randrange(1, 7))]
    shape = rng.randrange(5)

    def program(*args, **named):
        stream = ag.current_stream()
        found = leaves([*args, *(value for _, value in sorted(named.items()))])
        arrays = [each for each in found if isinstance(each, np.ndarray)]
        number = zlib.crc32(repr([each for each in found if not isinstance(each, np.ndarray)]).encode()) % 97
        registers, written = list(arrays), []
        registers.append(np.empty(len(arrays[0]) if arrays else 2, float))
        stream.launch(registers[-1].fill, number)
        for kind, i, j in steps:
            one, other = registers[i % len(registers)], registers[j % len(registers)]
            if kind == 0:
                registers.append(one[::-1])
                continue
            if kind in (1, 6, 7, 8) and i % len(registers) < len(arrays) and one.flags.writeable:
                written.append(one)
                if kind == 1:
                    stream.launch(put, one, other)
                elif kind == 6:
                    stream.launch(put, one[j % 3 :], other[j % 3 :])
                elif kind == 7:
                    stream.launch(np.copyto, one[::2], j)
                else:
                    stream.launch(one.fill, j % 2)
                continue
            out = np.empty(one.shape, float)
            if kind == 2:
                stream.copy(out, np.zeros_like(out))
                stream.launch(lambda one=one, out=out: np.add(out, one, out))
            else:
                stream.launch(np.multiply if kind == 3 else np.add, one, other, out=out)
            registers.append(out)
        last = registers[-1]
        if last.base is not None and not any(last is each for each in arrays):
            out = np.empty(last.shape, float)
            stream.launch(np.copyto, out, last)
            last = out
        return [last, Point((last, number), written), {"same": written, "last": Pair(last, None)}, None][
            : 1 + shape
        ]

    return program


def check(ours, theirs, given, taken):
    """Compare a result with the eager one."""
    assert type(ours) is type(theirs)
    if isinstance(ours, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
        for mine, other in zip(given, taken, strict=True):
            assert (ours is mine) is (theirs is other)
    elif isinstance(ours, Pair):
        check((ours.left, ours.right), (theirs.left, theirs.right), given, taken)
    elif isinstance(ours, dict):
        check(list(ours.items()), list(theirs.items()), given, taken)
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            check(one, other, given, taken)
    else:
        assert repr(ours) == repr(theirs)


@pytest.mark.promise("results-of-eager-runs")
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_programs_do_what_they_do_eagerly(seed):
    rng = random.Random(seed)
    program = a_program(rng)
    outputs, warmup = rng.choice(["copy", "static"]), rng.randrange(3)
    f = ag.graphed(program, warmup=warmup, outputs=outputs, max_graphs=rng.choice([1, 4, 40]))
    streams = [ag.Stream(backend="cpu") for _ in range(3)]
    kinds = [(rng.randrange(1, 4), rng.randrange(3), rng.random()) for _ in range(2)]  # calls that come again
    later = []
    for _ in range(CALLS):
        number, named, key = rng.choice(kinds)
        again = random.Random(key)
        kept: list[Any] = []
        args = [an_argument(again, rng, 3, kept) for _ in range(number)]
        more = {name: an_argument(again, rng, 3, kept) for name in rng.sample("pqr"[:named], named)}
        arrays = [each for each in leaves([*args, *more.values()]) if isinstance(each, np.ndarray)]
        memo: dict[int, Any] = {}
        eager_args, eager_more = copy.deepcopy(args, memo), copy.deepcopy(more, memo)
        for x in kept:
            memo[id(x)].flags.writeable = x.flags.writeable
        eager_arrays = [memo[id(each)] for each in arrays]
        with rng.choice(streams) as stream:
            ours = f(*args, **more)
            if outputs == "static":
                stream.synchronize()
                ours = copy.deepcopy(ours, {id(each): each for each in arrays})
            theirs = program(*eager_args, **eager_more)
        later.append((stream, ours, theirs, arrays, eager_arrays))
        if rng.random() < 0.1:
            f.cache_clear()
    for stream, ours, theirs, arrays, eager_arrays in later:
        stream.synchronize()
        check(ours, theirs, arrays, eager_arrays)
        for mine, other in zip(arrays, eager_arrays, strict=True):
            assert mine.tobytes() == other.tobytes()
