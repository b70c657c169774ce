"""What the simulator of this process has counted."""

from __future__ import annotations

import os
from typing import Any

from accelerator_graph._core import ownership


def accounts() -> dict[str, Any]:
    ownership.drain()
    if os.environ["ACCELERATOR_GRAPH_TEST_SIMULATOR"] == "cuda":
        from .cuda.faults import Accounts as OfCuda

        cuda = OfCuda()
        return {"live": cuda.live(), "stale_handles": cuda.stale_handles, "unknown_calls": cuda.unknown_calls}
    from .amd.accounts import Accounts as OfAmd

    amd = OfAmd()
    return {
        "launches": amd.launches,
        "unknown_kernels": amd.unknown_kernels,
        "unknown_calls": amd.unknown_calls,
    }
