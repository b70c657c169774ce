"""Replaying a captured graph: what is left of a capture, and what it does in a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal
from weakref import ref

from .._interpreter.interruptions import Section
from ..backends.base import Capability, unsupported
from ..errors import GraphStateError, UnsupportedError
from .extension import fast, new_lock
from .launching import RESET_MEANWHILE, Binding, Current, Latest, instantiated, make_room, refuse_capturing
from .stream_stack import is_constant
from .streams import Event, FrameworkCurrent, Stream, as_stream, describe

if TYPE_CHECKING:
    from ..backends.base import GraphContents, NodeSetter
    from ..interop.base import Framework
    from .capture import Captured, LabelledRange
    from .launching import Executable
    from .memory import Measured
    from .pools import Lease

NOT_KEPT = (
    "the graph was not kept; make it with keep_graph=True, or call enable_debug_mode() before the capture"
)

_NOTHING = Current(None, None, [])
"""What a graph launches that has no executable yet."""


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


class HostPart:
    """What the host does between two segments: an eager call, or a loop or a branch that it tests."""

    __slots__ = ("bodies", "file", "held", "kind", "line", "name", "observations")

    def __init__(self, kind: Literal["eager", "while", "if"], name: str, file: str, line: int) -> None:
        self.kind = kind
        self.name = name
        self.file = file
        self.line = line
        self.bodies: tuple[Sequence[Runner | HostPart], ...] = ()
        """What the bodies of a loop or a branch do, in order."""
        self.held: tuple[object, ...] = ()
        """What it keeps alive: of a call, its arguments and what it has returned in the capture."""
        self.observations: list[Any] = []
        """What was observed of it in the capture."""

    @property
    def what(self) -> str:
        """Which one it is, for messages."""
        kind = {"eager": f"eager call of {self.name}", "while": "loop", "if": "branch"}[self.kind]
        return f"the {kind} at {self.file}:{self.line}"

    @property
    def nbytes(self) -> int | None:
        """How large the arrays are that a call has made and returned in the capture, if that is known."""
        return None


def parts_in(parts: Iterable[Runner | HostPart]) -> Iterator[Runner | HostPart]:
    """Yield the parts in order: what is in the body of a loop or a branch ahead of the loop or branch."""
    for each in parts:
        if isinstance(each, HostPart):
            for body in each.bodies:
                yield from parts_in(body)
        yield each


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

    in_segments = False
    """Whether a run is several launches of the host's, maybe with calls, loops or branches between them."""

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
    def parts(self) -> Sequence[Runner | HostPart]:
        """What a run does, in order: itself, or segments and what the host does between them."""
        return (self,)

    @property
    def segments(self) -> list[Runner]:
        """The segments, those in the bodies of loops and branches as well."""
        return [each for each in parts_in(self.parts) if isinstance(each, Runner)]

    @property
    def calls(self) -> list[HostPart]:
        """The eager calls, those in the bodies of loops and branches as well."""
        return [each for each in parts_in(self.parts) if isinstance(each, HostPart) and each.kind == "eager"]

    @property
    def under_way(self) -> bool:
        """Whether a thread is in the middle of a replay, between two launches."""
        return False

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
        self.exchange(instantiated(captured, self.home, self.lease, self.retained, keep=self.keeps_graph))
        if not self.keeps_graph:
            self.captured = None

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


def _check_of(observations: Iterable[Any]) -> Callable[[], object] | None:
    """Return what has to be called ahead of replays until it returns True; None if nothing has to."""
    checks: list[Callable[[], object]] = [each.check for each in observations if hasattr(each, "check")]
    if len(checks) < 2:
        return checks[0] if checks else None
    return lambda: all(tuple(each() for each in checks))  # every one is called
