"""The fast path by itself: `_core/_fast.c`, compiled as it is now, above launch functions in C that watch."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import hashlib
import importlib.util
import inspect
import itertools
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import weakref
from functools import partial
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import pytest

from lanes import lack
from processes import execute
from simulators.cuda.build import compiler

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "FAST_SOURCE"
"""The environment's variable that names another file than `_core/_fast.c`."""
CACHE = Path(__file__).resolve().parent / "__pycache__"
FLAGS = ("-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers")
MORE_FLAGS = "FAST_FLAGS"
"""The one that has more flags for the compiler, such as ``-fsanitize=address``."""
TIMEOUT = int(os.environ.get("FAST_SECONDS", "60"))

LAUNCHES = r"""
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
    _Atomic(int) alive, inside, most;
    _Atomic(long) calls;
    _Atomic(uintptr_t) stream;
    int code, blocks;
    sem_t reached, opened;
} Executable;

_Atomic(long) of_the_dead; /* launches of what was destroyed before they were through */

Executable *make(int code, int blocks)
{
    Executable *made = calloc(1, sizeof *made);
    made->alive = 1;
    made->code = code;
    made->blocks = blocks;
    sem_init(&made->reached, 0, 0);
    sem_init(&made->opened, 0, 0);
    return made;
}

/* With `keep` it stays in memory, so that a launch that comes too late can be counted. */
void destroy(Executable *gone, int keep)
{
    gone->alive = 0;
    if (!keep)
        free(gone);
}

static int in_time(sem_t *semaphore)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += SECONDS;
    while (sem_timedwait(semaphore, &end))
        if (errno != EINTR)
            return 0;
    return 1;
}

int launch(void *executable, void *stream)
{
    Executable *self = executable;
    int code = self->code, inside = ++self->inside;
    if (inside > self->most)
        self->most = inside;
    self->stream = (uintptr_t)stream;
    self->calls++;
    if (self->blocks) {
        sem_post(&self->reached);
        if (!in_time(&self->opened))
            code = -1;
    }
    if (!self->alive)
        of_the_dead++;
    self->inside--;
    return code;
}

int reached(Executable *self) { return in_time(&self->reached); }
void open_one(Executable *self) { sem_post(&self->opened); }
long calls(Executable *self) { return self->calls; }
int most(Executable *self) { return self->most; }
uintptr_t stream(Executable *self) { return self->stream; }
long launched_dead(void) { return of_the_dead; }

static int current_code;
static void *current_context;

void go_to(int code, void *context)
{
    current_code = code;
    current_context = context;
}

int current(void **context)
{
    *context = current_context;
    return current_code;
}

static int capturing_code, capturing_status;
static void *asked_about;

void capture(int code, int status)
{
    capturing_code = code;
    capturing_status = status;
}

int capturing(void *stream, int *status)
{
    asked_about = stream;
    if (capturing_status >= 0)
        *status = capturing_status;
    return capturing_code;
}

uintptr_t asked(void) { return (uintptr_t)asked_about; }
"""


def compiled(name: str, source: str, suffix: str, *flags: str) -> Path:
    """Compile a shared object, once for each state of source and flags."""
    cc = compiler()
    if cc is None:
        lack("there is no C compiler to build the fast path with")
        raise AssertionError
    more = shlex.split(os.environ.get(MORE_FLAGS, ""))
    command = [cc, *FLAGS, *flags, *more, "-fPIC", "-shared", "-pthread"]
    facts = "\0".join((sys.version, sysconfig.get_paths()["include"], *command, source))
    path = CACHE / f"{name}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}{suffix}"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            (code, made) = Path(folder, f"{name}.c"), Path(folder, "made")
            code.write_text(source, encoding="utf-8")
            command += [str(code), "-o", str(made)]
            done = execute(command, timeout=120)
            assert done.returncode == 0, done.stderr
            made.replace(path)
    return path


def extension() -> Path:
    if sys.platform != "linux":
        pytest.skip("the launch functions of these tests are for Linux")
    file = os.environ.get(SOURCE) or ROOT / "accelerator_graph" / "_core/_fast.c"
    source = Path(file).read_text(encoding="utf-8")
    include = sysconfig.get_paths()["include"]
    if not Path(include, "Python.h").exists():
        lack("the headers of Python are not installed")
    return compiled("_fast", source, sysconfig.get_config_var("EXT_SUFFIX"), f"-I{include}")


