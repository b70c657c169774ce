"""Ids of pools that torch can't use again, and the ids that stand for them.

Up to 2.13 the allocator for pinned memory goes on with a pool if a capture into it fails, and refuses the
next one. The other allocator refuses the id of a pool whose last graph is gone, as long as an array lives in
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import CaptureError

if TYPE_CHECKING:
    from ..base import PoolId

_instead: dict[PoolId, PoolId | None] = {}


def usable(pool: PoolId) -> PoolId:
    """Return the id that torch is to be given for a pool.

    Raises
    ------
    CaptureError
        There is none: the pool is an object of torch's.
    """
    found: PoolId | None = pool
    while found in _instead:
        found = _instead[found]
    if found is None:
        raise CaptureError(
            f"torch can't use pool {tuple(pool)} any more, since a capture into it has failed; make another "
            "torch.cuda.MemPool.",
            reason="other",
        )
    return found


def spend(torch: Any, pool: PoolId) -> None:
    """Have another id stand for a pool from now on, if it is no object of torch's."""
    first, second = pool  # not the tuple itself, which may hold the object
    _instead[first, second] = None if hasattr(pool, "owner") else torch.cuda.graph_pool_handle()
