"""Times replays with events, and puts back what they have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from ..backends.base import Capability, unsupported
from ..backends.memory import memory_of
from ..errors import GraphStateError
from .events import Event
from .streams import Stream, captured_by

WARM_UP = 3
"""How many replays come before those that are timed: the first ones may still load code."""

_in_use: dict[int, object] = {}
"""Copies on the host that the device may still use. They stay if their stream can't be waited for."""


def replay_times(
    stream: Stream, launch: Callable[[], object], replays: int, state: Sequence[object]
) -> list[float]:
    """Return how long each of some replays takes, in microseconds.

    Parameters
    ----------
    stream : Stream
        Where `launch` replays.
    launch : callable
        Replays once.
    replays : int
        How many are timed.
    state : sequence of arrays
        What is copied to the host before, and back afterwards, even if a replay fails.
    """
    backend, native = stream._backend, stream._native
    for capability in (Capability.TIMING, *([Capability.ENQUEUE] if state else [])):
        if capability not in backend.capabilities(stream.device):
            raise unsupported(backend, capability)
    if stream._is_capturing():
        raise GraphStateError(f"Graph.profile(): {captured_by(stream)}.")
    sizes = [memory_of(array, None, writable=True, device=True).nbytes for array in state]
    kept = [(array, bytearray(size)) for array, size in zip(state, sizes, strict=True)]
    with stream._relaxed(), ExitStack() as at_end:  # which goes on if an array can't be put back
        _in_use[id(kept)] = kept
        at_end.callback(_finish, stream, kept)
        for array, copy in kept:
            backend.copy(native, copy, array, None)
        backend.synchronize(native)
        for array, copy in kept:
            at_end.callback(backend.copy, native, array, copy, None)
        for _ in range(WARM_UP):
            launch()
        marks = [_mark(stream, launch) for _ in range(replays)]
        backend.synchronize(native)
        return [start.elapsed_time(end) * 1000 for start, end in marks]


def _finish(stream: Stream, kept: object) -> None:
    stream._backend.synchronize(stream._native)
    del _in_use[id(kept)]


def _mark(stream: Stream, launch: Callable[[], object]) -> tuple[Event, Event]:
    start = stream.record(timing=True)
    launch()
    return start, stream.record(timing=True)
