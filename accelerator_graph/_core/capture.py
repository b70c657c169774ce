"""The capture transaction: a capture either becomes a graph or leaves no trace."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, get_args
from weakref import ref

from .._interpreter import interruptions, text_of
from ..backends.base import AnyBackend as Backend
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
from ..interop import base as interop
from ..interop.base import Framework, FrameworkRecorder, PoolId, Undo
from . import capture_table, stream_stack
from .ownership import Callback, Owned
from .pools import Lease
from .streams import Stream, captured_by, describe

if TYPE_CHECKING:
    from .._interpreter import Site
    from ..backends.base import Recorder
    from ..errors import Reason
    from .replay import Runner
    from .streams import Event

Part = TypeVar("Part")

NO_TOKEN = object()
"""Stands for the token of a recorder that records nothing."""

MODES: tuple[CaptureMode, ...] = get_args(CaptureMode)
"""The capture modes; only ``"default"`` is portable."""


def check_mode(mode: object) -> CaptureMode:
    """Return a capture mode. Raises TypeError or ValueError if it is none."""
    if not isinstance(mode, str):
        raise TypeError(f"capture_error_mode must be a string, one of {', '.join(MODES)}, not {mode!r}.")
    if mode not in MODES:
        raise ValueError(f"capture_error_mode must be one of {', '.join(map(repr, MODES))}, not {mode!r}.")
    return mode


def native_mode(backend: Backend, mode: CaptureMode) -> CaptureMode:
    """Return a mode that was named. Raises `UnsupportedError` if the backend does not have it."""
    if mode not in backend.capture_modes:
        raise UnsupportedError(
            f"backend {backend.name!r} has no capture mode {mode!r}; use 'default'.",
            capability="capture_modes",
        )
    return mode


class Where:
    """Where a capture happens and where its replays go; `current_stream.where` decides it."""

    __slots__ = ("frameworks", "hold", "home", "prepares", "stream", "waits_for")

    stream: Stream
    """The stream to capture."""
    home: Stream
    """The stream that replays go to, as the user knows it."""
    hold: Stream
    """A hold on `home` that nobody else can close."""
    frameworks: Sequence[Framework]
    """The frameworks that take part."""
    prepares: bool
    """Whether these release what they cache before the capture."""
    waits_for: Stream | None
    """The stream whose work has to be done before the capture."""


class Capture:
    """One capture, from before the driver begins it until it has become a graph or is abandoned.

    If `begin` or `end` raises, or if neither ends well, `abandon` undoes every step. It can be called at any
    moment and more than once: it does not matter where an exception, a KeyboardInterrupt among them, came.

    Parameters
    ----------
    place : Where
        Where it happens.
    pool : PoolId or None
        The pool to capture into, as `check_pool` returns it; None makes a new one.
    mode : str
        One of `MODES`.
    """

    __slots__ = (
        "_identity",
        "_owner",
        "_token",
        "_undos",
        "begun_at",
        "guard",
        "lease",
        "mode",
        "observations",
        "place",
        "recorder",
        "retained",
        "stream",
        "thread",
    )

    finished: Callable[..., Runner] | None = None
    """``finished(runner, empty=...)`` returns what replays the graph, if that is more than this runner."""

    def __init__(self, place: Where, pool: PoolId | None, mode: CaptureMode) -> None:
        self.place = place
        self.stream = stream = place.stream
        self.recorder: Recorder = stream._backend
        modes = stream._backend.capture_modes
        self.mode = modes[0] if mode == "default" else native_mode(stream._backend, mode)
        """The backend's name for the mode."""
        self.lease = Lease(pool, stream._backend, stream._device)
        """The graph's part in the pool."""
        here = interruptions.thread.identity
        self.thread = here.thread
        self.begun_at: Site | None = None
        self.guard: object = None
        """Abandons the capture if the end of its ``with`` block is skipped."""
        self.observations: list[Any] = []
        """What observers have returned for this capture, and what was added to it since."""
        self.retained: list[object] = []
        """Objects that live as long as the graph does this work."""
        self._undos: list[Undo] = []
        self._token: Any = NO_TOKEN
        self._identity = ref(here)
        self._owner = stream._owner  # the stream may be closed meanwhile

    @property
    def backend(self) -> Backend:
        """The backend of the captured stream, even where a framework records."""
        return self.stream._backend

    @property
    def native(self) -> Any:
        """The captured stream, as the backend knows it."""
        return self.stream._native

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
            info = self.stream._backend.capture_info(self.stream._native)
            return None if info is None else info.nodes
        except AcceleratorGraphError:  # `end` counts again, and raises it
            return None

    def note_event(self, event: Event) -> None:
        """Note an event that was recorded in this capture."""
        part_of(self.observations, Events).found.append(ref(event))

    def check_thread(self, what: str) -> None:
        """Raise `GraphStateError` if this thread may not end the capture, or not now."""
        if not self.is_here() and (what != "reset()" or self.thread_lives()):
            raise GraphStateError(
                f"Graph.{what}: thread {self.thread.name!r} began this capture and has to end it, not "
                f"thread {threading.current_thread().name!r}."
            )
        if what != "__exit__()" and self._token is NO_TOKEN and capture_table.thread.between is not None:
            raise GraphStateError(
                f"Graph.{what}: the capture is between two segments, in an eager call; do this after it."
            )

    def is_here(self) -> bool:
        """Return True if the calling thread began the capture."""
        return self._identity() is interruptions.thread.identity

    def thread_lives(self) -> bool:
        """Return True if the thread that began the capture has not ended."""
        return self._identity() is not None

    def begin(self, graph: Any, generators: Sequence[object] = ()) -> None:
        """Begin the capture; its stream is current on this thread until the end.

        Parameters
        ----------
        graph : Graph
            The graph that captures, which the thread holds until the end.
        generators : sequence
            Random generators that take part.
        """
        place, stream = self.place, self.stream
        frameworks, backend, native = place.frameworks, stream._backend, stream._native
        if backend.capture_status(native) is not CaptureStatus.NONE:
            fact = captured_by(stream)
            raise capture_error(f"{self.subject} did not begin", reason="foreign_capture", fact=fact)
        if place.prepares and not capture_table.live:
            for framework in frameworks:
                framework.prepare(stream._device)
        if place.waits_for is not None:
            waited = place.waits_for._native
            with backend.relaxed(waited):
                backend.synchronize(waited)
        self._enter(graph)
        if frameworks:
            self._take_in(frameworks, generators)
        try:
            keep = partial(setattr, self, "_token")
            # Called by C, which keeps the token before a signal handler can raise.
            any(map(keep, map(self.recorder.capture_begin, (native,), (self.mode,))))
        except DriverError as error:
            raise capture_error(f"{self.subject} did not begin", error) from error
        if self.recorder is not backend:
            self.lease.recorded = cast("FrameworkRecorder", self.recorder).pool
        if self.observations:
            self._observe(frameworks)

    def _observe(self, frameworks: Sequence[Framework]) -> None:
        """Tell the observers that the capture has begun, and have frameworks report what is used."""
        used = _used_by(self.observations)
        if used is not None:
            for framework in frameworks:
                self._undos.extend(filter(None, (framework.observe(self.lease.shown, used),)))
        notify(self.observations, "begun")

    def _enter(self, graph: Any) -> None:
        """Take this thread into the capture, until `_leave`."""
        thread = capture_table.thread
        if thread.end is None:
            thread.end = Callback(_abandon_all, thread.unfinished)
        key = id(self)
        thread.unfinished[key] = self
        capture_table.live[key] = self
        thread.graphs[key] = graph
        pause_gc()
        entry = stream_stack.Entry()
        entry.stream, entry.entrant, entry.undos, entry.guard = self.stream, self, [], None
        stream_stack.thread.entries.append(entry)

    def _take_in(self, frameworks: Sequence[Framework], generators: Sequence[object]) -> None:
        """Make the stream the frameworks' current one, have them use the pool, and let one record."""
        stream, pool, entry = self.stream, self.lease.id, stream_stack.thread.entries[-1]
        backend, device = stream._backend, stream._device
        handle = stream_stack.make_current(entry, frameworks)
        note = partial(report_collective, self.observations)
        for framework in frameworks:
            framework.clear_results()
            entry.undos.append(framework.clear_results)
            undo = framework.observe_collectives(note)
            if undo is not None:
                self._undos.append(undo)
        if handle is not None:
            self.lease.used_by(frameworks)
            relaxed = partial(_relaxed, backend, stream._native, self._owner)
            for framework in frameworks:
                undo = framework.route(pool, handle, device, relaxed)
                if undo is not None:
                    entry.undos.append(undo)
        if self.recorder is not backend:  # a body of a loop or a branch is recorded as its capture says
            return
        for framework in frameworks:
            recorder = framework.recorder(backend, pool, device, generators)
            if recorder is not None:
                self.recorder = recorder
                return

    def failure(self, cause: BaseException) -> CaptureError | None:
        """Return the error to raise for what the body raised; None if that passes unchanged.

        It passes if the driver has not invalidated the capture, unless a framework has refused a call.
        """
        said = cause if isinstance(cause, DriverError) else None
        notify(self.observations, "stop")
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
        """Return the error for this capture, with what its observers have found."""
        explaining = [each for each in self.observations if hasattr(each, "explained")]
        diagnosed = bool(explaining)
        failure = capture_error(f"{self.subject} {what}", error, reason, fact, diagnosed=diagnosed)
        for each in explaining:
            failure = each.explained(failure, cause)
        return failure

    def end(self) -> Captured:
        """End the capture and return the graph.

        Raises
        ------
        CaptureError
            It did not become a graph. `abandon` has to follow, as after any exception.
        """
        recorder, backend = self.recorder, self.stream._backend
        if self.observations:
            notify(self.observations, "stop")
            notify(self.observations, "end")
        try:
            info = backend.capture_info(self.stream._native)  # afterwards, nobody counts them as cheaply
            count = None if info is None else info.nodes
            if recorder is not backend:
                cast("FrameworkRecorder", recorder).counted = count
            captured = Captured(recorder, backend, recorder.capture_end(self._token), self._owner)
        except DriverError as error:
            raise self._error("did not become a graph", error) from error
        self._token = NO_TOKEN
        self._leave()
        captured.count, captured.labels, captured.mode = count, (), self.mode
        if self.observations:
            notify(self.observations, "succeeded", captured)
        return captured

    def abandon(self) -> None:
        """End the capture and discard the recording. Calling it twice is fine."""
        try:
            try:
                notify(self.observations, "stop")
            finally:
                self._abandon()
        finally:
            try:
                unfinished = capture_table.thread.unfinished
                entered = any(entry.entrant is self for entry in stream_stack.thread.entries)
                if self._undos or id(self) in capture_table.live or id(self) in unfinished or entered:
                    self._leave()  # else there may be no stack left for it
            finally:
                self.lease.release()
                self.guard = None
                self.observations.clear()  # exceptions and observers may still hold the capture
                self.retained = []

    def _abandon(self) -> None:
        if self._token is not NO_TOKEN:
            self.recorder.capture_abandon(self._token)
            self._token = NO_TOKEN

    def thread_ended(self) -> None:
        """Abandon the capture, which nobody can end any more. Its graph stays as it is until it is reset."""
        notify(self.observations, "stop")
        self._abandon()
        capture_table.live.pop(id(self), None)
        resume_gc()

    def _leave(self) -> None:
        """Take this thread and the frameworks out of the capture, whether it has ended well or not."""
        thread = capture_table.thread
        capture_table.live.pop(id(self), None)
        thread.unfinished.pop(id(self), None)
        thread.graphs.pop(id(self), None)
        resume_gc()
        try:
            if self._undos:
                stream_stack.undo(self._undos)
        finally:
            try:
                entries = stream_stack.thread.entries
                if entries and entries[-1].entrant is self and not entries[-1].undos:
                    entries.pop()
                else:
                    stream_stack.leave(self)
            finally:
                self.lease.capturing = False


