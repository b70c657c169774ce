"""What is watched, and what is done once it is gone."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import SimpleNamespace

import pytest
from faults.signals import steps

from accelerator_graph import _lifetime


class Watched:
    pass


class Equal:
    """Equal to all others, and without a hash."""

    def __eq__(self, other):
        return True


@pytest.mark.parametrize("kind", [Watched, Equal])
def test_one_object_can_be_watched_several_times(kind):
    seen, watched, other = [], kind(), kind()
    for value in (1, 2, 2):
        _lifetime.watch(watched, seen.append, value)
    _lifetime.watch(other, seen.append, 3)
    _lifetime.drain()
    assert seen == []
    before = len(_lifetime._watches)
    del watched
    _lifetime.drain()
    assert sorted(seen) == [1, 2, 2]
    del other
    _lifetime.drain()
    assert sorted(seen) == [1, 2, 2, 3]
    assert len(_lifetime._watches) == before - 4


class Recorder:
    """A backend that stands in for another one, and whose graphs disturb captures when they go."""

    base = object()
    destroy_disturbs_captures = True


def test_what_a_recorder_destroys_waits_for_the_captures_of_its_backend():
    seen, recorder = [], Recorder()
    for key, there in ((-1, object()), (-2, recorder.base)):
        watched = Watched()
        _lifetime.watch(watched, seen.append, key, recorder)
        _lifetime.captures[key] = SimpleNamespace(stream=SimpleNamespace(_backend=there))
        try:
            del watched
            _lifetime.drain()
            assert seen == [-1]
        finally:
            del _lifetime.captures[key]
    _lifetime.drain()
    assert seen == [-1, -2]


@pytest.mark.parametrize("error", [MemoryError, RecursionError, KeyboardInterrupt, SystemExit])
def test_what_could_not_be_destroyed_stays_due(error):
    done, failures = [], [error(), error()]

    def destroy(value):
        if value == 2 and failures:
            raise failures.pop()
        done.append(value)

    watched = [Watched() for _ in range(4)]
    for value, each in enumerate(watched):
        _lifetime.watch(each, destroy, value)
    del each
    watched.clear()
    while failures:
        with suppress(KeyboardInterrupt, SystemExit):
            _lifetime.drain()
    _lifetime.drain()
    assert sorted(done) == [0, 1, 2, 3]
    assert not _lifetime._pending


class Interrupter:
    """Raises at the n-th moment at which `_lifetime` can be interrupted by a signal."""

    def __init__(self, at):
        self.left = at
        self.last = {}

    @property
    def struck(self):
        return self.left <= 0

    def __call__(self, frame, event, arg):
        if frame.f_code.co_filename != _lifetime.__file__:
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
        recorder = Recorder()
        watched = [Watched() for _ in range(3)]
        for value, each in enumerate(watched):
            _lifetime.watch(each, done.append, value, recorder if disturbed and value == 1 else None)
        del each
        if disturbed:
            _lifetime.captures[-1] = SimpleNamespace(stream=SimpleNamespace(_backend=recorder.base))

        watched.clear()
        interrupter = Interrupter(at)
        sys.settrace(interrupter)
        try:
            _lifetime.drain()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
            _lifetime.captures.pop(-1, None)
        _lifetime.drain()
        assert set(done) == {0, 1, 2}, f"interrupted at {at}: {done}"
        assert len(done) <= 4
    assert at > 20
