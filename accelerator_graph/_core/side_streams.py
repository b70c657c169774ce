"""Streams to capture on beside the current one: a thread has one for each device, and keeps it.

Frameworks reuse memory on one stream only, so graphs of one pool share memory only if they were captured on
the same stream.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import TYPE_CHECKING

from ..backends import registry
from ..interop import registry as interop
from . import capture_table, ownership, stream_stack
from .current_stream import current
from .stream_base import FrameworkCurrent
from .streams import Stream

if TYPE_CHECKING:
    from ..backends.base import Backend


class Default:
    """A framework's default stream, which was the current one, and everything that it was found by.

    Nobody destroys such a stream, and nobody replaces a built-in backend.

    Attributes
    ----------
    stream : Stream
        A hold that nobody closes.
    taking_part : sequence
        The frameworks that take part in captures of the stream's backend.
    """

    __slots__ = ("answers", "chosen", "forks", "frameworks", "stream", "taking_part")

    def __init__(self, stream: Stream, chosen: str | None) -> None:
        self.stream = stream
        self.chosen = chosen
        self.frameworks = interop.initialised()
        self.answers = [interop.current_stream(framework) for framework, _ in self.frameworks]
        self.forks = ownership.forks
        self.taking_part = stream_stack.taking_part(stream._backend)

    def is_current(self, chosen: str | None) -> bool:
        """Return True if looking for the current stream would find the same one."""
        if stream_stack.thread.entries or chosen != self.chosen or ownership.forks != self.forks:
            return False
        frameworks = interop.initialised()
        if frameworks != self.frameworks:
            return False
        try:
            return [framework.current_stream() for framework, _ in frameworks] == self.answers
        except Exception:  # the next search for the stream leaves the framework out
            return False


class _Thread(threading.local):
    def __init__(self) -> None:
        self.streams: dict[tuple[Backend, int], tuple[int | None, Stream]] = {}
        self.default: Default | None = None
        self.branches: dict[tuple[Hashable, ...], list[Stream]] = {}


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


def take_branches(stream: Stream, count: int) -> list[Stream]:
    """Return streams for branches of a capture of this one; `give_back` them once that has ended well."""
    free = _branches(stream)
    taken: list[Stream] = []
    while len(taken) < count:
        try:
            taken.append(free.pop())
        except IndexError:
            taken.append(Stream(backend=stream.backend, like=stream))
    return taken


def give_back(streams: list[Stream]) -> None:
    """Let this thread's next captures have these branches."""
    while streams:
        each = streams.pop()
        _branches(each).append(each)


def _branches(stream: Stream) -> list[Stream]:
    backend = stream._backend
    key = backend, stream._device, backend.context_id(stream._native), ownership.forks
    return _thread.branches.setdefault(key, [])


def beside_current(backend: str | None, *, wait: bool) -> tuple[Stream, Stream | None, Default | None]:
    """Return a stream to capture on and the current stream, which it waits for on request.

    Without a current stream: a new stream on the named backend or the automatically chosen one, and None.
    The third is not None if the current stream is known to be a framework's default stream.
    """
    chosen = backend or registry.chosen()
    known = _thread.default
    if known is not None and known.is_current(chosen):
        home = known.stream.held()
    else:
        found = current(backend, or_default=True)
        if found is None:
            return Stream(backend=registry.resolve(backend).name), None, None
        home, known = found, None
        if (
            isinstance(home._owner, FrameworkCurrent)
            and home.backend in registry.BUILTINS
            and not home.handle
        ):
            _thread.default = Default(home.held(), chosen)
    side = side_of(home)
    if wait and not home._is_capturing():
        side._follow(home)
    return side, home, known
