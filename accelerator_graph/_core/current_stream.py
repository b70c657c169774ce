"""Which stream is current on the calling thread."""

from __future__ import annotations

from typing import Literal, overload

from ..backends import registry
from ..errors import BackendError, GraphStateError, capture_error
from ..interop import registry as interop
from .stream_stack import current_streams
from .streams import Borrowed, FrameworkCurrent, Stream, describe, innermost


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


def stream_to_capture(backend: str | None) -> Stream:
    """Return this thread's current stream for a capture that names none.

    Raises
    ------
    CaptureError
        No stream is current.
    BackendUnavailableError
        There is no accelerator either.
    """
    stream = current(backend)
    if stream is None:
        registry.resolve(backend)
        raise capture_error(
            "a capture did not begin, since no stream is current on this thread", reason="default_stream"
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
    backend = backend or registry.chosen()
    if backend is not None:
        runtime = registry.get(backend)
        native = runtime.current_stream()
        if native is not None:
            return Stream._make(runtime, native, runtime.device_of(native), Borrowed(None))
    return _of_frameworks(backend, or_default)


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
                f"{describe(stream)}; name the stream that is meant."
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
