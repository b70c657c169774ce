"""Copies between a caller's arrays and a graph's, in the order of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._core.streams import Stream

Assign = Callable[[Any, Any], object]
"""Copies from its second argument to its first, on the framework's current stream or at once."""

Copy = Callable[["Stream", Assign, Any, Any], None]
"""``copy(stream, assign, target, source)``: copies unless both are the same object."""


def copy_on_device(stream: Stream, assign: Assign, target: Any, source: Any) -> None:
    """Copy on the framework's current stream, which is this stream."""
    if target is not source:
        assign(target, source)


def copy_on_host(stream: Stream, assign: Assign, target: Any, source: Any) -> None:
    """Enqueue the copy of an array in host memory, whose library does not know of the stream."""
    if target is not source:
        stream._backend.launch(stream._native, assign, _detached(target), _detached(source))


def _detached(x: Any) -> Any:
    """Return the array without gradients: the thread of the stream has grad modes of its own."""
    return x.detach() if getattr(x, "requires_grad", False) else x
