"""Finalizers, and what `drain` calls once they are gone."""

import gc
import sys
import threading
import weakref
from contextlib import suppress
from types import SimpleNamespace

import pytest

import accelerator_graph as ag
from accelerator_graph._core import capture_table, ownership
from faults.signals import steps


def due():
    """Call what is due; what is called by that, too."""
    before = None
    while before != [*ownership._queue]:  # until only that is left which other tests still hold
        before = [*ownership._queue]
        ownership.drain()


def test_the_action_is_called_once_its_finalizer_is_gone():
    seen = []
    one, other = ownership.Callback(seen.append, 1), ownership.Callback(seen.append, 2)
    ownership.drain()
    assert seen == []
    del one
    assert seen == []
    ownership.drain()
    assert seen == [1]
    del other
    due()
    assert seen == [1, 2]


def test_a_driver_that_refuses_is_asked_once_and_what_is_due_behind_it_is_called():
    asked = []

    def refuse(value):
        asked.append(value)
        raise ag.DriverError("no")

    for action, value in ((refuse, 1), (asked.append, 2), (refuse, 3)):
        ownership.Callback(action, value)
    for _ in range(2):
        ownership.drain()
        assert asked == [1, 2, 3]


class Holder:
    """Something that can be referred to, and that refers to something."""


def test_what_leads_back_to_its_finalizer_is_collected():
    seen, holder = [], Holder()
    holder.finalizer = ownership.Callback(lambda value: seen.append(value.name), holder)
    holder.name = "still there"
    holder.also = ownership.Callback(seen.append, "kept", None, holder)
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert seen == []
    due()
    assert sorted(seen) == ["kept", "still there"]
    gc.collect()
    assert gone() is None
    assert not [each for each in gc.get_objects() if type(each) is Holder]  # no isinstance: torch warns of it
    due()
    assert len(seen) == 2


def owned(action, value, backend=None, *keeps):
    """Make an `Owned` that does the same as a `Callback` with these arguments."""

    class Acts(ownership.Owned):
        __slots__ = ()

        def act(self):
            action(self.value)

    return Acts(backend or Harmless(), backend, value, *keeps)


@pytest.mark.parametrize("make", [ownership.Callback, owned])
def test_what_is_kept_outlives_what_keeps_it(make):
    """Even if both are collected together, in either order, or one has to wait for a capture."""
    recorder = Disturbing()
    for swapped in (False, True):
        for disturbed in (False, True):
            seen, cycle = [], Holder()
            first = make(seen.append, "first")
            second = make(seen.append, "second", recorder, first)
            third = make(seen.append, "third", None, first, Holder(), second)
            three = [third, second, first]
            cycle.all, cycle.cycle = three[::-1] if swapped else three, cycle
            del first, second, third, three, cycle
            if disturbed:
                capture_table.live[-1] = SimpleNamespace(backend=recorder)
            gc.collect()
            ownership.drain()
            if disturbed:
                assert seen == ["third"]
                del capture_table.live[-1]
                ownership.drain()
            assert seen == ["third", "second", "first"]


def test_what_is_kept_by_a_finalizer_in_a_cycle_is_due_with_it():
    seen, holder = [], Holder()
    kept = ownership.Callback(seen.append, "kept")
    holder.finalizer = ownership.Callback(lambda holder: seen.append("first"), holder, None, kept)
    del kept, holder
    gc.collect()
    ownership.drain()
    assert seen == ["first", "kept"]


def test_what_is_kept_waits_for_a_thread_that_is_not_through():
    seen, go, there = [], threading.Event(), threading.Event()

    def slow(value):
        there.set()
        assert go.wait(120)
        seen.append(value)

    kept = ownership.Callback(seen.append, "kept")
    keeper = ownership.Callback(slow, "keeper", None, kept)
    del keeper
    thread = threading.Thread(target=ownership.drain)
    thread.start()
    assert there.wait(120)
    del kept
    ownership.drain()
    assert seen == []
    go.set()
    thread.join()
    due()
    assert seen == ["keeper", "kept"]


def test_one_that_an_interrupt_left_half_made_is_nothing():
    ownership.Finalizer.__new__(ownership.Finalizer)
    ownership.Owned.__new__(ownership.Owned)
    ownership.drain()
    assert not ownership._queue


class Disturbing:
    """A backend whose graphs disturb captures when they go."""

    destroy_disturbs_captures = True


class Harmless:
    """A backend whose graphs disturb nothing when they go."""

    destroy_disturbs_captures = False


@pytest.mark.promise("graphs-end-at-any-time")
def test_what_a_backend_destroys_waits_for_the_captures_of_its_backend():
    seen, recorder = [], Disturbing()
    for key, there in ((-1, object()), (-2, recorder)):
        watched = ownership.Callback(seen.append, key, recorder)
        capture_table.live[key] = SimpleNamespace(backend=there)
        try:
            del watched
            ownership.drain()
            assert seen == [-1]
        finally:
            del capture_table.live[key]
    ownership.drain()
    assert seen == [-1, -2]


@pytest.mark.parametrize("error", [MemoryError, RecursionError, KeyboardInterrupt, SystemExit])
def test_what_could_not_be_destroyed_stays_due(error):
    done, failures = [], [error(), error()]

    def destroy(value):
        if value == 2 and failures:
            raise failures.pop()
        done.append(value)

    watched = [ownership.Callback(destroy, value) for value in range(4)]
    watched.clear()
    while failures:
        with suppress(KeyboardInterrupt, SystemExit):
            ownership.drain()
    ownership.drain()
    assert sorted(done) == [0, 1, 2, 3]
    assert not ownership._queue


