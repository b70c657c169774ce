"""On which stream each operator of torch enqueues its work."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ..base import Undo
from .dispatch import observe_operators

_WITHOUT_WORK = ("empty", "new_empty", "resize", "set_", "record_stream")
"""The first parts of the names of operators that only make or describe memory."""


def operations(torch: Any, seen: Callable[[str, int, int], bool]) -> Undo:
    """Call `seen` with the name, the stream's handle and the device of each operator that enqueues work.

    Streams for which it has returned True are not reported again.
    """
    stream_of = torch._C._cuda_getCurrentRawStream
    known: set[int] = set()

    @cache
    def enqueues(operator: Any) -> bool:
        schema = getattr(operator, "_schema", None)
        if schema is None or schema.name.partition("::")[2].startswith(_WITHOUT_WORK):
            return False
        aliases = [each.alias_info for each in schema.returns]
        is_view = any(each is not None and not each.is_write for each in aliases)
        return not is_view and (bool(aliases) or bool(schema.is_mutable))

    def note(operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        device = _device(torch, result)
        if device is None:
            device = _device(torch, args)
        if device is None:
            return
        stream = stream_of(device)
        if stream not in known and enqueues(operator) and seen(str(operator), int(stream), device):
            known.add(stream)

    return observe_operators(torch, note)


def _device(torch: Any, value: Any) -> int | None:
    """Return the device of the first tensor that is on one; None if there is none."""
    if isinstance(value, torch.Tensor):
        return int(value.get_device()) if value.is_cuda else None
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return None
    for each in value:
        device = _device(torch, each)
        if device is not None:
            return device
    return None
