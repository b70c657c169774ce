"""The capture transaction: a capture either becomes a graph or leaves no trace."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _lifetime, streams
from .backends.base import CaptureStatus
from .errors import CaptureError, DriverError, UnsupportedError, capture_error
from .pools import Lease, PoolId

if TYPE_CHECKING:
    from .api import Graph

MODES = ("default", "global", "thread_local", "relaxed")
"""The capture modes; only ``"default"`` is portable."""

_NONE = object()


class Capture:
    """One capture, from before the driver begins it until it has become a graph or is abandoned.

    Every step can be undone by `abandon`, at any moment and more than once, so that it does not
    matter where an exception, a KeyboardInterrupt among them, comes.

    Parameters
    ----------
    graph : Graph
        Who captures.
    stream : Stream
        What is captured; current on this thread until the end.
    mode, pool
        As in `Graph`.
    prepare : bool
        Synchronise the stream first, unless a capture of ours is under way on the backend.
    retained : int
        How many objects the graph retained before; later ones go if the capture fails.
    """

    _token: Any = _NONE

    def __init__(
        self,
        graph: Graph,
        stream: streams.Stream,
        mode: str,
        pool: PoolId | None,
        prepare: bool,
        retained: int,
    ) -> None:
        backend, native = stream._backend, stream._native
        self.stream = stream
        self.thread = threading.current_thread()
        self.retained = retained
        self._generation = _lifetime.generation()
        self._key = id(self)
        mode = backend.default_capture_mode if mode == "default" else mode
        if mode != backend.default_capture_mode and mode not in backend.capture_modes:
            raise UnsupportedError(
                f"backend {backend.name!r} has no capture mode {mode!r}; use 'default'.",
                capability="capture_modes",
            )
        if backend.capture_status(native) is not CaptureStatus.NONE:
            raise capture_error(f"{self.subject} did not begin", reason="foreign_capture")
        if prepare and backend not in _lifetime.captures.values():
            backend.synchronize(native)
        self.lease = Lease(pool, backend.name, stream.device)
        try:
            _lifetime.captures[self._key] = backend
            _lifetime.thread.capturing.append(graph)
            streams.enter(stream, self)
            self._token = backend.capture_begin(native, mode)
        except DriverError as error:
            self.abandon(graph)
            raise capture_error(f"{self.subject} did not begin", error) from error
        except BaseException:
            self.abandon(graph)
            raise

    @property
    def subject(self) -> str:
        """Which capture: the beginning of a message."""
        return f"the capture of the {streams.describe(self.stream)}"

    def failure(self, cause: BaseException) -> CaptureError | None:
        """Return the error to raise if the driver has given the capture up, after `cause` or by it."""
        said = cause if isinstance(cause, DriverError) else None
        try:
            if self.stream._backend.capture_status(self.stream._native) is not CaptureStatus.INVALIDATED:
                return None
        except DriverError as error:  # the device is lost
            said = error
        return capture_error(f"{self.subject} failed", said, "invalidated")

    def end(self, graph: Graph) -> _lifetime.Owned:
        """End the capture and return the owner of what was captured.

        Raises
        ------
        CaptureError
            It did not become a graph; everything is as it was before the capture.
        """
        backend = self.stream._backend
        try:
            captured = _lifetime.Owned(
                backend, backend.destroy_graph, backend.capture_end(self._token), self.stream._owner
            )
            self._token = _NONE
            self._leave(graph)
        except DriverError as error:
            self._token = _NONE  # a capture_end that raises leaves nothing to abandon
            self.abandon(graph)
            raise capture_error(f"{self.subject} did not become a graph", error) from error
        except BaseException:
            self.abandon(graph)
            raise
        return captured

    def abandon(self, graph: Graph) -> None:
        """End the capture and throw away what was recorded. Again: what is still left to do."""
        if self._token is not _NONE:
            self.stream._backend.capture_abandon(self._token)
            self._token = _NONE
        self._leave(graph)
        self.lease.release()

    def _leave(self, graph: Graph) -> None:
        _lifetime.captures.pop(self._key, None)
        if graph in _lifetime.thread.capturing:
            _lifetime.thread.capturing.remove(graph)
        streams.leave(self)
        self.lease.captured()

    def __del__(self, defer: Callable[..., None] = _lifetime.defer) -> None:
        if self._token is not _NONE:  # the thread has ended, and with it the last reference to its graph
            abandon = self.stream._backend.capture_abandon
            defer(None, _abandon_late, (abandon, self._token, self._key), self._generation)


def _abandon_late(part: tuple[Any, Any, int]) -> None:
    abandon, token, key = part
    abandon(token)
    _lifetime.captures.pop(key, None)
