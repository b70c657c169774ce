"""The fast path by itself: the current stream, methods, and what objects hold."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import inspect
import itertools
import os
import sys
import threading
import weakref

import pytest

from core.fast_arrays import exchange
from core.fast_bench import (
    ROOT,
    TIMEOUT,
    Answered,
    Background,
    Ordinary,
    Owner,
    extension,
    failed,
    launch_of,
    launcher_of,
    lock_of,
    never,
)
from processes import execute

pytest_plugins = ["core.fast_fixtures"]


# ---- the current stream --------------------------------------------------------------------------


@pytest.mark.parametrize("argument", [(), (3,), (None,)])
def test_follows_the_current_stream(fast, vendor, argument):
    owner, launchers, asked, made = Owner(vendor), {}, [], []

    def current(*given):
        asked.append(given)
        return handle

    def missing(handle):
        made.append(handle)
        launchers[handle] = launcher_of(fast, owner, never, stream=handle)
        return launchers[handle]

    follow = fast.Follower(launchers, missing, current, *argument)
    for handle in (1 << 40, 1 << 40, 5, 0, 0, 1 << 40, 5):
        assert follow() is None
        assert vendor.stream(owner.executable) == handle
    assert asked == [argument] * 7
    assert made == [1 << 40, 5, 0]
    launchers.clear()
    assert follow() is None
    assert made == [1 << 40, 5, 0]


def test_the_current_stream_that_dlpack_tells_is_not_asked_for(fast, vendor):
    owner, launchers, asked = Owner(vendor), {}, []
    told = 5

    class Arrays:
        __dlpack_c_exchange_api__ = exchange(never, current=lambda device: told if device == (2, 1) else None)

    def current(device):
        asked.append(device)
        return handle

    def missing(handle):
        launchers[handle] = launcher_of(fast, owner, never, stream=handle)
        return launchers[handle]

    follow = fast.Follower(launchers, missing, current, 1, (Arrays, 2, 1))
    for handle in (5, 1 << 40, 1 << 40, 0, 0, 5):
        told = handle
        assert follow() is None
        assert vendor.stream(owner.executable) == handle
    assert asked == [1] * 4  # once for each change
    told = None
    assert follow() is None
    assert vendor.stream(owner.executable) == 5
    assert asked == [1] * 5


@pytest.mark.parametrize(
    "arrays", [int, type("Newer", (), {"__dlpack_c_exchange_api__": exchange(never, 2)})]
)
def test_types_that_tell_no_current_stream(fast, vendor, arrays):
    owner = Owner(vendor)
    launchers = {7: launcher_of(fast, owner, never, stream=7)}
    assert fast.Follower(launchers, never, lambda: 7, exchange=(arrays, 2, 0))() is None
    assert vendor.stream(owner.executable) == 7


def test_errors_on_the_way_to_the_current_stream_come_through(fast):
    def wrong(*_):
        raise Answered("wrong")

    for follow in (
        fast.Follower({}, never, wrong),
        fast.Follower({}, wrong, lambda: 1),
        fast.Follower({1: wrong}, never, lambda: 1),
    ):
        with pytest.raises(Answered):
            follow()
    with pytest.raises(TypeError, match="integer"):
        fast.Follower({}, never, list)()
    with pytest.raises(OverflowError):
        fast.Follower({}, never, lambda: 1 << 64)()


# ---- a method ------------------------------------------------------------------------------------


def having(fast, function):
    """Return a class whose objects have a slot, and a method that calls what is in it."""

    class Slotted:
        __slots__ = ("__weakref__", "held")

    Slotted.replay = fast.Method(Slotted.held, function)
    return Slotted


def test_a_method_calls_what_is_in_the_slot(fast, vendor):
    def replay(self, *args, **kwargs):
        """Do it in Python."""
        return self, args, kwargs

    cls, owner = having(fast, replay), Owner(vendor)
    one, other = cls(), cls()
    with pytest.raises(AttributeError):
        one.replay()
    one.held, other.held = launcher_of(fast, owner, never), lambda: "another"
    assert (one.replay(), other.replay(), cls.replay(other)) == (None, "another", "another")
    assert vendor.calls(owner.executable) == 1
    assert one.replay(1) == (one, (1,), {})
    assert one.replay(1, two=2) == (one, (1,), {"two": 2})
    assert one.replay(two=2) == (one, (), {"two": 2})
    bound = other.replay
    for held, answer in ((lambda: 1, 1), (None, (other, (), {})), (lambda: 2, 2)):
        other.held = held
        assert bound() == other.replay() == answer
    stranger = object()
    assert cls.replay(stranger) == (stranger, (), {})
    with pytest.raises(TypeError):
        cls.replay()


def test_what_was_in_a_slot_lives_until_its_call_is_over(fast):
    def replace():
        one.held = None
        alive.append(gone() is not None)

    cls, alive = having(fast, never), []
    one = cls()
    one.held = fast.Launcher({}, replace)
    gone = weakref.ref(one.held)
    one.replay()
    assert alive == [True]
    assert gone() is None


def test_errors_of_a_method_come_through(fast):
    def wrong(*_):
        raise Answered("wrong")

    cls = having(fast, wrong)
    one = cls()
    for one.held in (wrong, None):
        with pytest.raises(Answered):
            one.replay()


def test_a_method_looks_like_its_function(fast):
    def replay(self, stream: int = 3) -> None:
        """Do it."""

    cls = having(fast, replay)
    functools.update_wrapper(cls.__dict__["replay"], replay)
    assert cls.replay.__doc__ == "Do it."
    assert str(inspect.signature(cls().replay)) == "(stream: 'int' = 3) -> 'None'"
    assert inspect.signature(cls.replay) == inspect.signature(replay)
    assert inspect.isroutine(cls.replay)
    assert cls.replay.__reduce__() == cls.replay.__qualname__
    one = cls()
    there = weakref.WeakMethod(one.replay), weakref.ref(cls.replay)
    assert there[0]() == one.replay
    assert there[1]() is cls.replay
    assert cls().replay.__name__ == "replay"


def test_what_is_in_a_slot_is_exchanged_under_load(fast, vendor):
    cls, owner = having(fast, never), Owner(vendor)
    one = cls()
    one.held = launcher_of(fast, owner, never)
    end = threading.Event()

    def exchange():
        while not end.is_set():
            one.held = launcher_of(fast, owner, never)

    other = Background(exchange)
    for _ in range(20_000):
        one.replay()
    end.set()
    other.over()
    assert vendor.calls(owner.executable) == 20_000


# ---- objects -------------------------------------------------------------------------------------


def test_wrong_arguments_are_refused(fast, vendor):
    owner = Owner(vendor)
    good = (vendor.address, owner.executable, 0, owner, failed, fast.Lock())
    for arguments, kind in (
        ((0, *good[1:]), ValueError),
        (("launch", *good[1:]), TypeError),
        ((vendor.address, 1 << 64, *good[2:]), OverflowError),
        (good[:5], TypeError),
        ((*good[:5], threading.Lock()), TypeError),
        ((*good, 8, 0, 0, 0, True), ValueError),
    ):
        with pytest.raises(kind):
            fast.Launch(*arguments)
    for make in (
        lambda: fast.Launcher([], never),
        lambda: fast.Launcher({}),
        lambda: fast.Follower([], never, never),
        lambda: fast.Lock(1),
        lambda: fast.Method(Owner.__init__, never),
        lambda: setattr(fast.Launcher({}, never), "target", never),
        lambda: delattr(fast.Launcher({}, never), "target"),
        lambda: setattr(fast.Launcher, "target", None),
        lambda: type("Derived", (fast.Launcher,), {}),
    ):
        with pytest.raises(TypeError):
            make()


def test_references_are_balanced(fast, vendor):
    lock, captures, ordinary, truth, nothing = fast.Lock(), {}, lambda: nothing, object(), object()
    place = ctypes.c_void_p(7)
    latest = ctypes.addressof(place)
    owner, bad = Owner(vendor), Owner(vendor, 3)
    plain = launcher_of(fast, owner, ordinary, captures)
    alone = launcher_of(fast, owner, ordinary, captures, lock=lock, latest=latest)
    broken, silent = launcher_of(fast, bad, ordinary, captures), fast.Launcher(captures, ordinary)
    silent.target = fast.Launch(
        vendor.address, bad.executable, 0, bad, lambda code: nothing, lock_of(fast, bad)
    )
    handle, turns = 1 << 60, itertools.cycle((1 << 60, 5))
    launchers, current = {handle: plain, 5: alone}, (lambda argument: next(turns))
    follow = fast.Follower(launchers, ordinary, current, argument := object())
    launches = [plain.target, alone.target, broken.target]
    cls = having(fast, lambda self, *_: nothing)
    one, method = cls(), cls.replay
    one.held = plain

    def every_way(times):
        for _ in range(times):
            plain()
            alone()
            follow()
            one.replay()
        for _ in range(times // 10):
            one.replay(truth)
            fast.Method(cls.held, ordinary).name = truth
            with contextlib.suppress(Answered):
                broken()
            with contextlib.suppress(SystemError):
                silent()
            captures[1] = 1
            plain()
            captures.clear()
            launch_of(fast, owner, lock=lock, latest=latest)
            before, plain.target = plain.target, None
            plain()
            plain.target = before
            fast.Launcher(captures, ordinary).target = before
            fast.Follower(launchers, ordinary, current, argument)
        before = None

    watched = [lock, captures, ordinary, truth, nothing, owner, bad, plain, alone, broken, launchers, handle]
    watched += [current, argument, failed, None, *launches, one, method, cls.held]
    watched += [fast.Launch, fast.Launcher, fast.Follower, fast.Method]
    every_way(100)
    gc.collect()
    before = [sys.getrefcount(each) for each in watched]
    every_way(100_000)
    gc.collect()
    after = [sys.getrefcount(each) for each in watched]
    moved = {repr(each): end - begin for each, begin, end in zip(watched, before, after, strict=True)}
    assert {name: by for name, by in moved.items() if abs(by) > 10} == {}


def test_cycles_are_collected(fast, vendor):
    kept, owner = Ordinary(), Owner(vendor)
    before = sys.getrefcount(kept)
    owner.replay, owner.kept = launcher_of(fast, owner, never), kept
    launchers = {2: kept}
    launchers[1] = fast.Follower(launchers, owner, never)
    latest = Ordinary()
    latest.follow, latest.kept = fast.Follower({3: latest}, never, lambda: 3), kept
    latest.follow()
    method = fast.Method(having(fast, never).held, never)
    method.itself, method.kept = method, kept
    owns = fast.Launcher({}, never)
    owns.target = fast.Launch(vendor.address, owner.executable, 0, owns, kept, fast.Lock())
    found, turns = [], iter([3])
    follow = fast.Follower({}, lambda handle: found.pop(), lambda kept: next(turns), kept)
    found.append(fast.Launcher({}, follow))
    with pytest.raises(StopIteration):
        follow()
    assert sys.getrefcount(kept) == before + 6
    del owner, launchers, latest, method, owns, follow
    gc.collect()
    assert sys.getrefcount(kept) == before  # a weak reference would be cleared in any case


def test_is_gone_with_its_last_reference(fast, vendor):
    owner, calls = Owner(vendor), []
    replay = launcher_of(fast, owner, never)
    gone = weakref.ref(replay, calls.append), weakref.ref(owner)
    del replay, owner
    assert len(calls) == 1
    assert gone[1]() is None
    method = fast.Method(having(fast, never).held, never)
    there = weakref.ref(method, calls.append)
    del method
    assert calls[1:] == [there]


def test_other_interpreters_can_have_it_too(fast):
    """In a process of its own: where another was, extensions can't tell any more who has the GIL."""
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    pytest.importorskip(name)
    code = f"""
import importlib.util
import inspect
from importlib.machinery import ExtensionFileLoader
loader = ExtensionFileLoader("accelerator_graph._core._fast", {fast.__spec__.origin!r})
module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(module)
called = []
replay = module.Launcher({{}}, lambda: called.append(1))
replay()
lock = module.Lock()
lock.owner = None
replay.target = module.Launch(ANSWERS_ONE, 0, 0, None, called.append, lock)
try:
    replay()
except SystemError:
    called.append(2)
assert called == [1, 1, 2], called
"""
    program = f"""
import ctypes
import functools
import {name} as interpreters
answers_one = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value
code = {code!r}.replace("ANSWERS_ONE", str(answers_one))
for _ in range(2):
    interpreter = interpreters.create()
    wrong = interpreters.run_string(interpreter, code)
    interpreters.destroy(interpreter)
    assert wrong is None, wrong
"""
    done = execute([sys.executable, "-c", program], timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr


@pytest.mark.needs("no_lock")
def test_does_not_bring_the_interpreters_lock_back():
    code = f"""
import sys
sys.path[:0] = [{str(ROOT / "tests")!r}]
from core import fast_bench
fast_bench.load({str(extension())!r})
sys.exit(sys._is_gil_enabled())
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    done = execute([sys.executable, "-c", code], env=environment, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
