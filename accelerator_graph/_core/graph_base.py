"""The arguments of a graph, and the operations that its present state allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from .._interpreter.outside import boolean, is_unset
from ..backends import registry
from ..errors import GraphStateError
from . import ownership, pools, states, switches
from .capture import CaptureMode, check_mode
from .states import GraphState
from .streams import as_stream, describe

if TYPE_CHECKING:
    from ..interop.base import Collective
    from .capture import Capture, Captured
    from .liveness import Watchlist
    from .progress import Progress
    from .replay import Runner

T = TypeVar("T")

_VARIABLES = switches.VARIABLES.values()


class GraphBase:
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
