"""The fast path by itself: which calls of a graphed function are alike, and which are repeated in C."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import tracemalloc
import weakref
from array import array
from functools import partial
from itertools import pairwise

import pytest

from core.fast_arrays import Array, Other, exchange
from core.fast_bench import MORE_FLAGS, Answered, Background, Owner, launcher_of, never

pytest_plugins = ["core.fast_fixtures"]

ARRAY, CONSTANT, INSTANCE = range(3)
RESULT = object()


def guard_of(fast, *values, named=(), modes=(), captures=None, lock=None):
    """Return a guard for a call with these arrays and constants."""
    sources = [*range(len(values)), *(name for name, _ in named)]
    parameters = []
    for source, value in zip(sources, [*values, *(value for _, value in named)], strict=True):
        kind = ARRAY if isinstance(value, Array) else CONSTANT
        parameters.append((source, kind, value, *([lambda x: x.altered] if kind == ARRAY else [])))
    return fast.Guard(
        {} if captures is None else captures,
        lock or fast.Lock(),
        len(values),
        len(named),
        tuple(parameters),
        modes,
    )


WHERE = object()


# ---- which calls are alike -----------------------------------------------------------------------


def test_returns_the_arrays_of_a_call_that_is_alike(fast):
    guard = guard_of(fast, Array(), 5, Array(), named=[("z", Array())])
    x, y, z = Array(64), Array(128), Array(8)
    assert guard((x, 5, y), {"z": z}) == [x, y, z, None]
    assert guard((Array(0), 5, Array(0)), {"z": Array(0)}) is not None


@pytest.mark.parametrize(
    "other",
    [
        {"shape": (3, 2)},
        {"shape": (2, 3, 1), "strides": (3, 1, 1)},
        {"strides": (1, 2)},
        {"strides": None},
        {"device": (2, 1)},
        {"device": (1, 0)},
        {"dtype": (2, 64, 1, 0)},
        {"dtype": (0, 32, 1, 0)},
        {"dtype": (2, 32, 2, 0)},
    ],
    ids=str,
)
def test_an_array_with_another_layout_is_not_alike(fast, other):
    guard = guard_of(fast, Array())
    assert guard((Array(**other),), {}) is None
    assert guard((Array(),), {}) is not None
    mirrored = guard_of(fast, Array(**other))
    assert mirrored((Array(),), {}) is None
    assert mirrored((Array(**other),), {}) is not None


def test_an_array_of_another_type_or_that_requires_grad_is_not_alike(fast):
    guard, x = guard_of(fast, Array()), Array()
    assert guard((Other(),), {}) is None
    assert guard((5,), {}) is None
    x.requires_grad = True
    assert guard((x,), {}) is None
    assert guard_of(fast, x)((x,), {}) == [x, None]
    del x.requires_grad
    assert guard((x,), {}) is None


def test_an_array_that_can_not_be_described_is_not_alike(fast):
    guard, x = guard_of(fast, Array()), Array()
    x.told = None
    assert guard((x,), {}) is None
    with pytest.raises(ValueError, match="does not describe this array"):
        guard_of(fast, x)


def test_a_call_with_other_arguments_is_not_alike(fast):
    guard = guard_of(fast, Array(), named=[("y", Array())])
    x, y = Array(), Array()
    assert guard((x,), {"y": y}) == [x, y, None]
    for args, kwargs in [
        ((x, y), {}),
        ((x, Array()), {"y": y}),
        ((x,), {"z": y}),
        ((), {"y": y}),
        ((x,), {}),
        ((x,), {"y": y, "z": y}),
    ]:
        assert guard(args, kwargs) is None


def test_one_array_given_twice_is_not_alike(fast):
    guard, x = guard_of(fast, Array(), Array(), Array()), Array()
    assert guard((x, Array(), Array()), {}) is not None
    for args in [(x, x, Array()), (x, Array(), x), (Array(), x, x)]:
        assert guard(args, {}) is None


def test_constants_have_to_be_the_same_objects_but_for_ints(fast):
    text, big, ratio = "".join(["te", "xt"]), 10**30, float("1.5")
    guard = guard_of(fast, Array(), text, big, ratio)
    assert guard((Array(), text, 10**30, ratio), {}) is not None
    for args in [
        ("".join(["te", "xt"]), big, ratio),
        (text, 10**30 + 1, ratio),
        (text, 1e30, ratio),
        (text, big, float("1.5")),
    ]:
        assert guard((Array(), *args), {}) is None
    assert guard_of(fast, Array(), 1)((Array(), True), {}) is None


def test_says_where_if_no_call_is_repeated(fast):
    ready, guard, x = [True], guard_of(fast, Array()), Array()
    guard.follow((WHERE, ((lambda: ready[0], True),), 0, 0, 0), (), None, None)
    assert guard((x,), {}) == [x, WHERE]
    ready[0] = False
    assert guard((x,), {}) == [x, None]
    ready[0] = True
    guard.stop()
    assert guard((x,), {}) == [x, None]


def test_an_instance_is_referred_to_weakly(fast):
    one, other = Array(), Array()
    guard = fast.Guard({}, fast.Lock(), 2, 0, ((0, INSTANCE, weakref.ref(one)), (1, ARRAY, Array())), ())
    x = Array()
    assert guard((one, x), {}) == [x, None]
    assert guard((other, x), {}) is None
    del one
    gc.collect()
    assert guard((None, x), {}) is None


def test_modes_have_to_be_answered_in_the_same_way(fast):
    now = {"grad": False, "kind": 1}
    modes = ((lambda: now["grad"], False), (now.get, "kind", 1))
    guard = guard_of(fast, Array(), modes=modes)
    assert guard((Array(),), {}) is not None
    now["grad"] = True
    assert guard((Array(),), {}) is None
    now.update(grad=False, kind=2)
    assert guard((Array(),), {}) is None
    del now["grad"]
    assert guard((Array(),), {}) is None  # and its error is gone


def test_no_call_is_alike_while_anything_is_captured(fast):
    captures = {1: "under way"}
    guard = guard_of(fast, Array(), captures=captures)
    assert guard((Array(),), {}) is None
    del captures[1]
    assert guard((Array(),), {}) is not None


# ---- which calls are repeated --------------------------------------------------------------------


class Bench:
    """A guard that repeats calls."""

    def __init__(self, fast, vendor, *, code=0, blocks=0, questions=(), keep=False, capturing=False, count=2):
        self.owner = Owner(vendor, code, blocks)
        self.lock, self.captures = fast.Lock(), {}
        self.arrays = [Array(4096 * (i + 1)) for i in range(count)]
        self.guard = guard_of(fast, *self.arrays, captures=self.captures, lock=self.lock)
        self.launcher = launcher_of(fast, self.owner, never)
        address = ctypes.cast(vendor.capturing, ctypes.c_void_p).value if capturing else 0
        functions = address, address
        self.place = WHERE, questions, 77, *functions
        self.how = self.launcher, (RESULT,), None, None, None
        addresses, kept = array("Q", [x.told[0] for x in self.arrays]), self.arrays if keep else None
        self.follow = partial(self.guard.follow, self.place, self.how, addresses, kept)
        self.follow()

    def __call__(self, *arrays):
        return self.guard(tuple(arrays or self.arrays), {})

    @property
    def calls(self):
        return self.owner.vendor.calls(self.owner.executable)


def test_repeats_a_call_whose_arrays_are_where_they_were(fast, vendor):
    bench = Bench(fast, vendor)
    assert bench() == bench() == (RESULT,)
    assert bench.calls == 2
    assert bench(Array(4096), Array(8192)) == (RESULT,)
    moved = [Array(4096), Array(8193)]
    assert bench(*moved) == [*moved, WHERE]
    assert bench.guard.stop() == 3
    assert bench() == [*bench.arrays, None]
    assert bench.guard.stop() == 0
    assert bench.calls == 3
    bench.follow()
    assert bench() == (RESULT,)


def test_repeats_a_call_with_the_very_arrays_if_they_are_kept(fast, vendor):
    bench = Bench(fast, vendor, keep=True)
    assert bench() == (RESULT,)
    assert isinstance(bench(bench.arrays[0], Array(8192)), list)
    gone = weakref.ref(bench.arrays.pop())
    gc.collect()
    assert gone() is None  # it was not kept alive
    assert isinstance(bench(bench.arrays[0], Array(8192)), list)
    assert bench.calls == 1


def test_repeats_nothing_with_an_altered_array(fast, vendor):
    bench = Bench(fast, vendor)
    bench.arrays[1].altered = True
    assert bench() == [*bench.arrays, WHERE]
    bench.arrays[1].altered = False
    assert bench() == (RESULT,)
    del bench.arrays[1].altered
    assert bench() == [*bench.arrays, WHERE]
    assert bench.calls == 1


def test_repeats_nothing_if_another_call_comes_between(fast, vendor):
    bench = Bench(fast, vendor)

    class Moved(Array):
        @property
        def altered(self):
            with bench.lock:
                bench.guard.stop()
                bench.guard.follow(bench.place, bench.how, array("Q", [1, 2]), None)
            return False

        altered = altered.setter(lambda self, value: None)

    bench.guard = guard_of(fast, Moved(4096), Moved(8192), captures=bench.captures, lock=bench.lock)
    bench.guard.follow(bench.place, bench.how, array("Q", [4096, 8192]), None)
    x, y = Moved(4096), Moved(8192)
    assert bench(x, y) == [x, y, WHERE]
    assert bench.calls == 0


def test_repeats_nothing_where_another_stream_is_current(fast, vendor):
    current = [1 << 40]
    bench = Bench(fast, vendor, questions=((lambda: current[0], 1 << 40),))
    assert bench() == (RESULT,)
    current[0] = 7
    assert bench() == [*bench.arrays, None]
    assert bench.calls == 1


@pytest.mark.parametrize(("code", "status"), [(0, 1), (0, 2), (906, 0)])
def test_repeats_nothing_while_the_stream_captures(fast, vendor, code, status):
    bench = Bench(fast, vendor, capturing=True)
    assert bench() == (RESULT,)
    assert vendor.asked() == 77
    vendor.capture(code, status)
    try:
        assert bench() == [*bench.arrays, None]
    finally:
        vendor.capture(0, 0)
    assert bench() == (RESULT,)
    assert bench.calls == 2


def test_repeats_nothing_without_the_lock(fast, vendor):
    bench = Bench(fast, vendor)
    with bench.lock:
        assert bench() == [*bench.arrays, WHERE]
        assert bench.lock._is_owned()
        Background(lambda: bench() == [*bench.arrays, WHERE] or never()).over()
    assert not bench.lock._is_owned()
    assert bench() == (RESULT,)
    assert bench.calls == 1


def test_holds_the_lock_during_the_launch(fast, vendor):
    bench, took = Bench(fast, vendor, blocks=1), threading.Event()
    other = Background(bench)
    assert vendor.reached(bench.owner.executable)

    def take():
        with bench.lock:
            took.set()

    waiting = Background(take)
    assert bench() == [*bench.arrays, WHERE]
    assert not took.wait(0.1)
    vendor.open_one(bench.owner.executable)
    other.over()
    waiting.over()
    assert took.is_set()


def test_repeats_nothing_once_the_graph_was_reset(fast, vendor):
    bench = Bench(fast, vendor)
    bench.launcher.target = None
    assert bench() == [*bench.arrays, WHERE]
    assert bench.calls == 0


def test_raises_what_the_launch_answers_and_gives_the_lock_back(fast, vendor):
    bench = Bench(fast, vendor, code=719)
    with pytest.raises(Answered, match="719"):
        bench()
    assert bench.guard.stop() == 0
    with bench.lock:
        pass


def test_threads_that_call_follow_and_stop(fast, vendor):
    bench = Bench(fast, vendor, keep=True)
    answers, repeated = [], 0

    def call():
        answers.extend(bench() == (RESULT,) for _ in range(2000))

    threads = [Background(call) for _ in range(3)]
    for _ in range(300):
        with bench.lock:
            repeated += bench.guard.stop()
            bench.follow()
    for each in threads:
        each.over()
    repeated += bench.guard.stop()
    assert repeated == sum(answers) == bench.calls


# ---- what is refused, and what is held -----------------------------------------------------------


def test_refuses_what_it_can_not_read(fast):
    guard, x = guard_of(fast, Array()), Array()
    for args in [(), ((x,),), ([x], {}), ((x,), None)]:
        with pytest.raises(TypeError, match="a guard takes a tuple and a dict"):
            guard(*args)
    with pytest.raises(ValueError, match="there is no argument 1"):
        fast.Guard({}, fast.Lock(), 1, 0, ((1, ARRAY, x),), ())
    with pytest.raises(AttributeError):
        fast.Guard({}, fast.Lock(), 1, 0, ((0, ARRAY, 5),), ())
    with pytest.raises(ValueError, match="at most 128 arrays"):
        guard_of(fast, *(Array() for _ in range(129)))
    place, launcher = (WHERE, (), 0, 0, 0), fast.Launcher({}, never)
    how, one = (launcher, (RESULT,), None, None, None), array("Q", [1])
    for addresses, arrays in [(array("Q", [1, 2]), None), (one, []), (one, [x, x]), (array("I", [1]), None)]:
        with pytest.raises(ValueError, match=r"there must be an? (many|address)|as many arrays"):
            guard.follow(place, how, addresses, arrays)
    for wrong in [
        (never, (RESULT,), None, None, None),
        (launcher, RESULT, None, None, None),
        (launcher, None, None, None, None),
        (launcher, (RESULT,), never, None, None),
        (launcher, (RESULT,), None, 5, None),
    ]:
        with pytest.raises(TypeError, match=r"Launcher|a result in a tuple"):
            guard.follow(place, wrong, one, None)
        guard.follow(place, wrong, None, None)
        assert guard((x,), {}) == [x, WHERE]


def test_knows_one_version_of_the_description(fast):
    def of(*versions):
        cls = type("Made", (Array,), {"__dlpack_c_exchange_api__": exchange(lambda x: x.told, *versions)})
        return guard_of(fast, cls())

    of(1), of(2, 1), of(3, 2, 1)
    for versions in [(0,), (2,), (2, 0)]:
        with pytest.raises(ValueError, match="no function in C"):
            of(*versions)


def test_holds_nothing_that_is_not_needed(fast, vendor):
    bench = Bench(fast, vendor)
    assert bench() == (RESULT,)
    launcher = weakref.ref(bench.launcher)
    arrays = [weakref.ref(x) for x in bench.arrays]
    guard, bench = bench.guard, None
    gc.collect()
    assert [x() for x in arrays] == [None, None]
    assert launcher() is not None
    guard.stop()
    gc.collect()
    assert launcher() is None


@pytest.mark.skipif(
    "sanitize" in os.environ.get(MORE_FLAGS, ""), reason="a sanitizer holds back what is freed"
)
def test_leaves_no_memory_behind(fast, vendor):
    def turn():
        value, x = object(), Array()
        guard = guard_of(fast, x, value, modes=((lambda: [value], [value]),))
        assert guard((x, value), {}) == [x, None]
        bench = Bench(fast, vendor, keep=True)
        assert bench() == (RESULT,)
        bench.follow()

    sizes = []
    tracemalloc.start()
    try:
        for _ in range(5):
            for _ in range(300):
                turn()
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert min(after - before for before, after in pairwise(sizes)) < 300 * 8  # Python's own caches grow, too


def test_is_collected_in_a_cycle(fast):
    class Holder:
        pass

    kept, holder, x = object(), Holder(), Array()
    before = sys.getrefcount(kept)
    holder.kept = kept
    holder.guard = fast.Guard({}, fast.Lock(), 2, 0, ((0, CONSTANT, holder), (1, ARRAY, x)), ())
    guard = guard_of(fast, x)
    how = fast.Launcher({}, never), (guard, kept), None, None, None
    guard.follow((WHERE, (), 0, 0, 0), how, array("Q", [1]), None)
    assert sys.getrefcount(kept) == before + 2
    del holder, guard, how
    gc.collect()
    assert sys.getrefcount(kept) == before
