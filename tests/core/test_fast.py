"""The fast path by itself: what a call of a launcher does, on several threads and with locks."""

import ctypes
import gc
import signal
import threading
import weakref
from functools import partial

import pytest

from core.fast_bench import (
    TIMEOUT,
    Answered,
    Background,
    Ordinary,
    Owner,
    failed,
    launch_of,
    launcher_of,
    lock_of,
    never,
)

pytest_plugins = ["core.fast_fixtures"]


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
    replay.target = fast.Launch(
        vendor.address, owner.executable, 0, owner, lambda code: None, lock_of(fast, owner)
    )
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


@pytest.mark.promise("wait-for-a-launch-ends")
def test_waiting_for_a_lock_can_be_interrupted(fast):
    lock, end, held = fast.Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            assert end.wait(TIMEOUT), "the other thread waits for the lock as long as this one has it"

    struck = []

    def interrupt(*_):
        if not struck:
            struck.append(True)
            raise Answered("interrupted")

    holder = Background(hold)
    assert held.wait(TIMEOUT)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(Answered, match="interrupted"):  # noqa: PT012 - on a busy machine before the wait
            # Again and again, since Python misses a signal that comes as a thread is about to wait.
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            lock.__enter__()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    end.set()
    holder.over()
    with lock:
        pass


def test_launches_that_share_a_lock_overlap_and_keep_who_enters_it_waiting(fast, vendor):
    owner, lock, ordinary = Owner(vendor, blocks=1), fast.Lock(), Ordinary()
    replay, entered = launcher_of(fast, owner, ordinary, lock=lock, shared=True), threading.Event()

    def enter():
        with lock:
            entered.set()
            replay()

    calls = [Background(replay) for _ in range(2)]
    assert all(vendor.reached(owner.executable) for _ in calls)
    assert vendor.most(owner.executable) == 2
    other = Background(enter)
    for _ in calls:
        assert not entered.wait(0.05)
        vendor.open_one(owner.executable)
    other.over()
    for call in calls:
        call.over()
    assert entered.is_set()
    assert (vendor.calls(owner.executable), ordinary.calls) == (2, 1)


@pytest.mark.promise("wait-for-a-launch-ends")
def test_waiting_for_launches_that_share_a_lock_can_be_interrupted(fast, vendor):
    owner, lock = Owner(vendor, blocks=1), fast.Lock()
    call = Background(launcher_of(fast, owner, never, lock=lock, shared=True))
    assert vendor.reached(owner.executable)

    def interrupt(*_):
        raise Answered("interrupted")

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(Answered, match="interrupted"):  # noqa: PT012 - on a busy machine before the wait
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            lock.__enter__()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not lock._is_owned()
    vendor.open_one(owner.executable)
    call.over()
    Background(lock.__enter__).over()


@pytest.mark.parametrize("shared", [False, True])
def test_launches_of_another_owner_take_the_ordinary_way(fast, vendor, shared):
    owner, other, lock, ordinary = Owner(vendor), Owner(vendor), fast.Lock(), Ordinary()
    replay = launcher_of(fast, owner, ordinary, lock=lock, shared=shared)
    for lock.owner, launches in ((owner, 1), (other, 1), (None, 1), (owner, 2)):
        replay()
        assert vendor.calls(owner.executable) == launches
        Background(lambda: lock.__enter__() or lock.__exit__()).over()  # it was let go
    assert ordinary.calls == 2


def test_a_lock_of_a_thread_that_a_fork_has_ended(fast):
    lock = fast.Lock()
    lock.owner = "owner"
    Background(lock.__enter__).over()
    lock._at_fork_reinit()
    Background(lambda: lock.__enter__() or lock.__exit__()).over()
    assert lock.owner == "owner"


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
        *(vendor.address, owner.executable, 0, owner, failed, lock_of(fast, owner)),
        current=current,
        context=(1 << 64) - 16,
    )
    for code, context, there in ((0, (1 << 64) - 16, 1), (0, 16, 0), (0, 0, 0), (4, (1 << 64) - 16, 0)):
        vendor.go_to(code, ctypes.c_void_p(context))
        before = vendor.calls(owner.executable), ordinary.calls
        replay()
        assert (vendor.calls(owner.executable), ordinary.calls) == (before[0] + there, before[1] + 1 - there)


def test_a_stream_that_captures_means_the_ordinary_way(fast, vendor):
    owner, ordinary = Owner(vendor), Ordinary()
    lock = lock_of(fast, owner)
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
        lock = lock_of(fast, owner)
        replay.target = fast.Launch(
            vendor.address, owner.executable, 7, owner, failed, lock, capturing=capturing
        )
