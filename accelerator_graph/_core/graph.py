"""The machinery under `Graph`: its arguments, its state, and the way to captured, to ready, and back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from .._interpreter import process
from .._interpreter.outside import boolean, is_unset
from .._interpreter.sure_exit import sure_exit
from ..backends import registry
from ..errors import EmptyGraphWarning, GraphStateError
from . import ownership, pools, states, switches
from .call_site import warn_of_nothing, why_empty
from .capture import Capture, CaptureMode, CapturePlan, check_mode
from .current_stream import stream_to_capture
from .replay import Runner
from .states import GraphState
from .streams import as_stream, describe

if TYPE_CHECKING:
    from ..interop.base import Collective
    from .capture import Captured, Observer
    from .liveness import Watchlist
    from .progress import Progress

T = TypeVar("T")

_VARIABLES = switches.VARIABLES.values()

_FRAMES = 200
"""The frames that abandoning a capture may take, with frameworks that take part."""

_more_stack = RLock()
"""Held while the recursion limit, which all threads share, is higher."""


def _after_fork() -> None:
    global _more_stack
    _more_stack = RLock()


process.after_fork(_after_fork)


class BaseGraph:
    """A graph's arguments, its capture in progress, and whatever replays the result.

    See `accelerator_graph.api.Graph` for the parameters.
    """

    __slots__ = (
        "__weakref__",
        "_backend_name",
        "_capture",
        "_collectives",
        "_debug",
        "_diagnose",
        "_finds_inputs",
        "_generators",
        "_given_stream",
        "_graph_pool",
        "_guard",
        "_home",
        "_keep_graph",
        "_launch",
        "_lost",
        "_mode",
        "_progress",
        "_retained",
        "_runner",
        "_shows_progress",
        "_watched",
    )

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
        check_input_liveness: bool | None = None,
        diagnose: bool | None = None,
        progress: bool = False,
    ) -> None:
        if not isinstance(keep_graph, bool):
            raise TypeError(f"keep_graph must be True or False, not {keep_graph!r}; a pool goes to pool=.")
        if progress is not False:
            boolean(progress, "progress")
        if pool is not None:
            pools.check_pool(pool)
        self._keep_graph = keep_graph
        self._shows_progress = progress
        self._debug = False
        self._graph_pool = pool
        self._mode = "default" if capture_error_mode == "default" else check_mode(capture_error_mode)
        self._backend_name = None if backend is None else registry.get(backend).name
        self._given_stream = None if stream is None else as_stream(stream, backend)
        self._finds_inputs = self._diagnose = False
        if check_input_liveness is not None or diagnose is not None or not is_unset(*_VARIABLES):
            self._finds_inputs = switches.is_on(check_input_liveness, switches.LIVENESS)
            self._diagnose = switches.is_on(diagnose, switches.DIAGNOSE)
        self._watched: Watchlist | None = None
        self._retained: list[object] | None = None
        self._generators: tuple[object, ...] = ()
        self._empty()
        ownership.track(self)

    def _empty(self) -> None:
        """Be as before the first capture."""
        self._home = self._given_stream  # where replays go, as the user knows it
        self._capture: Capture | None = None
        self._guard: object = None
        self._runner: Runner | None = None
        self._launch = None
        self._collectives: tuple[Collective, ...] = ()
        self._progress: Progress | None = None
        self._lost = ""  # why it is empty, if there is more to say than that nothing was captured

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
        fact = states.REFUSED[what].get(state)
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
            raise self._refusal(what, states.NOT_KEPT)
        return captured

    @property
    def _recorded(self) -> Any:
        """What the recorder has made: the capture under way, the graph if it is kept, else the executable."""
        if self._capture is not None:
            return self._capture._token
        runner = self._runner_for("replay()")
        made = runner.captured or runner.executable
        assert made is not None
        return made.value

    def retain(self, obj: T) -> T:
        """Keep an object alive until the graph is reset, and return it.

        An object that is retained during a capture lives as long as the graph does that work: until `reset`,
        `update` or `recapture`.
        """
        if self._retained is None:
            self._retained = []
        self._retained.append(obj)
        return obj

    def _after_fork(self) -> None:
        lost = {"empty": self._lost, "capturing": states.BEGUN_BEFORE_FORK}
        why = lost.get(self.state, states.CAPTURED_BEFORE_FORK)
        if self._runner is not None:
            self._runner.after_fork(states.CAPTURED_BEFORE_FORK)
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
            "check_input_liveness": self._finds_inputs,
            "diagnose": self._diagnose,
            "progress": self._shows_progress,
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
            It could not be instantiated. The graph is captured if it is kept, else empty.

        Warns
        -----
        EmptyGraphWarning
            Nothing was captured.
        """
        if self._capture is None:
            self._check("capture_end()")
        self._end()

    def _exit(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._capture is not None:
                self.capture_end() if exc is None else self._abandon(exc)
            elif exc is None:
                raise GraphStateError(f"{self._lost or states.ENDED_INSIDE}.")
        except BaseException:
            self._recover()
            raise

    @sure_exit
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit(kind, exc, trace)

    def _begin(self, plan: CapturePlan) -> None:
        """Begin a capture, in a state that allows it. If this raises, `_recover` has to follow."""
        given = self._graph_pool if plan.pool is None else plan.pool
        pool = None if given is None else pools.check_pool(given)
        mode = self._mode if plan.mode is None else check_mode(plan.mode)
        finds_inputs = self._finds_inputs if plan.finds_inputs is None else plan.finds_inputs
        ownership.drain()
        target = plan.stream or self._given_stream or stream_to_capture(self._backend_name)
        if target._closed or target._forks != ownership.forks:
            target._check()
        home = plan.home or target
        hold = plan.default or home.held()
        lease = pools.Lease(pool, target._backend, target._device)
        capture = self._capture = Capture(self, target, hold, lease, len(self._retained or ()))
        if self._shows_progress:
            from .progress import Progress

            capture.progress = Progress(target._backend, target._native)
        if finds_inputs and self._watched is None:
            from .liveness import Watchlist

            self._watched = Watchlist()
        used = None if self._watched is None else self._watched.begin()
        prepare = home if plan.prepare else None
        if not (prepare is None or home is target or plan.default is not None) and home._is_capturing():
            prepare = target
        uses = used if finds_inputs else None
        capture.frameworks = plan.frameworks
        observer = self._observer() if self._diagnose or switches.diagnosing.get() else None
        capture.begin(mode, prepare, plan.idle, self._generators, uses, observer)
        self._home, self._lost = home, ""

    def _observer(self) -> Observer | None:
        """Return what is to watch the next capture, which is to be diagnosed."""
        return None

    def _end(self) -> None:
        """End the capture, in a state that allows it."""
        capture = self._capture
        assert capture is not None
        if capture._identity() is not process.thread.identity:
            capture.check_thread("capture_end()")
        check = self._watched.check if self._watched else None  # an empty list has nothing to check
        keep = self._keep_graph or self._debug
        kept = False
        try:
            self._runner = runner = Runner(capture.end(), keep, capture.home, capture.lease, check)
            self._collectives, self._progress = tuple(capture.collectives), capture.progress
            runner.beside = capture.stream is not self._home
            if self._retained:
                runner.retained = tuple(self._retained[capture.retained :])
                del self._retained[capture.retained :]
            if capture.observation is not None:
                capture.observation.succeeded()
            own = 0 if capture.progress is None else capture.progress.nodes
            if runner.counted == own:
                self._found_empty(capture.subject)
            kept = keep
            if not self._keep_graph:
                self._instantiate(runner)
        except BaseException:
            if kept:
                self._capture = self._guard = None
            else:
                self._forget_capture()
            raise
        self._capture = self._guard = None
        ownership.drain()

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
                self._forgotten(self._capture)
                raise
            self._forgotten(self._capture)

    def _forgotten(self, capture: Capture) -> None:
        if self._retained:
            del self._retained[capture.retained :]
        if self._watched is not None:
            self._watched.abandon()
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
        self._watched = None
        self._empty()

    def _enter(self, plan: CapturePlan) -> None:
        try:
            self._begin(plan)
        except BaseException:
            self._recover()
            raise

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

    def _instantiate(self, runner: Runner) -> None:
        try:
            runner.instantiate()
            with runner.lock:  # another thread may reset the graph, which waits for this
                if self._launch is None:
                    self._launch = runner.home_launcher()
        except BaseException:
            if runner.executable is None:
                self._launch = None
            raise

    def _make_ready(self, runner: Runner) -> None:
        """Instantiate the graph if that has not been done."""
        if runner.executable is None or self._launch is None:
            with runner.lock:  # several threads may be the first to replay
                if runner.dropped:
                    raise GraphStateError(f"{runner.dropped}.")
                if runner.executable is None:
                    self._instantiate(runner)
                elif self._launch is None:  # something was raised between the two
                    self._launch = runner.home_launcher()
