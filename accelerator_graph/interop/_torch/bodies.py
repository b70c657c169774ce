"""Bodies that the device repeats, in a capture that torch records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from ...errors import CaptureError
from ..base import PoolId
from ..torch import of_bodies, of_no_graph

_inside: dict[int, list[PoolId]] = {}
"""By device: the pools of the bodies that are being recorded, the innermost last."""


@contextmanager
def body(torch: Any, device: int, pool: PoolId, what: str, generators: Sequence[Any]) -> Iterator[None]:
    """Have this thread allocate from a pool, and refuse the numbers of generators that the graph knows.

    A replay moves these generators on once. So every run of a body would draw the same numbers.
    """
    pools = _inside.setdefault(device, [])
    with ExitStack() as undo:
        for generator in generators:
            undo.callback(generator.graphsafe_set_state, generator.graphsafe_get_state())
            generator.graphsafe_set_state(of_no_graph[device])
        if pools:  # torch asks for the pool that was begun first
            undo.callback(_begin, torch, device, pools[-1])
            _end(torch, device, pools[-1])
        undo.callback(_end, torch, device, pool)
        pools.append(pool)
        undo.callback(pools.remove, pool)
        _begin(torch, device, pool)
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


def _begin(torch: Any, device: int, pool: PoolId) -> None:
    torch._C._cuda_beginAllocateCurrentThreadToPool(device, pool)
    of_bodies.setdefault(pool, []).append(device)


def _end(torch: Any, device: int, pool: PoolId) -> None:
    with suppress(RuntimeError):  # an interrupt has come before it began
        torch._C._cuda_endAllocateToPool(device, pool)
