"""Replaying a captured graph: its executable, and the callables that launch it on a stream.

All callables of a graph read one cell, the `owner` of the graph's launch lock. One assignment exchanges what
all of them launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal
from weakref import ref

from .._interpreter.interruptions import Section
from ..backends.base import Capability, SameContext, SameStream, unsupported
from ..errors import AcceleratorGraphError, CaptureError, GraphStateError, UnsupportedError
from . import capture_table
from .capture_table import measuring
from .extension import fast, new_lock
from .ownership import Owned, drain, due
from .stream_stack import is_constant
from .streams import Event, FrameworkCurrent, Stream, as_stream, capture_of, captured_by, describe

if TYPE_CHECKING:
    from ..backends.base import AnyBackend as Backend
    from ..backends.base import GraphContents, NativeCalls, NodeSetter, Recorder
    from ..interop.base import Framework
    from ._fast import Launch, Launcher
    from .capture import Captured, LabelledRange
    from .memory import Measured
    from .node_changes import NodeChanges
    from .pools import Lease

NOT_KEPT = (
    "the graph was not kept; make it with keep_graph=True, or call enable_debug_mode() before the capture"
)
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


_NOTHING = Current(None, None, [])
"""What a graph launches that has no executable yet."""


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
            from .children import record

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


class Changing(Section):
    """Encloses a change of a graph; raises `GraphStateError` in the middle of another one by this thread."""

    __slots__ = ("_runner", "_what", "thread")

    def __init__(self, runner: Runner, what: str) -> None:
        self._runner = runner
        self._what = what
        self.thread = get_ident()

    def begin(self) -> None:
        """Note that the graph is being changed."""
        self._runner.refuse_in_a_change(self._what)
        self._runner.changing = self

    def end(self) -> None:
        """Note that the change is over."""
        if self._runner.changing is self:
            self._runner.changing = None


class EagerPart:
    """A call between two segments of a graph with breaks."""

    __slots__ = ("file", "held", "line", "name", "observations")

    def __init__(self, name: str, file: str, line: int) -> None:
        self.name = name
        self.file = file
        self.line = line
        self.held: tuple[object, ...] = ()
        """What it keeps alive: its arguments, and what it has returned in the capture."""
        self.observations: list[Any] = []
        """What was observed of it in the capture."""

    @property
    def nbytes(self) -> int | None:
        """How large the arrays are that it has made and returned in the capture, if that is known."""
        return None


class ConditionalPart(EagerPart):
    """A loop or a branch between two segments, whose flag the host reads."""

    __slots__ = ("bodies", "kind")

    kind: Literal["while", "if"]
    bodies: tuple[Sequence[Runner | EagerPart], ...]
    """What the bodies do, in order."""

    @property
    def nbytes(self) -> int:
        """Nothing of its own: calls in the bodies count for themselves."""
        return 0


def parts_in(parts: Iterable[Runner | EagerPart]) -> Iterator[Runner | EagerPart]:
    """Yield the parts in order: what is in the body of a loop or a branch ahead of the loop or branch."""
    for each in parts:
        if isinstance(each, ConditionalPart):
            for body in each.bodies:
                yield from parts_in(body)
        yield each


def segments_in(parts: Iterable[Runner | EagerPart]) -> Iterator[Runner]:
    """Yield the segments, those in the bodies of loops and branches as well."""
    return (each for each in parts_in(parts) if isinstance(each, Runner))


def calls_in(parts: Iterable[Runner | EagerPart]) -> Iterator[EagerPart]:
    """Yield the eager calls, those in the bodies of loops and branches as well."""
    return (
        each
        for each in parts_in(parts)
        if isinstance(each, EagerPart) and not isinstance(each, ConditionalPart)
    )


class Runner:
    """A captured graph, its executable once there is one, and what replays need beside.

    Parameters
    ----------
    captured : Captured
        The graph.
    keep : bool
        Keep the graph once there is an executable.
    home : Stream
        The stream of replays that name none. A hold of its own, which nobody else can close.
    lease : Lease
        The graph's part in a pool, which the graph releases when it is reset.
    """

    __slots__ = (
        "__weakref__",
        "beside",
        "captured",
        "changing",
        "counted",
        "home",
        "keeps_graph",
        "latest",
        "launching",
        "lease",
        "lock",
        "observations",
        "retained",
    )

    refused: Mapping[str, str] = {}
    """What such a graph refuses in every state: the sentence by operation."""

    def __init__(self, captured: Captured | None, keep: bool, home: Stream, lease: Lease) -> None:
        self.captured = captured
        self.launching = new_lock()
        """Held by each launch of the graph, and to change or exchange the executable. Its `owner` is what
        is launched, a `Current`."""
        self.launching.owner = _NOTHING
        self.latest: Latest | None = None
        self.home = home
        self.lease = lease
        self.lock = new_lock()
        """Held while the graph is changed or instantiated late. Taken before `launching`."""
        self.keeps_graph = keep
        self.beside = False
        """Whether the captured stream is not the one of replays."""
        self.retained: tuple[object, ...] = ()
        """The objects that the graph's present work needs."""
        self.observations: tuple[Any, ...] = ()
        """The observers' objects that stay with the work."""
        self.changing: Changing | None = None
        """The change of the graph that is under way."""
        self.counted = None if captured is None else captured.count
        """How many nodes were captured, the library's own among them; None if that is not known."""

    @property
    def executable(self) -> Executable | None:
        """The executable, once there is one."""
        found: Executable | None = self.launching.owner.executable
        return found

    @property
    def parts(self) -> Sequence[Runner | EagerPart]:
        """What a run does, in order: itself, or segments and what is called between them."""
        return (self,)

    @property
    def labels(self) -> tuple[LabelledRange, ...]:
        """The labels of a graph that is kept."""
        return self.kept().labels

    @property
    def measured(self) -> Measured | None:
        """The memory that the executable has taken, if that was measured."""
        executable = self.executable
        return None if executable is None else executable.measured

    @property
    def _current(self) -> Current:
        current: Current = self.launching.owner
        return current

    def launchable(self) -> Executable:
        """Return the executable; raise `GraphStateError` if there is none."""
        return self._current.launchable()

    def kept(self) -> Captured:
        """Return the graph; raise `GraphStateError` if there is only an executable."""
        if self.captured is None:
            raise GraphStateError(f"{NOT_KEPT}.")
        return self.captured

    def node_setter(self, node: int) -> NodeSetter | None:
        """Return what changes a node of the executable; None if nothing can."""
        captured, executable = self.kept(), self.launchable()
        found = captured.backend.node_setter(captured.native, executable.native, node)
        if found is not None:
            executable.setters = {**(executable.setters or {}), node: found}
        return found

    @property
    def dropped(self) -> str:
        """Why there is no executable any more, if the user has to ask for another one."""
        return self._current.why if self._current.until == "instantiate" else ""

    @property
    def ended(self) -> str:
        """Why there will never be an executable again."""
        return self._current.why if self._current.until == "never" else ""

    def num_nodes(self) -> int:
        """Return how many nodes were captured."""
        if self.counted is None:
            raise unsupported(self.home._backend, Capability.NODES)
        return self.counted

    def contents(self, captured: Captured) -> GraphContents:
        """Return what is in the graph, with what was changed in its executable."""
        executable = self.executable
        made = executable is not None and executable.made_of is captured.value
        contents = captured.backend.nodes(captured.native, executable.native if executable and made else None)
        changes = None if executable is None else executable.changes
        return contents if changes is None or changes.graph is not captured.native else changes.seen(contents)

    def instantiate(self) -> None:
        """Make an executable and let everything that is bound launch it: new first, then swap.

        Where the graph allows only one executable at a time, the old one is destroyed first.
        """
        captured = self.kept()
        if self.launching.owner.executable is not None and not captured.allows_another():
            self.refuse("the graph could not be instantiated again; call instantiate() or replay()")
        if due:  # the old one, or what an interrupt has left of it
            drain()
        self.exchange(self.make(captured, self.lease, self.retained))
        if not self.keeps_graph:
            self.captured = None

    def make(self, captured: Captured, lease: Lease, retained: tuple[object, ...]) -> Executable:
        """Make an executable of a graph, which nothing launches yet."""
        before = None
        if measuring.depth:
            from .memory import after_instantiation, before_instantiation

            before = before_instantiation(captured)
        value, owner = captured.recorder.instantiate(captured.value), self.home._owner
        keeps = (owner, captured) if captured.is_lent else (owner,)
        executable = Executable(captured.recorder, captured.backend, value, *keeps)
        if self.keeps_graph:
            executable.made_of = captured.value
        elif captured.recorder is not captured.backend:
            executable.work = captured
        if before is not None:
            executable.measured = after_instantiation(before, captured, self.home, lease, retained)
        return executable

    def exchange(self, executable: Executable) -> None:
        """Let all callables launch this executable, whose first run waits for the runs of the former one."""
        with self.lock, self.launching:
            current: Current = self.launching.owner
            if current.until == "never":
                raise GraphStateError(f"{current.why}.")
            if current.executable is None:
                self.launching.owner = Current(executable, current.check, current.former)
            else:
                self._replace(Current(executable, current.check, self._ends(current)))

    def _ends(self, current: Current) -> list[Event | Stream]:
        """Return what the next executable's first run has to wait for. The launch lock is held."""
        ends = [] if current.executable is None else current.executable.ends()
        return [*current.former, *ends]

    def _replace(self, current: Current) -> None:
        former, self.launching.owner = self.executable, current
        if former is not None:
            try:
                former.let_go()
            except BaseException:  # an interrupt
                former.let_go()
                raise

    def home_launcher(self) -> Callable[[], None]:
        """Return a callable that replays where replays go that name no stream."""
        owner = self.home._owner
        if isinstance(owner, FrameworkCurrent):
            return self._follower(owner.framework)
        return Binding(self, self.home).launcher()

    def _follower(self, framework: Framework) -> Callable[[], None]:
        """Return a callable that replays on whatever stream is a framework's current one by then."""
        device = self.home._device
        launchers: dict[int, Callable[[], None]] = {}
        runner = ref(self)  # which may hold this callable

        def missing(handle: int) -> Callable[[], None]:
            here = runner()
            if here is None:
                raise GraphStateError(f"{RESET_MEANWHILE}.")
            if launchers:
                make_room(launchers)
            call = launchers[handle] = Binding(here, here._of_framework(handle)).launcher()
            return call

        def launch() -> None:
            answer = framework.current_stream(device)
            handle = 0 if answer is None else answer[0]
            (launchers.get(handle) or missing(handle))()

        ask = framework.current_handle
        if fast is None or ask is None:
            return launch
        exchange = () if framework.exchange is None else (*framework.exchange, device)
        follow: Callable[[], None] = fast.Follower(launchers, missing, ask, device, exchange=exchange)
        return follow

    def stream_for(self, obj: object) -> Stream:
        """Return the stream that an object stands for, if the graph can be replayed there.

        Raises
        ------
        TypeError, ValueError
            It is not a stream, or one of another backend or device.
        """
        home = self.home
        why = "on which the graph was captured; replay it on a stream of that backend"
        stream = as_stream(obj, home.backend, why)
        if stream._backend is not home._backend:
            raise ValueError(
                f"{describe(stream)}: that backend was registered anew after this graph was captured; "
                "capture it again."
            )
        if stream.device != home.device:
            raise ValueError(
                f"the graph was captured on device {home.device} and can't be replayed on device "
                f"{stream.device}; capture it there, or take a stream of device {home.device}."
            )
        return stream

    def check_cuda_like(self) -> None:
        """Raise `UnsupportedError` if the backend's handles are not like CUDA's."""
        if not self.home._backend.cuda_like:
            raise UnsupportedError(
                f"backend {self.home.backend!r} has no handles like CUDA's; raw_graph() and raw_executable() "
                "return its own, if it has any."
            )

    def destination(self) -> Stream:
        """Return the stream that a launch which names none goes to at this moment."""
        owner, device = self.home._owner, self.home.device
        if not isinstance(owner, FrameworkCurrent):
            return self.home
        answer = owner.framework.current_stream(device)
        return self._of_framework(0 if answer is None else answer[0])

    def _of_framework(self, handle: int) -> Stream:
        home = self.home
        backend = home._backend
        if backend.handle_int(home._native) == handle:
            return home
        return Stream._make(backend, backend.as_stream(handle), home._device, home._owner)

    def bind(self, stream: Stream, keeps: object) -> Callable[[], None]:
        """Return a callable that launches on this stream, and keeps an object alive."""
        self.latest = None
        return Binding(self, stream, keeps, ahead=True).launcher()

    def replay(self, named: object, stream: Stream) -> None:
        """Launch on a stream that an object stands for, and that somebody else may be capturing."""
        refuse_capturing(stream)
        self.latest = None  # so that this run takes the place of that one
        held = stream.held()
        launch = Binding(self, held).launcher()
        launch()
        if named is stream or is_constant(named):
            with suppress(TypeError):  # it can't be referenced weakly
                self.latest = Latest(named, held, launch)

    def replay_with(
        self, live: Mapping[str, object], stream: Stream | None, mark: Callable[[], object] | None = None
    ) -> None:
        """Launch a graph with breaks, and call `mark` ahead of each part and behind the last one.

        Raises as `Graph.replay`; `GraphStateError` if the graph has no breaks.
        """
        raise GraphStateError(
            "live= is for graphs with breaks, captured with graph(g, breaks=True); the work "
            "of this one has its arguments from the capture."
        )

    def replay_again(self, named: object) -> bool:
        """Launch where the latest replay that named a stream did, if that is it; return whether it is."""
        latest = self.latest
        if latest is None or self.launching.owner.executable is None or not latest.is_for(named):
            return False
        latest.launch()
        return True

    def observe(self, *observations: Any) -> None:
        """Have these observations, whose checks are called ahead of every launch from now on."""
        for each in observations:
            if hasattr(each, "kept_by"):
                each.kept_by(self)
        with self.lock:
            self.launching.owner = self._current.checked(_check_of(observations))
            self.observations = observations

    def refuse(self, why: str, until: Literal["replay", "instantiate"] = "replay") -> None:
        """Let go of the executable; callables raise `GraphStateError` until there is another one."""
        with self.lock, self.launching:
            current = self._current
            if current.until != "never":
                self._replace(Current(None, current.check, self._ends(current), why, until))

    def end(self, why: str) -> None:
        """Let go of the executable for good, even if another thread is making one. Waits for no launch."""
        with self.lock:
            self._replace(Current(None, None, [], why, "never"))

    def after_fork(self, why: str) -> None:
        """As `end`, in a forked child, where the threads that hold locks may be gone."""
        self.lock._at_fork_reinit()
        self.launching._at_fork_reinit()
        self.end(why)

    def refuse_in_a_change(self, what: str) -> None:
        """Raise `GraphStateError` if this thread is changing the graph already, or the graph was reset."""
        change = self.changing
        if change is not None and change.thread == get_ident():
            raise GraphStateError(
                f"Graph.{what}: this thread is in the middle of another change of the graph; call it "
                "afterwards, not in a signal handler or a finaliser."
            )
        if self.ended:
            raise GraphStateError(f"{self.ended}.")


def make_room(table: dict[Any, Any]) -> None:
    """Drop the oldest if there are too many."""
    if len(table) >= MOST_STREAMS:
        with suppress(KeyError, RuntimeError, StopIteration):  # another thread drops one
            del table[next(iter(table))]


def _check_of(observations: Iterable[Any]) -> Callable[[], object] | None:
    """Return what has to be called ahead of replays until it returns True; None if nothing has to."""
    checks: list[Callable[[], object]] = [each.check for each in observations if hasattr(each, "check")]
    if len(checks) < 2:
        return checks[0] if checks else None
    return lambda: all(tuple(each() for each in checks))  # every one is called
