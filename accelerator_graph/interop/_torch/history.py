"""Where memory was allocated and freed, if torch records the history of its allocations."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ..records import BlockHistory

_FREED = ("free_requested", "free_completed")


def history(torch: Any, address: int) -> BlockHistory | None:
    """Return the places of the last allocation and the last release around an address."""
    ask = getattr(getattr(torch.cuda, "memory", None), "_snapshot", None)
    if ask is None:
        return None
    allocated = freed = ""
    inside = os.path.dirname(torch.__file__) + os.sep
    for trace in ask().get("device_traces", ()):
        for entry in trace:
            start = entry.get("addr", 0)
            if not start <= address < start + entry.get("size", 0):
                continue
            if entry["action"] == "alloc":
                allocated, freed = _place(entry.get("frames", ()), inside), ""
            elif entry["action"] in _FREED:
                freed = freed or _place(entry.get("frames", ()), inside)
    return BlockHistory(allocated, freed) if allocated or freed else None


def _place(frames: Iterable[Mapping[str, Any]], inside: str) -> str:
    """Return file and line of the innermost frame of Python outside of torch."""
    for frame in frames:
        file = frame["filename"]
        if file.endswith(".py") and not file.startswith(inside):
            return f"{file}:{frame['line']}"
    return ""
