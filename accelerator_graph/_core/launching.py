"""Launching an executable on a stream: at once, or as a run inside the graph that is being captured there.

All callables of a graph read one cell, the `owner` of the graph's launch lock. One assignment exchanges what
all of them launch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from weakref import ref

from ..backends.base import Capability, CaptureStatus, SameContext, SameStream
from ..errors import AcceleratorGraphError, CaptureError, GraphStateError, Reason, explain
from . import capture_table
from .capture_table import measuring
from .extension import fast
from .ownership import Owned, drain, due
from .streams import Event, Stream, capture_of, captured_by, describe

if TYPE_CHECKING:
    from ..backends.base import AnyBackend as Backend
    from ..backends.base import NativeCalls, NodeSetter, Recorder
    from ._fast import Launch, Launcher
    from .capture import Captured
    from .memory import Measured
    from .node_changes import NodeChanges
    from .pools import Lease
    from .replay import Runner

RESET_MEANWHILE = "another thread has reset the graph; capture again"

MOST_STREAMS = 16
"""The most streams to remember; more would only cost memory."""


class Executable(Owned):
    """An executable of a captured graph.

    Attributes
    ----------
    made_of : object
        The recorder's graph, if that was kept.
    changes : NodeChanges or None
        The changes of single nodes, once there are some.
    key : object
        Stands for the executable in bindings, which don't keep it alive.
    measured : Measured or None
        The memory that it has taken, if that was measured.
    work : Captured or None
        The graph, if a framework keeps it as long as the executable. Other graphs are with their runner.
    runs : tuple
        The bindings whose runs may be in progress, with their streams, which are kept alive.
    setters : dict or None
        What changes single nodes, by their numbers: the present parameters of these nodes.
    """

    __slots__ = ("changes", "key", "made_of", "measured", "runs", "setters", "work")

    def __init__(self, recorder: Recorder, backend: Backend, value: Any, *keeps: object) -> None:
        super().__init__(recorder, backend, value, *keeps)
        self.work: Captured | None = None
        self.made_of: object = None
        self.changes: NodeChanges | None = None
        self.setters: dict[int, NodeSetter] | None = None
        self.key = object()
        self.measured: Measured | None = None
        self.runs: tuple[tuple[ref[Binding], Stream], ...] = ()

    def note_run(self, binding: Binding, stream: Stream) -> None:
        """Note that a binding is about to launch. The launch lock is held."""
        if all(each() is not binding for each, _ in self.runs):
            self.runs = (*self.runs, (ref(binding), stream))

    def forget_runs(self) -> None:
        """Forget the runs of bindings that are gone: a later one has begun, and runs are in order."""
        self.runs = tuple(each for each in self.runs if each[0]() is not None)

    def ends(self) -> list[Event | Stream]:
        """Return what a stream has to wait for to come after all runs. The launch lock is held."""
        found: list[Event | Stream] = []
        for _, stream in self.runs:
            end: Event | Stream = stream
            if Capability.EVENTS in self.backend.capabilities(stream.device):
                with suppress(AcceleratorGraphError):  # else the first run tries again
                    if not stream._is_capturing():
                        end = stream.record()
            found.append(end)
        return found

    def let_go(self) -> None:
        """Have no binding keep this alive, or launch it again without its check."""
        for binding, _ in self.runs:
            if (bound := binding()) is not None:
                bound.let_go()

    def launch_on(self, stream: Stream, calls: NativeCalls | None) -> Callable[[], Any]:
        """Return a callable that launches this on a stream, for which the backend has these calls."""
        native = self.value if self.recorder is self.backend else self.lent()
        found = None if native is None or calls is None else calls.bind(native)
        return found or partial(self.recorder.replay, self.value, stream._native)

    def act(self) -> None:
        """Destroy the executable."""
        self.recorder.destroy_executable(self.value)


def instantiated(captured: Captured, home: Stream, lease: Lease, *, keep: bool) -> Executable:
    """Return an executable of a graph, which nothing launches yet.

    Parameters
    ----------
    captured : Captured
        The graph.
    home : Stream
        The stream of replays that name none.
    lease : Lease
        The graph's part in a pool.
    keep : bool
        The graph is kept beside the executable.
    """
    if due:  # a former one, or what an interrupt has left of it
        drain()
    before = None
    if measuring.depth:
        from .memory import after_instantiation, before_instantiation

        before = before_instantiation(captured)
    value, owner = captured.recorder.instantiate(captured.value), home._owner
    keeps = (owner, captured) if captured.is_lent else (owner,)
    executable = Executable(captured.recorder, captured.backend, value, *keeps)
    if keep:
        executable.made_of = captured.value
    elif captured.recorder is not captured.backend:
        executable.work = captured
    if before is not None:
        executable.measured = after_instantiation(before, captured, home, lease)
    return executable


class Current:
    """The executable that the replays of a graph launch. A swap reaches all callables at once.

    Parameters
    ----------
    executable : Executable or None
        The executable, once there is one.
    check : callable, optional
        Called before launches. If it raises, nothing is launched and the exception passes. Once it has
        returned True, the callable that launches does not call it again, unless it is let go.
    former : list of Event or Stream
        The runs of former executables that the first run has to wait for. Empty from then on.
    why : str
        Why there is no executable.
    until : {"replay", "instantiate", "never"}
        Which call makes one, if there is none.
    """

    __slots__ = ("check", "executable", "former", "until", "why")

    def __init__(
        self,
        executable: Executable | None,
        check: Callable[[], object] | None,
        former: list[Event | Stream],
        why: str = RESET_MEANWHILE,
        until: Literal["replay", "instantiate", "never"] = "replay",
    ) -> None:
        self.executable = executable
        self.check = check
        self.former = former
        self.why = why
        self.until = until

    def checked(self, check: Callable[[], object] | None) -> Current:
        """Return the same with this check."""
        return Current(self.executable, check, self.former, self.why, self.until)

    def launchable(self) -> Executable:
        """Return the executable; raise `GraphStateError` if there is none."""
        if self.executable is None:
            raise GraphStateError(f"{self.why}.")
        return self.executable


class Binding:
    """A graph bound to a stream.

    Parameters
    ----------
    runner : Runner
        What replays the graph. It is not kept alive.
    stream : Stream
        Where launches go. A hold of its own, which nobody else can close.
    keeps : object, optional
        What has to live as long as the callable does.
    ahead : bool
        Move the executable to the device now.
    """

    __slots__ = ("__weakref__", "_asks", "_keeps", "_launcher", "_lock", "_prepared", "_runner", "_stream")

    _prepared: tuple[object, Callable[[], Any] | None]
    """The `Current` for which all is decided, or the key of an executable; and what launches that. Replaced
    as a whole."""

    def __init__(self, runner: Runner, stream: Stream, keeps: object = None, *, ahead: bool = False) -> None:
        self._runner = ref(runner)
        self._lock = lock = runner.launching
        self._stream = stream
        self._keeps = keeps
        self._asks = stream._backend.replay_ignores_captures
        self._launcher: Callable[[], Launcher | None] | None = None
        executable: Executable = lock.owner.executable or lock.owner.launchable()
        calls = stream._backend.native_calls(stream._native)
        self._prepared = executable.key, executable.launch_on(stream, calls)
        if ahead and calls is not None and not stream._is_capturing():
            calls.upload(executable.native)

    def launcher(self) -> Callable[[], None]:
        """Return the callable. It holds the binding, and the binding does not hold it."""
        if fast is None:
            return self.launch
        launcher: Launcher = fast.Launcher(capture_table.live, self.launch)
        self._launcher = ref(launcher)
        return launcher

    def launch(self) -> None:
        """Launch what is current. The callable in C does so itself, or calls this."""
        if (capture_table.live or self._asks) and self._stream._is_capturing() and self._record():
            return
        lock = self._lock
        with lock:
            current = lock.owner
            prepared, call = self._prepared
            if prepared is current and call is not None:
                call()
            else:
                self._decide(current, prepared, call)

    def _record(self) -> bool:
        """Record a run in the capture of the stream; return False if the launch does that itself."""
        refuse_capturing(self._stream)
        runner = self._runner()
        if runner is None:
            raise GraphStateError(f"{RESET_MEANWHILE}.")
        with self._lock:
            return record(runner, self._stream)

    def _decide(self, current: Current, prepared: object, call: Callable[[], Any] | None) -> None:
        """Launch what this callable has not launched before, or what has to be checked each time."""
        stream, executable, check = self._stream, current.executable or current.launchable(), current.check
        settled = check is None or check()
        if call is None or prepared is not executable.key:
            call = executable.launch_on(stream, stream._backend.native_calls(stream._native))
            self._prepared = executable.key, call
        if current.former and stream._is_capturing():  # the run is recorded and does not begin
            call()
            return
        executable.note_run(self, stream)
        if current.former:
            _follow(stream, current.former)
        call()
        if current.former:
            current.former.clear()
        if len(executable.runs) > 1:
            executable.forget_runs()
        if settled:
            self._connect(current, executable, call)

    def _connect(self, current: Current, executable: Executable, call: Callable[[], Any]) -> None:
        """Decide nothing more from now on, and have the callable in C launch without Python if it can."""
        launcher, recorder = None if self._launcher is None else self._launcher(), executable.recorder
        stream = self._stream
        if launcher is not None and (launcher.target is None or launcher.target.owner is not current):
            launcher.target = _launch_in_c(current, executable, stream, self._lock)
        in_c = launcher is not None and launcher.target is not None
        if in_c and recorder.serialises_replays:
            self._prepared = None, None  # Python hardly ever launches: it need not keep the call
        elif in_c or recorder is executable.backend:
            self._prepared = current, call
        elif executable.lent() is not None:
            calls = stream._backend.native_calls(stream._native)
            self._prepared = current, executable.launch_on(stream, calls)
        if self._lock.owner is not current:  # the graph was reset meanwhile
            self.let_go()

    def let_go(self) -> None:
        """Hold no executable until the next launch."""
        self._prepared = None, None
        launcher = None if self._launcher is None else self._launcher()
        if launcher is not None:
            launcher.target = None


def _follow(stream: Stream, former: list[Event | Stream]) -> None:
    """Let a stream wait for the runs of former executables."""
    for end in former:
        if not isinstance(end, Stream):
            stream.wait(end)
        elif end._is_capturing():
            raise CaptureError(
                f"replay: a run of the graph's former executable is on the {describe(end)}, which is being "
                "captured now, so no other stream can wait for it; replay once that capture has ended.",
                reason="illegal_call",
            )
        else:
            stream._follow(end)


def _launch_in_c(current: Current, executable: Executable, stream: Stream, lock: Any) -> Launch | None:
    """Return what launches an executable on a stream without Python; None if that is not possible."""
    backend, native = stream._backend, executable.lent()
    calls = backend.native_calls(stream._native)
    found = None if native is None or calls is None else calls.launch_function(native)
    if found is None or fast is None:
        return None
    guard = found.guard
    latest = guard.address if isinstance(guard, SameStream) else 0
    in_context, context = (guard.address, guard.context) if isinstance(guard, SameContext) else (0, 0)
    handles = backend.handle_int(native), backend.handle_int(stream._native)
    conditions = latest, in_context, context, found.capturing, executable.recorder.serialises_replays
    launch: Launch = fast.Launch(found.address, *handles, current, found.failed, lock, *conditions)
    return launch


class Latest:
    """The latest replay that named a stream.

    Parameters
    ----------
    named : object
        What the user passed. It is not kept alive.
    stream : Stream
        What it stands for. A hold of its own, which nobody else can close.
    launch : callable
        Launches there.
    """

    __slots__ = ("_asks", "_named", "_stream", "launch")

    def __init__(self, named: object, stream: Stream, launch: Callable[[], None]) -> None:
        self.launch = launch
        self._named = ref(named)
        self._stream = stream
        self._asks = _has_to_ask(stream)

    def is_for(self, named: object) -> bool:
        """Return True if `launch` is what a replay would do that names the same."""
        if self._named() is not named or (isinstance(named, Stream) and named._closed):
            return False
        return not (self._asks and self._stream._is_capturing())


def make_room(table: dict[Any, Any]) -> None:
    """Drop the oldest if there are too many."""
    if len(table) >= MOST_STREAMS:
        with suppress(KeyError, RuntimeError, StopIteration):  # another thread drops one
            del table[next(iter(table))]


# ---- a run inside the graph that is being captured -----------------------------------------------


def refuse_capturing(stream: Stream) -> None:
    """Raise if a replay onto this stream can't be recorded in the capture that it takes part in.

    Raises
    ------
    CaptureError
        The stream is capturing and its backend can't record a replay. Nothing was touched.
    """
    backend = stream._backend
    if not _has_to_ask(stream) or not stream._is_capturing():
        return
    records = Capability.CHILD_GRAPHS in backend.capabilities(stream._device)
    if records and capture_of(stream) is not None:
        return
    where = "the capture of somebody else" if records else "another graph"
    raise CaptureError(
        f"replay onto the {describe(stream)}: backend {backend.name!r} can't record a replay in {where}, "
        f"and {captured_by(stream)}.",
        reason="illegal_call",
    )


def _has_to_ask(stream: Stream) -> bool:
    """Return True if a launch onto this stream is not recorded while it is capturing."""
    backend = stream._backend
    return backend.records_graphs or Capability.CHILD_GRAPHS not in backend.capabilities(stream._device)


class _Inside:
    """Has an observer's object that stays with the work of a graph stay with the graph around it too."""

    __slots__ = ("_stays",)

    def __init__(self, stays: Any) -> None:
        self._stays = stays

    def hand_on(self) -> Any:
        return self._stays.hand_on() if hasattr(self._stays, "hand_on") else self._stays


