"""Which stream: the current one, the one to capture, the ones beside it, and where replays go.

A thread has one side stream for each device, and keeps it. Frameworks reuse memory on one stream only, so
graphs of one pool share memory only if they were captured on the same stream.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import TYPE_CHECKING, Literal, overload

from ..backends import registry
from ..errors import BackendError, GraphStateError, capture_error
from ..interop import registry as interop
from . import capture_table, ownership, stream_stack
from .capture import Where
from .stream_stack import current_streams
from .streams import FrameworkCurrent, Stream, describe, innermost

if TYPE_CHECKING:
    from ..backends.base import AnyBackend as Backend


@overload
def current_stream(*, required: Literal[True] = True) -> Stream: ...
@overload
def current_stream(*, required: bool) -> Stream | None: ...
def current_stream(*, required: bool = True) -> Stream | None:
    """Return this thread's current stream: that of the innermost ``with``, or of the capture in progress.

    Without either, it is the current stream of a framework, unless that is the framework's default stream.

    Parameters
    ----------
    required : bool
        Raise an error if no stream is current. With False, return None then.

    Raises
    ------
    GraphStateError
        No stream is current on this thread.
    ValueError
        Two frameworks have different current streams.
    """
    stream = current()
    if stream is None and required:
        raise GraphStateError(
            "current_stream(): no stream is current on this thread, and a default stream does not count; "
            "enter one, for example `with accelerator_graph.Stream():`, or pass required=False to get None."
        )
    return stream


def is_current_stream_capturing() -> bool:
    """Return True if this thread's current stream is capturing, no matter which library began the capture."""
    stream = current()
    return stream is not None and stream._is_capturing()


def current(backend: str | None = None, *, or_default: bool = False) -> Stream | None:
    """Return this thread's current stream on a backend, or on whichever there is one.

    If there is none: the default stream on request, if a framework takes part which is on that.

    Raises
    ------
    ValueError
        The current stream belongs to another backend than the named one.
    """
    stream = innermost()
    if stream is not None:
        if backend is not None and stream.backend != backend:
            raise ValueError(
                f"the current stream, the {describe(stream)}, is not of backend {backend!r}; name a stream "
                "of that backend, or enter one first."
            )
        return stream
    return _of_frameworks(backend or registry.chosen(), or_default)


def _of_frameworks(backend: str | None, or_default: bool) -> Stream | None:
    """Return the stream that the frameworks which are there agree on, the default stream aside.

    Raises
    ------
    ValueError
        Two of them have different ones.
    BackendError
        The only ones that have a current stream have it on a backend that can't be used.
    """
    found: Stream | None = None
    fallback: Stream | None = None
    failure: BackendError | None = None
    who = ""
    for current in current_streams(backend):
        try:
            runtime = current.runtime()
        except BackendError as error:
            failure = failure or error
            continue
        native = runtime.as_stream(current.handle)
        if native is None:
            fact = f"{current.handle:#x}, not a stream of backend {current.backend!r}"
            interop.complain(current.framework, "current_stream", f"answered {fact}")
            continue
        stream = Stream._make(runtime, native, current.device, FrameworkCurrent(current.framework))
        if current.handle == 0:
            fallback = fallback or stream
            continue
        if found is not None and (found.backend, found.handle) != (stream.backend, stream.handle):
            raise ValueError(
                f"{who} and {current.who} have different current streams, the {describe(found)} and the "
                f"{describe(stream)}; name the stream that you mean."
            )
        found, who = stream, current.who
    if failure is not None and found is None and fallback is None:
        raise failure
    return found or (fallback if or_default else None)


def is_graph_available(backend: str | None = None) -> bool:
    """Return True if there is an accelerator that can capture graphs. Initialises nothing.

    If you name a backend, only that one is asked; ``"cpu"``, and a plug-in that has to be named, count only
    then. Raises `UnknownBackendError` if no backend has that name.
    """
    return registry.usable(backend)


