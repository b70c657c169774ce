"""The capture transaction: a capture either becomes a graph or leaves no trace."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_args
from weakref import ref

from .._interpreter import process
from .._interpreter.outside import text_of
from ..backends.base import CaptureMode as CaptureMode
from ..backends.base import CaptureStatus
from ..errors import (
    AcceleratorGraphError,
    CaptureError,
    DriverError,
    GraphStateError,
    UnsupportedError,
    capture_error,
)
from ..interop.base import Framework, FrameworkRecorder, PoolId, Undo
from . import capture_table, stream_stack
from .ownership import Callback, Owned
from .pools import AnyPool
from .streams import Stream, captured_by, describe

if TYPE_CHECKING:
    from ..backends.base import AnyBackend as Backend
    from ..backends.base import Recorder
    from ..errors import Reason
    from ..interop.base import Collective
    from .call_site import Site
    from .labels import LabelledRange, Mark
    from .observation import Observation
    from .pools import Lease
    from .progress import Progress

    Observer = Callable[["Capture"], Observation]
    """Makes the observation of a capture."""

_keys = itertools.count()

NO_TOKEN = object()
"""Stands for the token of a recorder that records nothing."""

MODES: tuple[CaptureMode, ...] = get_args(CaptureMode)
"""The capture modes; only ``"default"`` is portable."""


def check_mode(mode: object) -> CaptureMode:
    """Return a capture mode. Raises TypeError or ValueError if it is none."""
    if not isinstance(mode, str):
        raise TypeError(f"capture_error_mode must be a string, one of {', '.join(MODES)}, not {mode!r}.")
    if mode not in MODES:
        raise ValueError(f"capture_error_mode must be one of {', '.join(MODES)}, not {mode!r}.")
    return mode


def native_mode(backend: Backend, mode: CaptureMode) -> CaptureMode:
    """Return the backend's name for a mode."""
    modes = backend.capture_modes
    if mode == "default":
        return modes[0]
    if mode not in modes:
        raise UnsupportedError(
            f"backend {backend.name!r} has no capture mode {mode!r}; use 'default'.",
            capability="capture_modes",
        )
    return mode


class CapturePlan:
    """How a capture is to be made. None leaves the choice to the graph."""

    stream: Stream | None = None
    """The stream to capture."""
    home: Stream | None = None
    """Where replays will go, if that is another stream."""
    default: Stream | None = None
    """A hold on `home` that nobody closes, if that is known to be a framework's default stream, which never
    captures."""
    frameworks: Sequence[Framework] | None = None
    """Those that take part. None if they were not looked for."""
    pool: AnyPool | None = None
    mode: CaptureMode | None = None
    """As in `Graph.capture_begin`."""
    prepare: bool = False
    """Wait for `home` first, unless that is being captured."""
    idle: bool = False
    """The device has been waited for already."""
    finds_inputs: bool | None = None
    """Watch the arrays that captured work uses."""


