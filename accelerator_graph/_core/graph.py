"""The machinery under `Graph`: its arguments, its states, and the way to captured, to ready, and back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from .._interpreter import environment, interruptions, keys, warn_of_nothing
from .._interpreter.interruptions import sure_exit
from ..backends import registry
from ..errors import EmptyGraphWarning, GraphStateError
from . import observers, ownership, pools
from .capture import NO_TOKEN, Capture, CaptureMode, Where, check_mode, why_empty
from .current_stream import where
from .replay import NOT_KEPT, Runner
from .streams import as_stream, describe

if TYPE_CHECKING:
    from .capture import Captured
    from .streams import Stream

T = TypeVar("T")

_SWITCHES = keys(observers.DIAGNOSE, observers.CHECK)

_FRAMES = 200
"""The frames that abandoning a capture may take, with frameworks that take part."""

_more_stack = RLock()
"""Held while the recursion limit, which all threads share, is higher."""


def _after_fork() -> None:
    global _more_stack
    _more_stack = RLock()


interruptions.after_fork(_after_fork)


# ---- the state table: the operations that a graph refuses in each state --------------------------

GraphState = Literal["empty", "capturing", "captured", "ready"]
"""The state of a graph; ``"captured"`` has no executable yet."""

_NOTHING = "nothing was captured; capture first, with `with graph:` or capture_begin() and capture_end()"
_CAPTURING = "the graph is being captured; call capture_end() first, or reset() to abandon the capture"
_FULL = "the graph holds a capture; call reset() first, or make another Graph"
_NOT_BEGUN = "no capture has begun; call capture_begin() first"
_NO_EXECUTABLE = "the graph has no executable yet; call instantiate() first"
CAPTURED_BEFORE_FORK = "the graph was captured before this process was forked; capture it again"
BEGUN_BEFORE_FORK = "the capture was begun before this process was forked; capture again"
HAS_EXECUTABLE = (
    "the graph has its executable already; make it with keep_graph=True to instantiate it more than once"
)
ENDED_INSIDE = "the capture was ended inside its `with` block; leave that to the block"

_UNTIL_CAPTURED: dict[GraphState, str] = {"empty": _NOTHING, "capturing": _CAPTURING}
_UNLESS_EMPTY: dict[GraphState, str] = {"capturing": _CAPTURING, "captured": _FULL, "ready": _FULL}

REFUSED: dict[str, dict[GraphState, str]] = {
    "capture_begin()": _UNLESS_EMPTY,
    "capture_end()": {"empty": _NOT_BEGUN, "captured": _NOT_BEGUN, "ready": _NOT_BEGUN},
    "instantiate()": _UNTIL_CAPTURED,
    "replay()": _UNTIL_CAPTURED,
    "bind()": _UNTIL_CAPTURED,
    "update()": _UNTIL_CAPTURED,
    "recapture()": _UNTIL_CAPTURED,
    "clone()": _UNTIL_CAPTURED,
    "pool()": _UNTIL_CAPTURED,
    "num_nodes": _UNTIL_CAPTURED,
    "describe()": _UNTIL_CAPTURED,
    "memory()": _UNTIL_CAPTURED,
    "check()": _UNTIL_CAPTURED,
    "set_node()": _UNTIL_CAPTURED | {"captured": _NO_EXECUTABLE},
    "set_nodes()": _UNTIL_CAPTURED | {"captured": _NO_EXECUTABLE},
    "debug_dump()": _UNTIL_CAPTURED,
    "profile()": _UNTIL_CAPTURED,
    "raw_graph()": _UNTIL_CAPTURED,
    "raw_executable()": _UNTIL_CAPTURED | {"captured": _NO_EXECUTABLE},
    "raw_cuda_graph()": _UNTIL_CAPTURED,
    "raw_cuda_graph_exec()": _UNTIL_CAPTURED | {"captured": _NO_EXECUTABLE},
    "enable_debug_mode()": _UNLESS_EMPTY,
    "register_generator_state()": _UNLESS_EMPTY,
    "graph_pool": _UNLESS_EMPTY,
    "capture_error_mode": _UNLESS_EMPTY,
}
"""The sentence by operation and state. Everything that is not listed is allowed."""

REFUSED_UNLESS_KEPT: dict[str, str] = {
    "instantiate()": HAS_EXECUTABLE,
    "clone()": NOT_KEPT,
    "describe()": NOT_KEPT,
    "check()": NOT_KEPT,
    "set_node()": NOT_KEPT,
    "set_nodes()": NOT_KEPT,
    "debug_dump()": NOT_KEPT,
    "raw_graph()": NOT_KEPT,
    "raw_cuda_graph()": NOT_KEPT,
}
"""What a graph that is ready refuses as well if it was not kept: the sentence by operation."""


# ---- a graph -------------------------------------------------------------------------------------


class BaseGraph:
    """A graph's arguments, its capture in progress, and whatever replays the result.

    See `accelerator_graph.api.Graph` for the parameters.
    """

    __slots__ = (
        "__weakref__",
        "_backend_name",
        "_capture",
        "_generators",
        "_given_stream",
        "_graph_pool",
        "_home",
        "_keeps",
        "_launch",
        "_lost",
        "_mode",
        "_observers",
        "_retained",
        "_runner",
    )

    _keeps: Literal["executable", "debug", "graph"]
    """What is kept: only the executable; the graph for `debug_dump`; the graph, as the user asked for."""
    _launch: Callable[[], None] | None
    """Replays where replays go that name no stream; called by `Graph.replay`, in C."""

    def __init__(
        self,
        keep_graph: bool = False,
        *,
        pool: pools.AnyPool | None = None,
        capture_error_mode: CaptureMode = "default",
        stream: object = None,
        backend: str | None = None,
        observe: observers.Observer | Iterable[observers.Observer] = (),
    ) -> None:
        if not isinstance(keep_graph, bool):
            raise TypeError(f"keep_graph must be True or False, not {keep_graph!r}; a pool goes to pool=.")
        self._keeps = "graph" if keep_graph else "executable"
        self._graph_pool = None if pool is None else pools.check_pool(pool)
        self._mode = "default" if capture_error_mode == "default" else check_mode(capture_error_mode)
        self._backend_name = None if backend is None else registry.get(backend).name
        self._given_stream = None if stream is None else as_stream(stream, backend)
        self._observers = () if observe == () else observers.checked_observers(observe)
        if not environment.keys().isdisjoint(_SWITCHES):
            self._observers += self._observers_of_environment()
        self._retained: list[object] | None = None
        self._generators: tuple[object, ...] = ()
        self._home: Stream | None = self._given_stream
        """Where replays go, as the user knows it."""
        self._capture: Capture | None = None
        self._runner: Runner | None = None
        self._launch = None
        self._lost = ""
        """Why it is empty, if there is more to say than that nothing was captured."""
        ownership.graphs.add(ownership.Ref(self, ownership.forget))

    def _observers_of_environment(self) -> tuple[observers.Observer, ...]:
        """Return the observers that environment variables ask for."""
        return ()

    def _empty(self) -> None:
        """Be as before the first capture."""
        self._home = self._given_stream
        self._capture = self._runner = self._launch = None
        self._lost = ""

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Graph can't be pickled or copied: it belongs to its process; capture another one.")

    def __repr__(self) -> str:
        where = "" if self._home is None else f", {describe(self._home)}"
        return f"<accelerator_graph.Graph, {self.state}{where}>"

    @property
    def state(self) -> GraphState:
        """``"empty"``, ``"capturing"``, ``"captured"`` (no executable yet) or ``"ready"``."""
        if self._capture is not None:
            return "capturing"
        runner = self._runner
        if runner is None:
            return "empty"
        return "captured" if runner.executable is None else "ready"

    def _check(self, what: str) -> None:
        """Raise `GraphStateError` if an operation is not allowed in the present state."""
        if self._capture is None and self._runner is None:
            state: GraphState = "empty"
        else:
            state = self.state
        runner = self._runner
        fact = REFUSED[what].get(state) or (runner is not None and runner.refused.get(what))
        if fact:
            raise self._refusal(what, self._lost or fact)

    def _refusal(self, what: str, fact: str) -> GraphStateError:
        return GraphStateError(self._worded(what, f"Graph.{what}: {fact}."))

    def _worded(self, what: str, message: str) -> str:
        """Return the message of an error or a warning about `what`; a subclass may use other words."""
        return message

    def _runner_for(self, what: str) -> Runner:
        """Return what replays the graph; raise `GraphStateError` if the operation is not allowed now."""
        runner = self._runner  # first, since another thread may reset the graph
        self._check(what)
        assert runner is not None
        return runner

    def _kept(self, what: str) -> Captured:
        captured = self._runner_for(what).captured
        if captured is None:
            raise self._refusal(what, NOT_KEPT)
        return captured

    @property
    def _recorder(self) -> Any:
        """What has recorded the graph, or records it now: the backend, or a framework's recorder."""
        if self._capture is not None:
            return self._capture.recorder
        runner = self._runner_for("replay()")
        made = runner.captured or runner.executable
        assert made is not None
        return made.recorder

    def retain(self, obj: T) -> T:
        """Keep an object alive until the graph is reset, and return it.

        An object that is retained during a capture lives as long as the graph does that work: until `reset`,
        `update` or `recapture`.
        """
        capture = self._capture
        if capture is not None:
            capture.retained.append(obj)
        else:
            if self._retained is None:
                self._retained = []
            self._retained.append(obj)
            if self._runner is not None:
                self._runner.retained += (obj,)
        return obj

    def _after_fork(self) -> None:
        lost = {"empty": self._lost, "capturing": BEGUN_BEFORE_FORK}
        why = lost.get(self.state, CAPTURED_BEFORE_FORK)
        if self._runner is not None:
            self._runner.after_fork(CAPTURED_BEFORE_FORK)
        self._empty()
        self._lost = why

    def _options(self) -> dict[str, Any]:
        """Return arguments for another graph like this one. The mode is that of its capture.

        The stream is not among them: it may have been closed.
        """
        captured = None if self._runner is None else self._runner.captured
        return {
            "capture_error_mode": self._mode if captured is None else captured.mode,
            "backend": self._backend_name,
            "observe": [each for each in self._observers if not isinstance(each, observers.Lasting)],
        }

    # ---- from empty to ready, and back ----------------------------------------------------------

    def capture_end(self) -> None:
        """End the capture, and instantiate the graph unless it is kept.

        Raises
        ------
        GraphStateError
            No capture has begun, or another thread began it. Nothing was touched.
        CaptureError
            The capture did not become a graph. The graph is empty.
        DriverError
            No executable could be made. The graph is captured if it is kept, otherwise empty.

        Warns
        -----
        EmptyGraphWarning
            Nothing was captured.
        """
        capture = self._capture
        if capture is None:
            fact = REFUSED["capture_end()"][self.state]
            raise self._refusal("capture_end()", self._lost or fact)
        if capture._identity() is not interruptions.thread.identity or capture._token is NO_TOKEN:
            capture.check_thread("capture_end()")
        keep, kept = self._keeps != "executable", False
        try:
            self._runner = runner = Runner(capture.end(), keep, capture.place.hold, capture.lease)
            runner.beside = capture.stream is not self._home
            runner.retained = (*capture.retained, *(self._retained or ()))
            own = self._keep_observations(capture, runner) if capture.observations or self._observers else 0
            if capture.finished is not None:
                self._runner = runner = capture.finished(runner, empty=runner.counted == own)
            elif runner.counted == own:
                self._found_empty(capture.subject)
            kept = keep
            if self._keeps != "graph":
                self._make_ready(runner)
        except BaseException:
            if kept:
                self._capture = None
            else:
                self._forget_capture()
            raise
        self._capture = capture.guard = None
        capture.observations.clear()  # exceptions and observers may still hold the capture
        capture.retained = []
        ownership.drain()

    def _exit(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the capture, or abandon it if the body has raised."""
        try:
            if self._capture is not None:
                self.capture_end() if exc is None else self._abandon(exc)
            elif exc is None:
                raise GraphStateError(f"{self._lost or ENDED_INSIDE}.")
        except BaseException:
            self._recover()
            raise

    __exit__: Callable[..., None] = sure_exit(_exit)

    _where = staticmethod(where)

    def _begin(
        self,
        place: Where,
        pool: pools.PoolId | None,
        mode: CaptureMode,
        guard: object = None,
        kind: Callable[[Where, pools.PoolId | None, CaptureMode], Capture] = Capture,
    ) -> None:
        """Begin a capture, in a state that allows it. If this raises, nothing has begun.

        Parameters
        ----------
        place : Where
            Where it happens.
        pool : PoolId or None
            The pool to capture into, as `check_pool` returns it; None makes a new one.
        mode : str
            One of `MODES`.
        guard : object
            Abandons the capture if the end of its ``with`` block is skipped.
        kind : callable
            Makes it.
        """
        try:
            if ownership.due:
                ownership.drain()
            capture = self._capture = kind(place, pool, mode)
            capture.guard = guard
            if self._observers or observers.ambient.get():
                self._observe(capture)
            capture.begin(self, self._generators)
            self._home, self._lost = place.home, ""
        except BaseException:
            self._recover()
            raise

    def _observe(self, capture: Capture) -> None:
        """Let the observers begin."""
        for observer in (*observers.ambient.get(), *self._observers):
            observation = observer.begin(capture)
            if observation is not None:
                capture.observations.append(observation)

    def _keep_observations(self, capture: Capture, runner: Runner) -> int:
        """Keep what stays of the observers; return how many nodes they have recorded."""
        lasting = [each for each in self._observers if isinstance(each, observers.Lasting) and each]
        if any(getattr(each, "keeps_graph", False) for each in capture.observations):
            runner.keeps_graph = True
        runner.observe(*lasting, *observers.handed_on(capture.observations))
        return observers.own_nodes(capture.observations)

    def _found_empty(self, subject: str) -> None:
        """Warn that a capture recorded nothing."""
        assert self._home is not None
        message = f"{subject} recorded nothing: {why_empty(self._home._backend)}."
        warn_of_nothing(self._worded("empty capture", message), EmptyGraphWarning)

    def _capture_here(self, what: str) -> Capture:
        """Return the capture that is under way, if this thread may end it."""
        capture = self._capture
        assert capture is not None
        capture.check_thread(what)
        return capture

    def _forget_capture(self) -> None:
        """Leave no trace of a capture that failed. Can be repeated after an interrupt."""
        if self._capture is not None:
            try:
                self._capture.abandon()
            except Exception:  # a framework's, which does not come again
                self._capture.abandon()
                self._forgotten()
                raise
            self._forgotten()

    def _forgotten(self) -> None:
        if self._runner is not None:
            self._runner.refuse("the capture failed; capture again, and bind() again")
        self._empty()

    def _release(self) -> None:
        """Release what was captured, and everything that is kept for it. May be called again."""
        runner = self._runner
        if runner is not None:
            runner.end("the graph was reset; capture again, and bind() again")
            runner.lease.release()
        self._retained = None
        self._observers = tuple(each for each in self._observers if not isinstance(each, observers.Lasting))
        self._empty()

    def _recover(self) -> None:
        """Leave no trace of an unfinished capture of this thread."""
        if not isinstance(sys.exception(), RecursionError):
            self._forget_own_capture()
            return
        with _more_stack:  # abandoning a capture takes more frames than there are
            limit = sys.getrecursionlimit()
            sys.setrecursionlimit(limit + _FRAMES)
            try:
                self._forget_own_capture()
            finally:
                sys.setrecursionlimit(limit)

    def _forget_own_capture(self) -> None:
        if self._capture is not None and self._capture.is_here():
            self._forget_capture()

    def _abandon(
        self, exc: BaseException, then: str = "the graph is empty and can be captured again"
    ) -> None:
        """Leave no trace because the body raised; raise `CaptureError` if that broke the capture."""
        capture = self._capture_here("__exit__()")
        failure = capture.failure(exc)
        self._forget_capture()
        if failure is not None and isinstance(exc, Exception):
            raise failure from exc
        exc.add_note(f"{capture.subject} was abandoned; {then}.")

    def _make_ready(self, runner: Runner) -> None:
        """Make what there is not yet: the executable, and what `replay` launches without arguments."""
        if self._launch is not None and runner.launching.owner.executable is not None:
            return
        with runner.lock:  # several threads may be the first to replay, and a reset waits for this
            current = runner.launching.owner
            if current.executable is None:
                if current.until == "instantiate":
                    raise GraphStateError(f"{current.why}.")
                runner.instantiate()
            if self._launch is None:
                self._launch = runner.home_launcher()
