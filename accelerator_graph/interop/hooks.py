"""Which frameworks have something to do in a capture, beside having streams."""

from __future__ import annotations

from functools import cache
from types import FunctionType

from .base import Framework

_STREAMS = ("backend", "as_stream", "current_stream", "current_handle")
_HOOKS = [
    name
    for name, member in vars(Framework).items()
    if isinstance(member, FunctionType) and name not in _STREAMS
]


@cache
def has_hooks(kind: type[Framework]) -> bool:
    """Return True if a framework's class has methods of its own that are not only about streams.

    cuda.core and Numba have none: a capture beside them costs what it costs alone.
    """
    return any(getattr(kind, hook) is not getattr(Framework, hook) for hook in _HOOKS)