# ---- what observes a capture ---------------------------------------------------------------------


def notify(observations: Iterable[object], method: str, *args: object) -> None:
    """Call a method of those that have it."""
    for each in observations:
        call = getattr(each, method, None)
        if call is not None:
            call(*args)


def part_of(observations: list[Any], kind: type[Part]) -> Part:
    """Return the one observation of a kind, which is added if there is none."""
    for each in observations:
        if isinstance(each, kind):
            return each
    made = kind()
    observations.append(made)
    return made


def _used_by(observations: Iterable[Any]) -> Callable[[object], Undo] | None:
    """Return a callable for the arrays that captured work uses; None if nobody wants to know them."""
    calls = [each.used for each in observations if hasattr(each, "used")]
    if len(calls) < 2:
        return calls[0] if calls else None

    def used(array: object) -> Undo:
        undos = [call(array) for call in calls]
        return lambda: [undo() for undo in undos]

    return used


class Events:
    """The events that were recorded in one capture."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: list[ref[Event]] = []


class Collectives:
    """The collectives of one capture, in order: an observation of every capture that asks for one."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: list[interop.Collective] = []

    def collective(self, collective: interop.Collective) -> None:
        """Note one."""
        self.found.append(collective)

    def hand_on(self) -> Collectives:
        """Return itself: it does not change any more."""
        return self