def load(path: Path):
    loader = ExtensionFileLoader("accelerator_graph._core._fast", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def fast():
    return load(extension())


@pytest.fixture(scope="module")
def vendor():
    library = ctypes.CDLL(str(compiled("launches", LAUNCHES, ".so", f"-DSECONDS={TIMEOUT}")))
    library.make.restype = ctypes.c_void_p
    library.calls.restype = library.launched_dead.restype = ctypes.c_long
    library.stream.restype = ctypes.c_size_t
    for name in ("reached", "open_one", "calls", "most", "stream"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.destroy.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.address = ctypes.cast(library.launch, ctypes.c_void_p).value
    return library


class Answered(Exception):
    pass


def failed(code):
    raise Answered(code)


class Owner:
    """Destroys its executable as soon as nobody holds it."""

    def __init__(self, vendor, code=0, blocks=0, keep=1):
        self.vendor, self.keep = vendor, keep
        self.executable = vendor.make(code, blocks)

    def __del__(self):
        self.vendor.destroy(self.executable, self.keep)


class Ordinary:
    """The way through Python: notes that it was taken."""

    def __init__(self, then=lambda: None):
        self.calls = 0
        self.then = then

    def __call__(self):
        self.calls += 1
        return self.then()


def launch_of(fast, owner, *, stream=7, lock=None, latest=0):
    return fast.Launch(owner.vendor.address, owner.executable, stream, owner, failed, lock, latest)


def launcher_of(fast, owner, ordinary, captures=None, **how):
    launcher = fast.Launcher({} if captures is None else captures, ordinary)
    launcher.target = launch_of(fast, owner, **how)
    return launcher


def never():
    raise AssertionError("the ordinary way was taken")


class Background(threading.Thread):
    """A call in another thread, which must come to its end."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self.call, self.error = call, None
        self.start()

    def run(self):
        try:
            self.call()
        except BaseException as error:
            self.error = error

    def over(self):
        self.join(TIMEOUT)
        assert not self.is_alive(), "it does not end"
        if self.error is not None:
            raise self.error


# ---- what a call does ----------------------------------------------------------------------------


def test_launches_with_both_handles(fast, vendor):
    owner = Owner(vendor)
    replay = launcher_of(fast, owner, never, stream=0xFFFF_FFFF_FFFF_FFF7)
    assert [replay() for _ in range(3)] == [None] * 3
    assert vendor.calls(owner.executable) == 3
    assert vendor.stream(owner.executable) == 0xFFFF_FFFF_FFFF_FFF7


@pytest.mark.parametrize("code", [1, 719, -3])
def test_raises_what_the_code_stands_for(fast, vendor, code):
    replay = launcher_of(fast, Owner(vendor, code), never)
    with pytest.raises(Answered, match=f"^{code}$"):
        replay()


def test_an_error_is_never_lost(fast, vendor):
    owner = Owner(vendor, 5)
    replay = fast.Launcher({}, never)
    replay.target = fast.Launch(vendor.address, owner.executable, 0, owner, lambda code: None)
    with pytest.raises(SystemError, match=r"answered 5, and .* did not raise"):
        replay()


def test_takes_the_ordinary_way_while_anything_is_captured(fast, vendor):
    owner, captures, ordinary = Owner(vendor), {}, Ordinary()
    replay = launcher_of(fast, owner, ordinary, captures)
    replay()
    captures[1] = "under way"
    replay()
    assert (vendor.calls(owner.executable), ordinary.calls) == (1, 1)
    del captures[1]
    replay()
    assert (vendor.calls(owner.executable), ordinary.calls) == (2, 1)


def test_takes_the_ordinary_way_without_a_target(fast, vendor):
    def refuse():
        raise Answered("was reset")

    owner = Owner(vendor)
    replay = fast.Launcher({}, refuse)
    assert replay.target is None
    with pytest.raises(Answered, match="was reset"):
        replay()
    target = replay.target = launch_of(fast, owner)
    assert replay.target is target
    replay()
    replay.target = None
    with pytest.raises(Answered, match="was reset"):
        replay()
    assert vendor.calls(owner.executable) == 1


def test_takes_no_arguments(fast, vendor):
    owner = Owner(vendor)
    replay = launcher_of(fast, owner, never)
    follower = fast.Follower({}, never, never)
    for call in (replay, follower):
        for arguments, names in (((1,), {}), ((), {"stream": 1})):
            with pytest.raises(TypeError, match="takes no arguments"):
                call(*arguments, **names)
    replay()
    assert vendor.calls(owner.executable) == 1


# ---- several threads -----------------------------------------------------------------------------


def test_python_goes_on_during_a_launch(fast, vendor):
    owner = Owner(vendor, blocks=1)
    call = Background(launcher_of(fast, owner, never))
    assert vendor.reached(owner.executable)
    assert call.is_alive()
    vendor.open_one(owner.executable)
    call.over()


@pytest.mark.parametrize("other", [False, True], ids=["reset", "another executable"])
def test_a_launch_in_flight_keeps_its_executable(fast, vendor, other):
    before = vendor.launched_dead()
    owner = Owner(vendor, blocks=1, keep=1)
    gone, executable = weakref.ref(owner), owner.executable
    replay = launcher_of(fast, owner, never)
    call = Background(replay)
    assert vendor.reached(executable)
    replay.target = launch_of(fast, Owner(vendor)) if other else None
    del owner
    gc.collect()
    assert gone() is not None
    vendor.open_one(executable)
    call.over()
    assert gone() is None
    assert vendor.launched_dead() == before


def test_launches_of_one_executable_may_overlap(fast, vendor):
    owner = Owner(vendor, blocks=1)
    calls = [Background(launcher_of(fast, owner, never)) for _ in range(2)]
    assert all(vendor.reached(owner.executable) for _ in calls)
    for _ in calls:
        vendor.open_one(owner.executable)
    for call in calls:
        call.over()
    assert vendor.most(owner.executable) == 2


def test_a_lock_lets_one_launch_through_and_the_others_wait_in_the_ordinary_way(fast, vendor):
    owner, lock = Owner(vendor, blocks=1), fast.Lock()
    waiting, entered = threading.Event(), threading.Event()

    def wait():
        waiting.set()
        with lock:
            entered.set()

    ordinary = Ordinary(wait)
    replay = launcher_of(fast, owner, ordinary, lock=lock)
    first = Background(replay)
    assert vendor.reached(owner.executable)
    second = Background(replay)
    assert waiting.wait(TIMEOUT)
    assert not entered.wait(0.05)
    vendor.open_one(owner.executable)
    first.over()
    second.over()
    assert entered.is_set()
    assert ordinary.calls == vendor.calls(owner.executable) == 1


def test_one_at_a_time_under_load(fast, vendor):
    owner, lock = Owner(vendor), fast.Lock()

    def ordinary():
        with lock:
            vendor.launch(owner.executable, 7)

    latest = ctypes.c_void_p(7)
    replay = launcher_of(fast, owner, ordinary, lock=lock, latest=ctypes.addressof(latest))
    each = 3000

    def many():
        for _ in range(each):
            replay()

    calls = [Background(many) for _ in range(4)]
    for call in calls:
        call.over()
    assert vendor.calls(owner.executable) == len(calls) * each
    assert vendor.most(owner.executable) == 1


def test_executables_are_exchanged_under_load(fast, vendor):
    """Each is destroyed, and its memory freed, as soon as nobody holds it."""
    before, end = vendor.launched_dead(), threading.Event()
    replay = launcher_of(fast, Owner(vendor, keep=0), ordinary := Ordinary())

    def many():
        while not end.is_set():
            replay()

    calls = [Background(many) for _ in range(2)]
    for n in range(1000):
        replay.target = None if n % 10 == 9 else launch_of(fast, Owner(vendor, keep=0))
        if n % 100 == 0:
            gc.collect()
    end.set()
    for call in calls:
        call.over()
    assert vendor.launched_dead() == before
    assert ordinary.calls >= 0


def test_two_threads_replay_at_once_each_its_own(fast, vendor):
    owners = [Owner(vendor) for _ in range(4)]

    def many(replay):
        for _ in range(5000):
            replay()

    calls = [Background(partial(many, launcher_of(fast, owner, never))) for owner in owners]
    for call in calls:
        call.over()
    assert [vendor.calls(owner.executable) for owner in owners] == [5000] * 4


# ---- locks ---------------------------------------------------------------------------------------


def test_lock_is_recursive_and_taken_by_launches(fast, vendor):
    owner, lock, ordinary = Owner(vendor), fast.Lock(), Ordinary()
    replay = launcher_of(fast, owner, ordinary, lock=lock)
    with lock, lock:
        replay()
    assert (ordinary.calls, vendor.calls(owner.executable)) == (1, 0)
    with lock:
        replay()
    replay()
    assert (ordinary.calls, vendor.calls(owner.executable)) == (2, 1)


def test_lock_is_left_by_who_has_it(fast):
    lock = fast.Lock()
    with pytest.raises(RuntimeError, match="enter it first"):
        lock.__exit__(None, None, None)
    with lock, pytest.raises(RuntimeError, match="enter it first"):
        Background(lambda: lock.__exit__(None, None, None)).over()
    Background(lock.__enter__).over()


def test_lock_is_free_after_an_error(fast, vendor):
    lock = fast.Lock()
    replay = launcher_of(fast, Owner(vendor, 9), never, lock=lock)
    for _ in range(2):
        with pytest.raises(Answered):
            replay()
    with pytest.raises(KeyError), lock:
        raise KeyError
    Background(lock.__enter__).over()


def test_waiting_for_a_lock_can_be_interrupted(fast):
    lock, end, held = fast.Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            assert end.wait(TIMEOUT), "the other thread waits for the lock as long as this one has it"

    def interrupt(*_):
        raise Answered("interrupted")

    holder = Background(hold)
    assert held.wait(TIMEOUT)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Answered, match="interrupted"):
            lock.__enter__()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    end.set()
    holder.over()
    with lock:
        pass


def test_a_latest_run_on_another_stream_means_the_ordinary_way(fast, vendor):
    owner, lock, ordinary, latest = Owner(vendor), fast.Lock(), Ordinary(), ctypes.c_void_p()
    replay = launcher_of(fast, owner, ordinary, lock=lock, stream=7, latest=ctypes.addressof(latest))
    for latest.value, taken in ((None, (0, 1)), (7, (1, 1)), (8, (1, 2)), (7, (2, 2))):
        replay()
        assert (vendor.calls(owner.executable), ordinary.calls) == taken
        Background(lock.__enter__).over()  # it was let go
        lock = fast.Lock()
        replay.target = launch_of(fast, owner, lock=lock, stream=7, latest=ctypes.addressof(latest))


def test_another_context_means_the_ordinary_way(fast, vendor):
    owner, ordinary = Owner(vendor), Ordinary()
    current = ctypes.cast(vendor.current, ctypes.c_void_p).value
    replay = fast.Launcher({}, ordinary)
    replay.target = fast.Launch(
        vendor.address, owner.executable, 0, owner, failed, current=current, context=(1 << 64) - 16
    )
    for code, context, there in ((0, (1 << 64) - 16, 1), (0, 16, 0), (0, 0, 0), (4, (1 << 64) - 16, 0)):
        vendor.go_to(code, ctypes.c_void_p(context))
        before = vendor.calls(owner.executable), ordinary.calls
        replay()
        assert (vendor.calls(owner.executable), ordinary.calls) == (before[0] + there, before[1] + 1 - there)


def test_a_stream_that_captures_means_the_ordinary_way(fast, vendor):
    owner, lock, ordinary = Owner(vendor), fast.Lock(), Ordinary()
    capturing = ctypes.cast(vendor.capturing, ctypes.c_void_p).value
    replay = fast.Launcher({}, ordinary)
    replay.target = fast.Launch(vendor.address, owner.executable, 7, owner, failed, lock, capturing=capturing)
    for code, status, free in ((0, 0, 1), (0, 1, 0), (0, 2, 0), (4, 0, 0), (4, -1, 0), (0, 0, 1)):
        vendor.capture(code, status)
        before = vendor.calls(owner.executable), ordinary.calls
        replay()
        assert (vendor.calls(owner.executable), ordinary.calls) == (before[0] + free, before[1] + 1 - free)
        assert vendor.asked() == 7
        Background(lock.__enter__).over()  # it was let go
        lock = fast.Lock()
        replay.target = fast.Launch(
            vendor.address, owner.executable, 7, owner, failed, lock, capturing=capturing
        )


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
    good = (vendor.address, owner.executable, 0, owner, failed)
    for arguments, kind in (
        ((0, *good[1:]), ValueError),
        (("launch", *good[1:]), TypeError),
        ((vendor.address, 1 << 64, *good[2:]), OverflowError),
        (good[:4], TypeError),
        ((*good, threading.Lock()), TypeError),
        ((*good, None, 8), ValueError),
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
    broken = launcher_of(fast, bad, ordinary, captures)
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

    watched = [
        lock,
        captures,
        ordinary,
        truth,
        nothing,
        owner,
        bad,
        plain,
        alone,
        broken,
        launchers,
        handle,
    ]
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
    owner = Owner(vendor)
    owner.replay = launcher_of(fast, owner, never)
    launchers = {}
    launchers[1] = fast.Follower(launchers, owner, never)
    latest = Ordinary()
    latest.follow = fast.Follower({3: latest}, never, lambda: 3)
    latest.follow()
    method, kept = fast.Method(having(fast, never).held, never), Ordinary()
    method.itself, method.kept = method, kept
    gone = [weakref.ref(owner), weakref.ref(owner.replay), weakref.ref(kept), weakref.ref(latest)]
    del owner, launchers, method, kept, latest
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4


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
replay.target = module.Launch(ANSWERS_ONE, 0, 0, None, called.append)
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


def test_does_not_bring_the_interpreters_lock_back():
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("this interpreter has its lock")
    code = f"""
import sys
sys.path[:0] = [{str(ROOT / "tests")!r}]
from core import test_fast
test_fast.load({str(extension())!r})
sys.exit(sys._is_gil_enabled())
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=TIMEOUT).returncode == 0
