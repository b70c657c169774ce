"""Bodies that the device repeats, in a capture that torch records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ...errors import CaptureError
from ..base import PoolId


@contextmanager
def body(torch: Any, recorder: Any, pool: PoolId, what: str) -> Iterator[None]:
    """Have this thread allocate from a pool, and refuse the numbers of generators that the graph knows.

    A replay moves these generators on once, and not once for each run of a body. Inside, they have the state
    of one that takes part in no capture. If the block raises, `TorchRecorder.capture_abandon` leaves it.
    """
    depth = len(recorder.bodies)
    if depth:  # torch asks for the pool that was begun first
        _end(torch, recorder, recorder.bodies[-1])
    else:
        for generator in recorder.generators:
            recorder.states.append((generator, generator.graphsafe_get_state()))
            generator.graphsafe_set_state(recorder.of_no_graph[recorder.device])
    recorder.bodies.append(pool)
    _begin(torch, recorder, pool)
    try:
        yield
    except RuntimeError as error:
        if "generator not in capture mode" not in str(error):
            raise
        raise CaptureError(
            f"{what}: a body draws random numbers of torch, which a replay moves on once, and not once for "
            "each run of a body; draw them before, or pass native=False.",
            reason="illegal_call",
        ) from error
    leave(torch, recorder, depth)


def leave(torch: Any, recorder: Any, depth: int = 0) -> None:
    """Leave the bodies that are deeper than this. May be called again, and on any thread."""
    pools = recorder.bodies
    inner = len(pools) > depth
    while len(pools) > depth:
        _end(torch, recorder, pools[-1])
        pools.pop()
    if pools and inner:
        _begin(torch, recorder, pools[-1])
    while recorder.states and not pools:
        generator, state = recorder.states[-1]
        generator.graphsafe_set_state(state)
        recorder.states.pop()


def _begin(torch: Any, recorder: Any, pool: PoolId) -> None:
    device = recorder.device
    _, uses = recorder.of_bodies.setdefault(pool, (device, []))
    uses.extend(map(torch._C._cuda_beginAllocateCurrentThreadToPool, (device,), (pool,)))  # in C


def _end(torch: Any, recorder: Any, pool: PoolId) -> None:
    with suppress(RuntimeError):  # an interrupt has come before it began, or behind its end
        torch._C._cuda_endAllocateToPool(recorder.device, pool)
