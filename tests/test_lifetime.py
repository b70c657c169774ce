"""What is watched, and what is done once it is gone."""

from __future__ import annotations

import pytest

from accelerator_graph import _lifetime
from accelerator_graph.interop.base import Recorder


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


class Disturbing(Recorder):
    """It stands in for a backend, and its graphs disturb captures when they go."""

    destroy_disturbs_captures = True


def test_what_a_recorder_destroys_waits_for_the_captures_of_its_backend():
    seen, recorder = [], Disturbing(object())
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
