"""On which stream each operator of torch enqueues its work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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


def waiting(torch: Any, beside: Callable[[str], AbstractContextManager[None]]) -> Undo:
    """Run each operator that waits for the device inside ``beside(name)``."""
    sizes = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}

    def around(operator: Any, args: Any, kwargs: Any) -> AbstractContextManager[None]:
        name = operator._schema.name.partition("::")[2] if hasattr(operator, "_schema") else ""
        if name in ("_to_copy", "copy_"):
            waits = _crosses(torch, args, kwargs)
        elif name in ("index", "index_put", "index_put_"):
            waits = _has_mask(torch, name, args)
        else:
            waits = bool(name) and not sizes.isdisjoint(operator.tags) and kwargs.get("output_size") is None
            waits = waits and any(each.is_cuda and each.numel() for each in _tensors(torch, args))
        return beside(name) if waits else nullcontext()

    return observe_operators(torch, lambda *_: None, around)


def _crosses(torch: Any, args: Any, kwargs: Any) -> bool:
    """Return True if a copy between host and device waits."""
    source = args[-1] if len(args) == 1 else args[1]
    target = kwargs.get("device") if len(args) == 1 else args[0].device
    if kwargs.get("non_blocking") or any(each is True for each in args[2:]) or target is None:
        return False
    return {source.device.type, torch.device(target).type} == {"cpu", "cuda"}


def _has_mask(torch: Any, name: str, args: Any) -> bool:
    """Return True if a mask on the device selects elements. One number is written without waiting."""
    masks = [each for each in args[1] if each is not None and each.is_cuda]
    one = name != "index" and args[2].numel() == 1
    return not one and any(each.dtype in (torch.bool, torch.uint8) for each in masks)


def _tensors(torch: Any, args: Any) -> list[Any]:
    return [each for each in args if isinstance(each, torch.Tensor)]


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