class Capture:
    """One capture, from before the driver begins it until it has become a graph or is abandoned.

    If `begin` or `end` raises, or if neither ends well, `abandon` undoes every step. It can be called at any
    moment and more than once: it does not matter where an exception, a KeyboardInterrupt among them, came.

    Parameters
    ----------
    graph : Graph
        The graph that captures.
    stream : Stream
        The stream to capture.
    home : Stream
        Where replays will go: a hold that nobody else can close.
    lease : Lease
        The graph's part in a pool.
    retained : int
        How many objects the graph retained before; later ones go if the capture fails.
    """

    __slots__ = (
        "__weakref__",
        "_graph",
        "_identity",
        "_key",
        "_owner",
        "_token",
        "_undos",
        "backend",
        "begun_at",
        "collectives",
        "frameworks",
        "home",
        "labels",
        "lease",
        "mode",
        "native",
        "observation",
        "progress",
        "recorder",
        "retained",
        "stream",
        "thread",
    )

    def __init__(
        self,
        graph: capture_table.Retaining,
        stream: Stream,
        home: Stream,
        lease: Lease,
        retained: int,
    ) -> None:
        self._graph = ref(graph)  # which holds this capture; the thread holds the graph
        self.stream = stream
        self.home = home
        self.lease = lease
        self.retained = retained
        self.backend = stream._backend
        self.native = stream._native
        self.recorder: Recorder = stream._backend
        self.frameworks: Sequence[Framework] | None = None
        here = process.thread.identity
        self.thread = here.thread
        self.begun_at: Site | None = None
        self.mode: CaptureMode = "default"
        self.labels: list[Mark] = []
        self.observation: Observation | None = None
        self.collectives: list[Collective] = []
        self.progress: Progress | None = None
        self._undos: list[Undo] = []
        self._token: Any = NO_TOKEN
        self._key = next(_keys)
        self._identity = ref(here)
        self._owner = stream._owner  # the stream may be closed meanwhile

    @property
    def subject(self) -> str:
        """Which capture: the beginning of a message."""
        return f"the capture of the {describe(self.stream)}"

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

    def relaxed(self) -> AbstractContextManager[object]:
        """Return a context in which this thread does not disturb the capture."""
        return self.backend.relaxed(self.native)

    def recorded(self) -> int | None:
        """Return how many nodes there are so far; None if that is not known, or nothing is recorded now."""
        if self._token is NO_TOKEN:
            return None
        try:
            info = self.backend.capture_info(self.native)
            return None if info is None else info.nodes
        except AcceleratorGraphError:  # a capture that is broken says so at its end
            return None

    def check_thread(self, what: str) -> None:
        """Raise `GraphStateError` if this thread may not end the capture."""
        if not self.is_here() and (what != "reset()" or self.thread_lives()):
            raise GraphStateError(
                f"Graph.{what}: thread {self.thread.name!r} began this capture and has to end it, not "
                f"thread {threading.current_thread().name!r}."
            )

    def is_here(self) -> bool:
        """Return True if the calling thread began the capture."""
        return self._identity() is process.thread.identity

    def thread_lives(self) -> bool:
        """Return True if the thread that began the capture has not ended."""
        return self._identity() is not None

    def begin(
        self,
        mode: CaptureMode,
        prepare: Stream | None,
        idle: bool = False,
        generators: Sequence[object] = (),
        used: Callable[[object], Undo] | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Begin the capture; its stream is current on this thread until the end.

        Parameters
        ----------
        mode : str
            One of `MODES`.
        prepare : Stream, optional
            Let the frameworks release what they cache first, unless a capture is under way, and wait until
            the work on that stream is done.
        idle : bool
            It is done.
        generators : sequence
            Random generators that take part.
        used : callable, optional
            Called for the arrays that frameworks see being used.
        observer : callable, optional
            Makes the observation that watches the capture once it has begun.
        """
        backend, native = self.backend, self.native
        self.mode = mode = backend.capture_modes[0] if mode == "default" else native_mode(backend, mode)
        if backend.capture_status(native) is not CaptureStatus.NONE:
            fact = captured_by(self.stream)
            raise capture_error(f"{self.subject} did not begin", reason="foreign_capture", fact=fact)
        frameworks = stream_stack.taking_part(backend) if self.frameworks is None else self.frameworks
        if prepare is not None and not capture_table.live:
            for framework in frameworks:
                framework.prepare(self.stream._device)
        if prepare is not None and not idle:
            with backend.relaxed(prepare._native):
                backend.synchronize(prepare._native)
        pool = self.lease.id
        self._enter(frameworks, pool)
        recorder: FrameworkRecorder | None = None
        for framework in frameworks:
            recorder = framework.recorder(backend, pool, self.stream._device, generators)
            if recorder is not None:
                self.recorder = recorder
                break
        try:
            keep = partial(setattr, self, "_token")
            any(map(keep, map(self.recorder.capture_begin, (native,), (mode,))))  # no interrupt in between
        except DriverError as error:
            raise capture_error(f"{self.subject} did not begin", error) from error
        if recorder is not None:
            self.lease.recorded = recorder.pool
        if used is not None:
            for framework in frameworks:
                self._undos.extend(filter(None, (framework.observe(self.lease.shown, used),)))
        if self.progress is not None:
            self.progress.begin(backend, native, self.recorded())
        if observer is not None:
            self.observation = observer(self)
            self.observation.begin()

    def _enter(self, frameworks: Sequence[Framework], pool: PoolId) -> None:
        """Take this thread and the frameworks into the capture, until `_leave`."""
        thread = capture_table.thread
        if thread.end is None:
            thread.end = Callback(_abandon_all, thread.unfinished)
        thread.unfinished[self._key] = self
        capture_table.live[self._key] = self
        graph = self._graph()
        assert graph is not None
        thread.graphs[self._key] = graph
        pause_gc()
        entry = stream_stack.Entry(self.stream, self)
        handle = stream_stack.enter(entry, frameworks)
        for framework in frameworks:
            self._undos.extend(filter(None, (framework.observe_collectives(self.collectives.append),)))
        if frameworks and handle is not None:
            device = self.stream._device
            relaxed = partial(_relaxed, self.backend, self.native, self._owner)
            self.lease.frameworks.update(frameworks)
            for framework in frameworks:
                entry.undos.extend(filter(None, (framework.route(pool, handle, device, relaxed),)))

    def failure(self, cause: BaseException) -> CaptureError | None:
        """Return the error to raise for what the body raised; None if that passes unchanged.

        It passes if the driver has not invalidated the capture, unless a framework has refused a call.
        """
        said = cause if isinstance(cause, DriverError) else None
        self._stop_observing()
        try:
            status = self.backend.capture_status(self.native)
            if status is CaptureStatus.ACTIVE and self._is_refusal(cause):
                fact = f"a call was refused ({text_of(cause)}); move it out of the captured code"
                return self._error("failed", reason="illegal_call", fact=fact, cause=cause)
            if status is not CaptureStatus.INVALIDATED:
                return None
        except DriverError as error:  # the device is lost
            said = error
        except AcceleratorGraphError:  # nothing is known; the body's exception must not be hidden
            return None
        return self._error("failed", said, "invalidated", cause=cause)

    def _is_refusal(self, cause: BaseException) -> bool:
        if not isinstance(cause, Exception):
            return False
        return any(framework.refuses(cause) for framework in stream_stack.taking_part(self.backend))

    def _error(
        self,
        what: str,
        error: DriverError | None = None,
        reason: Reason = "other",
        fact: str = "",
        cause: BaseException | None = None,
    ) -> CaptureError:
        """Return the error for this capture, with what the observation has found."""
        observation = self.observation
        diagnosed = observation is not None
        failure = capture_error(f"{self.subject} {what}", error, reason, fact, diagnosed=diagnosed)
        return failure if observation is None else observation.explained(failure, cause)

    def _stop_observing(self) -> None:
        if self.observation is not None:
            self.observation.stop()

    def end(self) -> Captured:
        """End the capture and return the graph.

        Raises
        ------
        CaptureError
            It did not become a graph. `abandon` has to follow, as after any exception.
        """
        recorder = self.recorder
        if self.observation is not None:
            self.observation.stop()
        if self.progress is not None:
            self.progress.end(self.backend, self.native)
        count = self.recorded()
        if recorder is not self.backend:
            cast("FrameworkRecorder", recorder).counted = count
        try:
            captured = Captured(recorder, self.backend, recorder.capture_end(self._token), self._owner)
        except DriverError as error:
            raise self._error("did not become a graph", error) from error
        self._token = NO_TOKEN
        self._leave()
        captured.count = count
        captured.labels = self._labelled(count) if self.labels else ()
        captured.mode = self.mode
        return captured

    def _labelled(self, count: int | None) -> tuple[LabelledRange, ...]:
        from .labels import kept, ranges

        return ranges(kept(self.labels, count, self.backend), count or 0)

    def abandon(self) -> None:
        """End the capture and discard the recording. Calling it twice is fine."""
        if self.observation is not None:
            self.observation.stop()
        try:
            self._abandon()
        finally:
            try:
                unfinished = capture_table.thread.unfinished
                entered = any(entry.entrant is self for entry in stream_stack.thread.entries)
                if self._undos or self._key in capture_table.live or self._key in unfinished or entered:
                    self._leave()  # else there may be no stack left for it
            finally:
                self.lease.release()

    def _abandon(self) -> None:
        if self._token is not NO_TOKEN:
            self.recorder.capture_abandon(self._token)
            self._token = NO_TOKEN

    def thread_ended(self) -> None:
        """Abandon the capture, which nobody can end any more. Its graph stays as it is until it is reset."""
        self._stop_observing()
        self._abandon()
        capture_table.live.pop(self._key, None)
        resume_gc()

    def _leave(self) -> None:
        thread = capture_table.thread
        capture_table.live.pop(self._key, None)
        thread.unfinished.pop(self._key, None)
        thread.graphs.pop(self._key, None)
        resume_gc()
        try:
            if self._undos:
                stream_stack.undo(self._undos)
        finally:
            try:
                stream_stack.leave(self)
            finally:
                self.lease.capturing = False


class Captured(Owned):
    """A graph that was captured."""

    __slots__ = ("count", "labels", "mode")

    is_lent: ClassVar[bool] = False
    """The graph is another one's, which lives as long as this."""
    count: int | None
    """How many nodes were recorded, the library's own among them; None if the backend does not count them."""
    labels: tuple[LabelledRange, ...]
    mode: CaptureMode

    def act(self) -> None:
        """Destroy the graph."""
        self.recorder.destroy_graph(self.value)


def _relaxed(backend: Backend, native: Any, owner: object) -> AbstractContextManager[object]:
    """Return a context in which this thread disturbs no capture, for a stream that its owner keeps alive."""
    return backend.relaxed(native)


def _abandon_all(unfinished: dict[int, Capture]) -> None:
    """Abandon the captures that a thread left behind when it ended."""
    while unfinished:
        key = next(iter(unfinished))
        unfinished[key].thread_ended()
        unfinished.pop(key, None)


# ---- the garbage collector -----------------------------------------------------------------------
# It is off while a capture is in progress, and collections by hand are made harmless: the collector can find
# dead graphs, streams and arrays at any line of the captured code, and to destroy them during a capture
# invalidates it, or is recorded in it.

_gc_is_off = False
"""True if this module has switched the collector off."""
_collecting = False
_gc_lock = threading.RLock()
_collection = threading.local()


def pause_gc() -> None:
    """Switch the collector off, in all threads, until no capture is in progress. Pausing twice does nothing.

    Collections by hand disturb none of the captures in `capture_table.live`.
    """
    global _gc_is_off
    with _gc_lock:
        if id(around_gc) not in map(id, gc.callbacks):  # the other callbacks could compare equal to anything
            gc.callbacks.append(around_gc)
        if gc.isenabled():
            _gc_is_off = True
            gc.disable()


def resume_gc() -> None:
    """End the pause if no capture is in progress any more; the collector is on again if it was before."""
    global _gc_is_off
    with _gc_lock:
        if capture_table.live:
            return
        if not _collecting and id(around_gc) in map(id, gc.callbacks):  # else it has to see the end
            del gc.callbacks[[*map(id, gc.callbacks)].index(id(around_gc))]
        if _gc_is_off:  # even if an interrupt came before this, the last time
            gc.enable()
            _gc_is_off = False


def around_gc(phase: str, info: object) -> None:
    """Relax the collecting thread from the collection's start to its end."""
    global _collecting
    _collecting = phase == "start"
    if _collecting:
        entered = _collection.entered = ExitStack()
        for capture in list(capture_table.live.values()):
            with suppress(Exception):
                entered.enter_context(capture.relaxed())
    else:
        entered = _collection.__dict__.pop("entered", None)
        if entered is not None:
            entered.close()


def _after_fork() -> None:
    global _lock
    _gc_lock = threading.RLock()
    resume_gc()


process.after_fork(_after_fork)
