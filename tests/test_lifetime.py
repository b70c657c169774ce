"""What is watched, and what is done once it is gone."""

from __future__ import annotations

import pytest

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


def test_interrupted_drain_forgets_nothing(monkeypatch):
    """What it has put off is destroyed later, and so is what it has not come to."""
    seen, recorder, put_off, interrupting, last = [], Recorder(), Watched(), Watched(), Watched()

    def interrupt(value):
        raise KeyboardInterrupt

    monkeypatch.setitem(_lifetime.captures, -1, recorder.base)
    _lifetime.watch(put_off, seen.append, 1, recorder)
    _lifetime.watch(interrupting, interrupt, None)
    _lifetime.watch(last, seen.append, 2)
    del put_off
    del interrupting
    del last
    with pytest.raises(KeyboardInterrupt):
        _lifetime.drain()
    _lifetime.drain()
    assert seen == [2]
    monkeypatch.delitem(_lifetime.captures, -1)
    _lifetime.drain()
    assert seen == [2, 1]


class Recorder:
    """A backend that stands in for another one, and whose graphs disturb captures when they go."""

    base = object()
    destroy_disturbs_captures = True


def test_what_a_recorder_destroys_waits_for_the_captures_of_its_backend():
    seen, recorder = [], Recorder()
    for key, there in ((-1, object()), (-2, recorder.base)):
        watched = Watched()
        _lifetime.watch(watched, seen.append, key, recorder)
        _lifetime.captures[key] = there
        try:
            del watched
            _lifetime.drain()
            assert seen == [-1]
        finally:
            del _lifetime.captures[key]
    _lifetime.drain()
    assert seen == [-1, -2]