def report_collective(observations: list[Any], collective: interop.Collective) -> None:
    """Report a collective of the captured work."""
    part_of(observations, Collectives)
    notify(observations, "collective", collective)


# ---- a graph that was captured -------------------------------------------------------------------


def why_empty(backend: Backend) -> str:
    """Return why a capture on a backend may have recorded nothing, and the way out: a clause."""
    if backend.recording == "explicit":
        return "this backend records only work that is enqueued through accelerator_graph.Stream"
    return (
        "the work may have gone to another stream or device, or have run at once, as ordinary Python and "
        "NumPy do; enqueue it on the captured stream, or capture the stream that it goes to"
    )


LabelledRange = tuple[str, int, int, str, int]
"""A name, the number of the first node and the one after the last, a file and a line."""


class Captured(Owned):
    """A graph that was captured."""

    __slots__ = ("__weakref__", "count", "labels", "mode")

    is_lent: ClassVar[bool] = False
    """The graph is another one's, which lives as long as this."""
    count: int | None
    """How many nodes were recorded, the library's own among them; None if the backend does not count them."""
    labels: tuple[LabelledRange, ...]
    mode: CaptureMode

    def allows_another(self) -> bool:
        """Return True if a second executable can live beside the first one."""
        return self.recorder is self.backend and not self.backend.single_executable(self.native)

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
    global _gc_lock
    _gc_lock = threading.RLock()
    resume_gc()


interruptions.after_fork(_after_fork)