# ---- where a capture happens ---------------------------------------------------------------------


class _Known:
    """The current stream of a framework as it was found last, and everything that it was found by.

    Nobody replaces a built-in backend, and a handle stands for the same stream, whatever object has it.
    """

    __slots__ = ("answers", "chosen", "forks", "frameworks", "is_default", "stream", "taking_part")

    def __init__(self, stream: Stream, chosen: str | None) -> None:
        self.stream = stream.held()
        self.is_default = not stream.handle
        self.chosen = chosen
        found = interop.current_streams()
        self.frameworks = [(framework, name) for framework, name, _ in found]
        self.answers = [answer for _, _, answer in found]
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
        self.known: _Known | None = None


_thread = _Thread()
_free: dict[tuple[Hashable, ...], list[Stream]] = {}
"""Streams for branches that nobody uses, by where they are. They live as long as the process: when pinned
memory is freed, torch records an event on every stream that has copied from it, in captures too."""


def where(stream: Stream | None, backend: str | None, *, side: bool = False, prepare: bool = False) -> Where:
    """Decide where a capture happens.

    Parameters
    ----------
    stream : Stream, optional
        The stream to capture, if one was named; by default the current one.
    backend : str, optional
        The backend of the current stream.
    side : bool
        Capture a side stream in the place of the current one, or a new stream if none is current.
    prepare : bool
        Have the frameworks release what they cache, and wait for the current stream before the capture. A
        side stream waits for it otherwise.

    Raises
    ------
    CaptureError
        No stream is current.
    BackendUnavailableError
        There is no accelerator either.
    GraphStateError
        The stream was closed.
    """
    place = Where()
    place.prepares, place.waits_for = prepare, None
    if stream is not None:
        place.stream = place.home = stream
        place.hold = stream.held()
        there = () if stream._backend.recording == "explicit" else interop.initialised()
        place.frameworks = interop.those_taking_part(there, stream._backend.name) if there else ()
        if prepare:
            place.waits_for = stream
    else:
        _find(place, backend, side)
    return place


def _find(place: Where, backend: str | None, side: bool) -> None:
    """Decide where a capture happens that names no stream."""
    chosen = backend or registry.chosen()
    known = _thread.known
    if known is None or not known.is_current(chosen) or (known.is_default and not side):
        found, known = current(backend, or_default=side), None
        if found is None:
            runtime = registry.resolve(backend)
            if not side:
                fact = "a capture did not begin, since no stream is current on this thread"
                raise capture_error(fact, reason="default_stream")
            found, side = Stream(backend=runtime.name), False
        elif isinstance(found._owner, FrameworkCurrent) and found.backend in registry.BUILTINS:
            known = _thread.known = _Known(found, chosen)
        place.home, place.hold = found, found.held()
        place.frameworks = stream_stack.taking_part(found._backend)
    if known is not None:
        place.home, place.hold, place.frameworks = known.stream.held(), known.stream, known.taking_part
    home = place.home
    place.stream = stream = side_of(home) if side else home
    free = stream is home or (known is not None and known.is_default) or not home._is_capturing()
    if place.prepares:
        place.waits_for = home if free else stream
    elif side and free:
        stream._follow(home)


# ---- streams beside the current one --------------------------------------------------------------


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
    """Return streams for branches of a capture of this one; `give_back` them once that has ended."""
    free = _branches(stream)
    taken: list[Stream] = []
    while len(taken) < count:
        try:
            taken.append(free.pop())
        except IndexError:
            taken.append(Stream(backend=stream.backend, like=stream))
    return taken


def give_back(streams: list[Stream]) -> None:
    """Let other captures have these branches."""
    while streams:
        each = streams.pop()
        _branches(each).append(each)


def _branches(stream: Stream) -> list[Stream]:
    backend = stream._backend
    key = backend, stream._device, backend.context_id(stream._native), ownership.forks
    return _free.setdefault(key, [])
