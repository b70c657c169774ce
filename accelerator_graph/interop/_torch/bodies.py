"""Bodies that the device repeats, in a capture that torch records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from ...errors import CaptureError
from ..base import PoolId

_inside: dict[int, list[PoolId]] = {}
"""By device: the pools of the bodies that are being recorded, the innermost last."""


@contextmanager
def body(torch: Any, recorder: Any, pool: PoolId, what: str) -> Iterator[None]:
    """Have this thread allocate from a pool, and refuse the numbers of generators that the graph knows.

    A replay moves these generators on once, so every run of a body would draw the same numbers. Inside, they
    have the state of one that takes part in no capture.
    """
    device = recorder.device

    def begin(pool: PoolId) -> None:
        torch._C._cuda_beginAllocateCurrentThreadToPool(device, pool)
        recorder.of_bodies.setdefault(pool, []).append(device)

    def end(pool: PoolId) -> None:
        with suppress(RuntimeError):  # an interrupt has come before it began
            torch._C._cuda_endAllocateToPool(device, pool)

    pools = _inside.setdefault(device, [])
    with ExitStack() as undo:
        for generator in recorder.generators:
            undo.callback(generator.graphsafe_set_state, generator.graphsafe_get_state())
            generator.graphsafe_set_state(recorder.of_no_graph[device])
        if pools:  # torch asks for the pool that was begun first
            undo.callback(begin, pools[-1])
            end(pools[-1])
        undo.callback(end, pool)
        pools.append(pool)
        undo.callback(pools.remove, pool)
        begin(pool)
        try:
            yield
        except RuntimeError as error:
            if "generator not in capture mode" not in str(error):
                raise
            raise CaptureError(
                f"{what}: a body draws random numbers of torch, which would be the same in each of its runs; "
                "draw them before, or pass native=False.",
                reason="illegal_call",
            ) from error