def record(runner: Runner, stream: Stream) -> bool:
    """Record a run in the capture of a stream; return False if a launch by the backend does that.

    The capture keeps alive what the run needs, and its graph checks what the recorded graph would check.

    Raises
    ------
    CaptureError
        The run can't be recorded. The capture is as before.
    """
    backend, parent = stream._backend, capture_of(stream)
    if parent is None:  # another library's, which the backend records in
        return False
    executable = runner.launchable()
    captured = runner.captured or executable.work
    native = None
    if backend.records_graphs:
        if backend.capture_status(stream._native) is CaptureStatus.INVALIDATED:
            raise _not_recorded(stream, explain("invalidated"), "invalidated")
        if captured is None:
            raise _not_recorded(stream, "the graph was not kept; capture it with Graph(keep_graph=True)")
        if executable.changes is not None and executable.changes.made:
            raise _not_recorded(
                stream,
                "set_node() has changed nodes of its executable, and the run would be without these changes; "
                "capture its work again, with recapture()",
            )
        if runner.lease.in_use and parent.lease.shown == runner.lease.shown:
            raise _not_recorded(
                stream,
                "both use one memory pool, so the run would write over what the capture has in it; capture "
                "into another pool",
            )
        native = captured.lent()
        if native is None:
            raise _not_recorded(
                stream,
                "it may draw random numbers, which would be the same in every run; replay it once before, "
                "so that this is known, or capture its work here",
            )
        if backend.single_executable(native):
            raise _not_recorded(
                stream,
                "it allocates or frees memory or has conditional nodes, which no driver takes inside another "
                "graph; capture its work here",
            )
    check = runner.launching.owner.check
    if check is not None:
        check()
        parent.observations += [_Inside(each) for each in runner.observations if hasattr(each, "check")]
    needed: tuple[object, ...] = (runner.retained, runner.lease.shared())
    if captured is not None and captured.recorder is not backend:
        needed = (*needed, captured)  # a framework's graph has its memory
    parent.retained.append(needed)
    if native is not None:
        backend.record_graph(stream._native, native)
    return native is not None


def _not_recorded(stream: Stream, why: str, reason: Reason = "illegal_call") -> CaptureError:
    return CaptureError(
        f"replay onto the {describe(stream)}, which is capturing: the run can't be recorded: {why}.",
        reason=reason,
    )
