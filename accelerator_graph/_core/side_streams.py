"""Streams to capture on beside the current one: a thread has one for each device, and keeps it.

Frameworks reuse memory on one stream only, so graphs of one pool share memory only if they were captured on
the same stream.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..backends import registry
from . import capture_table, ownership
from .current_stream import current
from .streams import Stream

if TYPE_CHECKING:
    from ..backends.base import Backend


class _Thread(threading.local):
    def __init__(self) -> None:
        self.streams: dict[tuple[Backend, int], tuple[int | None, Stream]] = {}


_thread = _Thread()


def side_of(stream: Stream) -> Stream:
    """Return a hold on this thread's side stream, or a new stream if that one is capturing."""
    backend, key = stream._backend, (stream._backend, stream._device)
    context = backend.context_id(stream._native)
    known, side = _thread.streams.get(key, (None, None))
    if side is None or side._closed or side._forks != ownership.forks or known != context:
        side = Stream(backend=backend.name, like=stream)
        _thread.streams[key] = (context, side)
    elif capture_table.live and side._is_capturing():  # nobody else knows this stream
        return Stream(backend=backend.name, like=stream)
    return side.held()


def beside_current(backend: str | None, *, wait: bool) -> tuple[Stream, Stream | None]:
    """Return a stream to capture on and the current stream, which it waits for on request.

    Without a current stream: a new stream on the named backend or the automatically chosen one, and None.
    """
    home = current(backend, or_default=True)
    if home is None:
        return Stream(backend=registry.resolve(backend).name), None
    side = side_of(home)
    if wait and not home._is_capturing():
        side._follow(home)
    return side, home
