"""The capture transaction: a capture either becomes a graph or leaves no trace."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from .._interpreter.threads import this_thread
from ..backends.base import Capability, CaptureStatus
from ..errors import AcceleratorGraphError, CaptureError, DriverError, UnsupportedError, capture_error
from ..interop import registry as interop
from . import gc_pause, ownership, streams
from .pools import Lease, PoolId

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..interop.base import Framework, Undo

MODES = ("default", "global", "thread_local", "relaxed")
"""The capture modes; only ``"default"`` is portable."""

_keys = itertools.count()
_NONE = object()

Site = tuple[str, int]
"""A file and a line."""


class Capture:
    """One capture, from before the driver begins it until it has become a graph or is abandoned.

    After `begin` or `end` raised, or if neither ends well, `abandon` undoes every step, at any moment
    and more than once: it does not matter where an exception, a KeyboardInterrupt among them, came.

    Parameters
    ----------
    stream : Stream
        What is captured.
    retained : int
        How many objects the graph retained before; later ones go if the capture fails.
    """

    __slots__ = (
        *("__weakref__", "_identity", "_key", "_owner", "_token", "_undos"),
        *("backend", "begun_at", "lease", "retained", "stream", "thread"),
    )

    def __init__(self, stream: streams.Stream, retained: int) -> None:
        self.stream = stream
        self.backend = stream._backend  # or what stands in for it
        self.retained = retained
        self.thread = threading.current_thread()
        self.begun_at: Site | None = None
        self.lease: Lease | None = None
        self._undos: list[Undo] = []
        self._token: Any = _NONE
        self._key = next(_keys)
        self._identity = ref(this_thread())
        self._owner = stream._owner  # the stream may be closed meanwhile

    def begin(
        self,
        graph: ownership.Retaining,
        mode: str,
        pool: PoolId | None,
        prepare: streams.Stream | None,
        generators: Sequence[object] = (),
        used: Callable[[object], Undo] | None = None,
    ) -> None:
        """Begin the capture; its stream is current on this thread until the end.

        Parameters
        ----------
        graph : Graph
            Who captures.
        mode, pool
            As in `Graph`.
        prepare : Stream, optional
            Let the frameworks get ready first, and wait until the work on that stream is done.
        generators : sequence
            Random generators that take part.
        used : callable, optional
            To be called for the arrays that frameworks see being used.
        """
        backend, native = self.stream._backend, self.stream._native
        mode = backend.default_capture_mode if mode == "default" else mode
        if mode != backend.default_capture_mode and mode not in backend.capture_modes:
            raise UnsupportedError(
                f"backend {backend.name!r} has no capture mode {mode!r}; use 'default'.",
                capability="capture_modes",
            )
        if backend.capture_status(native) is not CaptureStatus.NONE:
            fact = streams.captured_by(self.stream)
            raise capture_error(f"{self.subject} did not begin", reason="foreign_capture", fact=fact)
        self.lease = Lease(pool, backend.name, self.stream.device)
        frameworks = interop.active(backend.name)
        if prepare is not None:
            if not ownership.captures:
                for framework in frameworks:
                    framework.prepare(self.stream.device)
            backend.prepare_capture(prepare._native)
        ownership.thread.unfinished[self._key] = self
        ownership.captures[self._key] = self
        ownership.thread.capturing.append(graph)
        relaxed: Callable[[], AbstractContextManager[object]] = nullcontext
        if Capability.BORROW in backend.capabilities(self.stream.device):
            relaxed = partial(_relaxed, self.stream.held())
            gc_pause.pause(self._key, relaxed)
        streams.enter(streams.Entry(self.stream, self), frameworks)
        self._route(frameworks, self.lease, relaxed)
        recorders = filter(None, (framework.recorder(backend) for framework in frameworks))
        recorder = next(recorders, None)
        if recorder is not None:
            recorder.pool, recorder.device = self.lease.id, self.stream.device
            recorder.generators = generators
            backend = self.backend = cast("Backend", recorder)
        try:
            keep = partial(setattr, self, "_token")
            any(map(keep, map(backend.capture_begin, (native,), (mode,))))  # nothing can fail in between
        except DriverError as error:
            raise capture_error(f"{self.subject} did not begin", error) from error
        if recorder is not None:
            self.lease.shown = recorder.pool
        if used is not None:
            for framework in frameworks:
                self._undos.extend(filter(None, (framework.observe(self.lease.shown, used),)))

    def _route(
        self,
        frameworks: Sequence[Framework],
        lease: Lease,
        relaxed: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """Send what frameworks allocate on this thread to the pool, until `_leave`."""
        backend, native, device = self.stream._backend, self.stream._native, self.stream.device
        if not frameworks or Capability.HANDLES not in backend.capabilities(device):
            return
        handle = backend.handle_int(native)
        for framework in frameworks:
            lease.at_end(framework.release, backend)
            self._undos.extend(filter(None, (framework.route(lease.id, handle, device, relaxed),)))

    @property
    def subject(self) -> str:
        """Which capture: the beginning of a message."""
        return f"the capture of the {streams.describe(self.stream)}"

    def who(self) -> str:
        """Return who is capturing the stream, and the way out: a clause."""
        since = "" if self.begun_at is None else " since {}:{}".format(*self.begun_at)
        if self.is_here():
            return (
                f"a graph of this thread is capturing the stream{since}; end that capture, or abandon it "
                "with accelerator_graph.current_graph().reset()"
            )
        return (
            f"thread {self.thread.name!r} is capturing the stream{since}; wait for the end of that capture, "
            "or use another stream"
        )

    def failure(self, cause: BaseException) -> CaptureError | None:
        """Return the error to raise if the driver has given the capture up, after `cause` or by it."""
        said = cause if isinstance(cause, DriverError) else None
        try:
            if self.stream._backend.capture_status(self.stream._native) is not CaptureStatus.INVALIDATED:
                return None
        except DriverError as error:  # the device is lost
            said = error
        except AcceleratorGraphError:  # nothing can be said; what the body raised is not to be hidden
            return None
        return capture_error(f"{self.subject} failed", said, "invalidated")

    def end(self, graph: ownership.Retaining) -> ownership.Owned:
        """End the capture and return the owner of what was captured.

        Raises
        ------
        CaptureError
            It did not become a graph. `abandon` has to follow, as after any exception.
        """
        backend = self.backend
        try:
            captured = ownership.Owned(
                backend, "destroy_graph", backend.capture_end(self._token), self._owner
            )
        except DriverError as error:
            raise capture_error(f"{self.subject} did not become a graph", error) from error
        self._token = _NONE
        self._leave(graph)
        return captured

    def abandon(self, graph: ownership.Retaining) -> None:
        """End the capture and throw away what was recorded. Again: what is still left to do."""
        try:
            self._abandon()
        finally:
            try:
                self._leave(graph)
            finally:
                if self.lease is not None:
                    self.lease.release()

    def _abandon(self) -> None:
        if self._token is not _NONE:
            self.backend.capture_abandon(self._token)
            self._token = _NONE

    def thread_ended(self) -> None:
        """Abandon what nobody can end any more; its graph stays as it is until it is reset."""
        self._abandon()
        ownership.captures.pop(self._key, None)
        gc_pause.resume(self._key)

    def is_here(self) -> bool:
        """Return True if the calling thread began the capture."""
        return self._identity() is this_thread()

    def thread_lives(self) -> bool:
        """Return True if the thread that began the capture has not ended."""
        return self._identity() is not None

    def _leave(self, graph: ownership.Retaining) -> None:
        ownership.captures.pop(self._key, None)
        ownership.thread.unfinished.pop(self._key, None)
        gc_pause.resume(self._key)
        if graph in ownership.thread.capturing:
            ownership.thread.capturing.remove(graph)
        try:
            streams.undo(self._undos)
        finally:
            try:
                streams.leave(self)
            finally:
                if self.lease is not None:
                    self.lease.captured()


def _relaxed(stream: streams.Stream) -> AbstractContextManager[object]:
    return stream._backend.relaxed(stream._native)