class Interrupter:
    """Raises at the n-th moment at which `ownership` can be interrupted by a signal."""

    def __init__(self, at):
        self.left = at
        self.last = {}

    @property
    def struck(self):
        return self.left <= 0

    def __call__(self, frame, event, arg):
        if frame.f_code.co_filename != ownership.__file__:
            return None
        frame.f_trace_opcodes = True
        if event in ("opcode", "call"):
            step = (self.last.get(frame, -1), frame.f_lasti)
            self.last[frame] = frame.f_lasti
            if event == "call" or step in steps(frame.f_code):
                self.left -= 1
                if self.struck:
                    sys.settrace(None)
                    raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("disturbed", [False, True])
def test_an_interrupt_at_any_moment_of_drain_loses_nothing(disturbed):
    """What was just destroyed may be destroyed again: a backend knows that it is gone."""
    at, interrupter = 0, None
    while interrupter is None or interrupter.struck:
        at, done = at + 1, []
        recorder = Disturbing()
        watched = [
            ownership.Callback(done.append, value, recorder if disturbed and value == 1 else None)
            for value in range(3)
        ]
        if disturbed:
            capture_table.live[-1] = SimpleNamespace(backend=recorder)

        watched.clear()
        interrupter = Interrupter(at)
        sys.settrace(interrupter)
        try:
            ownership.drain()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
            capture_table.live.pop(-1, None)
        ownership.drain()
        assert set(done) == {0, 1, 2}, f"interrupted at {at}: {done}"
        assert len(done) <= 4
    assert at > 20


@pytest.mark.parametrize("keep", [False, True])
def test_nothing_of_a_graph_that_is_reset_waits_to_be_destroyed(keep):
    with ag.Stream(backend="cpu") as stream:
        graph = ag.Graph(stream=stream, keep_graph=keep)
        with graph:
            stream.launch(print)
        if keep:
            graph.instantiate()
        before = len(ownership._queue)
        graph.reset()
        assert len(ownership._queue) == before


@pytest.mark.parametrize(("recorder", "waits"), [(Disturbing(), True), (Harmless(), False)])
def test_a_recorder_and_not_its_backend_says_what_disturbs(recorder, waits):
    backend, seen = Harmless() if waits else Disturbing(), []

    class Acts(ownership.Owned):
        __slots__ = ()

        def act(self):
            seen.append(self.value)

    for captured, expected in ((recorder, [1]), (backend, [] if waits else [1])):
        made = Acts(recorder, backend, 1)
        capture_table.live[-1] = SimpleNamespace(backend=captured)
        try:
            del made
            ownership.drain()
            assert seen == expected
        finally:
            del capture_table.live[-1]
        due()
        assert seen == [1]
        seen.clear()


def test_an_error_of_an_action_is_printed_and_what_is_due_behind_it_is_called(monkeypatch):
    seen, printed, error = [], [], ValueError("mine")

    def fail(value):
        seen.append(value)
        raise error

    monkeypatch.setattr(sys, "excepthook", lambda *what: printed.append(what[:2]))
    for action, value in ((seen.append, 1), (fail, 2), (seen.append, 3)):
        ownership.Callback(action, value)
    for _ in range(2):
        ownership.drain()
        assert seen == [1, 2, 3]
        assert printed == [(ValueError, error)]


def test_a_fork_forgets_what_was_made_before_it(monkeypatch):
    seen = []
    before = ownership.Callback(seen.append, "before")
    monkeypatch.setattr(ownership, "forks", ownership.forks + 1)
    after = ownership.Callback(seen.append, "after")
    del before, after
    ownership.drain()
    assert seen == ["after"]
    assert not ownership._queue


class Alike:
    """All of these are equal, and none can be hashed."""

    def __eq__(self, other):
        return True


def test_graphs_that_are_equal_are_tracked_apart():
    known, (one, other) = len(ownership.graphs), (Alike(), Alike())
    for each in (one, other):
        ownership.graphs.add(ownership.Ref(each, ownership.forget))
    assert [id(each) for each in ownership.tracked() if type(each) is Alike].count(id(one)) == 1
    del one
    assert len(ownership.graphs) == known + 1
    assert [id(each) for each in ownership.tracked() if type(each) is Alike] == [id(other)]


def test_those_that_wait_for_one_of_several_captures_let_the_others_act(monkeypatch):
    recorder, seen = Disturbing(), []
    for key, backend in ((-1, Disturbing()), (-2, recorder), (-3, Harmless())):
        monkeypatch.setitem(capture_table.live, key, SimpleNamespace(backend=backend))
    try:
        for value in range(5):
            ownership.Callback(seen.append, value, recorder if value in (0, 2) else None)
        ownership.drain()
        assert seen == [1, 3, 4]
    finally:
        monkeypatch.undo()
    ownership.drain()
    assert sorted(seen) == [0, 1, 2, 3, 4]


def test_after_a_fork_every_graph_is_told_and_nothing_is_due(monkeypatch):
    told, seen = [], []
    due()
    graphs = [SimpleNamespace(_after_fork=lambda number=number: told.append(number)) for number in range(3)]
    monkeypatch.setattr(ownership, "tracked", lambda: graphs)
    monkeypatch.setattr(ownership, "forks", ownership.forks)
    ownership.Callback(seen.append, 1)
    ownership._after_fork()
    assert told == [0, 1, 2]
    assert not ownership._queue
    monkeypatch.undo()
    due()
    assert seen == []
