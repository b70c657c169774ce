"""torch's pools: what they hold; which ids torch can't use again, and the ids that replace them.

Up to torch 2.13, the allocator for pinned memory never leaves a pool into which a capture failed, and refuses
the next capture into it. The other allocator refuses the id of a pool whose last graph is gone while an array
still lives in the pool.
"""

from __future__ import annotations

from typing import Any

from ...errors import CaptureError
from .. import base
from ..base import PoolId

instead: dict[PoolId, PoolId | None] = {}
"""By the id of a pool that torch can't use again the one that replaces it; None if none can."""


def usable(pool: PoolId) -> PoolId:
    """Return the id to give to torch for a pool.

    Raises CaptureError if the pool is an object of torch's that can't be used again: no id can replace it.
    """
    found: PoolId | None = pool
    while found in instead:
        found = instead[found]
    if found is None:
        raise CaptureError(
            f"torch can't use pool {tuple(pool)} again, because a capture into it has failed; make another "
            "torch.cuda.MemPool.",
            reason="other",
        )
    return found


def spend(torch: Any, pool: PoolId) -> None:
    """Replace the id of a pool from now on, unless the pool is an object of torch's."""
    first, second = pool  # without the tuple, which may keep the object alive
    found: PoolId | None = None
    if not hasattr(pool, "owner"):
        found = torch.cuda.graph_pool_handle()
        while found == (first, second) or found in instead:  # a program had made this id up
            found = torch.cuda.graph_pool_handle()
    instead[first, second] = found


def contents(torch: Any, pool: PoolId, device: int) -> base.PoolContents:
    """Return the segments that torch's caching allocator has in a pool, and what arrays occupy of them."""
    found = [
        segment
        for segment in _snapshot(torch.cuda.memory_snapshot)
        if segment["device"] == device and tuple(segment["segment_pool_id"]) == tuple(pool)
    ]
    segments = sorted(base.PoolSegment(segment["address"], segment["total_size"]) for segment in found)
    return base.PoolContents(tuple(segments), sum(segment["allocated_size"] for segment in found))


def _snapshot(ask: Any) -> list[dict[str, Any]]:
    """Return all segments, without the history of allocations if possible.

    torch 2.11 would select those of a pool, but gives up references to the numbers of the pool's id that are
    not its own: after some hundred calls the process ends with a segmentation fault.
    """
    try:
        found = ask(include_traces=False)
    except TypeError:  # an older torch
        found = ask()
    return found  # type: ignore[no-any-return]
