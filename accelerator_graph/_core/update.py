"""Other work for a graph, from another graph or another capture: in place, or by a new executable."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from .._interpreter.interruptions import if_skipped, sure_exit
from ..backends.base import Capability, Misfit
from ..errors import DriverError, UnsupportedError
from .capture import Captured
from .graph import REFUSED, BaseGraph
from .launching import instantiated
from .observers import Lasting, handed_on, recorded_at
from .ownership import drain
from .pools import Lease
from .replay import NOT_KEPT, Changing, Runner
from .streams import FrameworkCurrent, describe

if TYPE_CHECKING:
    from .launching import Executable


_THEN = "the graph goes on doing its former work"


class GraphUpdate(NamedTuple):
    """How a graph got other work. ``str()`` is a sentence."""

    in_place: bool
    """True if the executable was changed, False if a new one was made."""
    reason: str = ""
    """Why it was not changed in place: a clause."""
    node: int | None = None
    """The node in question, by its number in `Graph.describe`; None if it is not one node."""

    def __str__(self) -> str:
        if self.in_place:
            return "The executable was updated in place."
        where = "" if self.node is None else f"at node {self.node}, "
        return f"A new executable was made: {where}{self.reason}."


class Lent(Captured):
    """A graph that another graph owns, or its framework, as the backend knows it."""

    __slots__ = ()

    is_lent: ClassVar[bool] = True

    def act(self) -> None:
        """Leave it to its owner."""


class Work(NamedTuple):
    """The work of a graph, and the objects that must live as long as the graph does this work."""

    captured: Captured
    lease: Lease
    retained: tuple[object, ...]
    observations: tuple[Any, ...]
    """The observers' objects that stay with the work."""


def own_work(graph: BaseGraph) -> Work:
    """Return the work of a kept graph that will not do it itself any more."""
    runner = graph._runner_for("update()")
    return _work(runner, runner.kept(), runner.lease)


def shared_work(runner: Runner, captured: Captured, what: str) -> Work:
    """Return the work of a graph for another graph to do as well.

    Raises
    ------
    UnsupportedError
        Only the framework that recorded it can replay it, as far as is known.
    """
    if not captured.is_lent:
        native = captured.lent()
        if native is None:
            raise UnsupportedError(
                f"Graph.{what}: this work may draw random numbers, so only the framework that recorded it "
                "can replay it; replay the graph once before, or capture the work again with recapture()."
            )
        lent = Lent(captured.backend, captured.backend, native, captured)
        lent.labels, lent.mode, lent.count = captured.labels, captured.mode, captured.count
        captured = lent
    work = _work(runner, captured, runner.lease.shared())
    runner.refuse_in_a_change(what)  # a signal handler may have reset it
    return work


def _work(runner: Runner, captured: Captured, lease: Lease) -> Work:
    retained = {id(each): each for each in runner.retained}  # each one once
    return Work(captured, lease, tuple(retained.values()), handed_on(runner.observations))


def check_shareable(captured: Captured, what: str) -> None:
    """Raise `UnsupportedError` if two graphs can't have executables of this one."""
    if captured.is_lent and not captured.allows_another():
        raise UnsupportedError(
            f"Graph.{what}: the work allocates or frees memory or has conditional nodes, so only one graph "
            "at a time can have an executable of it; capture it again with recapture()."
        )


def give(work: Work, graph: BaseGraph, runner: Runner, what: str) -> GraphUpdate:
    """Let a graph that was captured do other work from now on.

    If that fails, the graph does what it did before. If nobody can know what its executable would do, the
    executable is given up, and a note of the error says that.
    """
    with runner.lock, Changing(runner, what):
        intact, taken = True, None
        try:
            counted = work.captured.count
            misfit, values = _in_place(runner, work.captured)
            if values:
                intact = False
                try:
                    with runner.launching:
                        misfit = work.captured.backend.update(*values)
                    intact = misfit is not None
                except (DriverError, UnsupportedError) as error:
                    misfit = Misfit(str(error).rstrip("."))
            if misfit is None:
                executable = runner.launchable()
            else:
                check_shareable(work.captured, what)
                executable = instantiated(work.captured, runner.home, work.lease, keep=runner.keeps_graph)
            taken = graph, runner, work, executable, misfit is not None, counted
            _take(*taken)
        except BaseException as error:
            if taken is not None:  # an interrupt
                _take(*taken)
            elif not intact:
                runner.refuse("an update of the graph has failed; call instantiate() or replay()")
                graph._launch = None
                error.add_note(
                    "The executable may have been changed in part, so the graph has none now; call "
                    "instantiate() or replay() to make one."
                )
            raise
        graph._make_ready(runner)
    drain()
    if misfit is None:
        return GraphUpdate(True)
    where = "" if misfit.node is None else recorded_at(work.observations, misfit.node)
    return GraphUpdate(False, f"{misfit.reason}{where}", misfit.node)


def _take(
    graph: BaseGraph, runner: Runner, work: Work, executable: Executable, new: bool, counted: int | None
) -> None:
    """Take over work for which there is an executable, perhaps a new one. May be called again."""
    if new:
        runner.exchange(executable)
    else:
        executable.changes = executable.measured = None
    runner.captured = work.captured if runner.keeps_graph else None
    runner.lease, runner.retained, runner.counted = work.lease, work.retained, counted
    runner.observe(*(each for each in runner.observations if isinstance(each, Lasting)), *work.observations)


def _in_place(runner: Runner, new: Captured) -> tuple[Misfit | None, list[Any]]:
    """Return the executable, the former graph and the new one; or why it can't be updated in place."""
    old = runner.captured
    if runner.executable is None:
        return Misfit("the graph had no executable"), []
    if old is None:
        return Misfit("the graph was not kept, so its work can't be compared"), []
    if runner.executable.changes is not None and runner.executable.changes.disables:
        return Misfit("set_node() has disabled a node of the executable"), []
    if Capability.UPDATE not in new.backend.capabilities(runner.home.device):
        return Misfit(f"backend {new.backend.name!r} does not update executables"), []
    values = [each.lent() for each in (runner.executable, old, new)]
    if None in values:
        return Misfit("the framework that recorded the work may draw random numbers in it"), []
    return None, values


# what `Graph` uses is last: a signal handler may come in the middle of the first import
class Recapture:
    """A capture whose work a graph takes over when it has ended well: `Graph.recapture`.

    Parameters
    ----------
    graph : Graph
        The graph.
    fresh : Graph
        An empty graph, which is captured into.
    """

    __slots__ = ("__weakref__", "_fresh", "_graph", "update")

    update: GraphUpdate | None
    """How the graph got the work; None until the block has ended well."""

    def __init__(self, graph: BaseGraph, fresh: BaseGraph) -> None:
        self._graph = graph
        self._fresh = fresh
        self.update = None

    def __repr__(self) -> str:
        return f"<recapture of {self._graph!r}>"

    def __enter__(self) -> Self:
        graph, fresh = self._graph, self._fresh
        runner = graph._runner_for("recapture()")
        fresh._check("capture_begin()")
        self.update = None
        stream = graph._given_stream
        if stream is None and not runner.beside and not isinstance(runner.home._owner, FrameworkCurrent):
            stream = runner.home
        place = graph._where(stream, graph._backend_name, side=runner.beside, prepare=True)
        where, wanted = ((each._backend, each.device) for each in (place.stream, runner.home))
        if where != wanted:
            raise ValueError(
                f"Graph.recapture(): the graph is on device {wanted[1]} of backend {wanted[0].name!r}, but "
                f"the current stream on device {where[1]} of backend {where[0].name!r}; make a stream of the "
                "graph's device current."
            )
        guard = if_skipped(self, fresh._recover)
        fresh._begin(place, fresh._graph_pool or runner.lease.shown, fresh._mode, guard)
        return self

    @sure_exit
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        graph, fresh, capture = self._graph, self._fresh, self._fresh._capture
        if capture is not None and not capture.is_here():
            if not capture.thread_lives():  # nobody else can end it
                fresh._forget_capture()
            capture.check_thread("recapture()")
        try:
            if exc is not None and capture is not None:
                fresh._abandon(exc, _THEN)
            else:
                fresh.__exit__(kind, exc, trace)
            if exc is None:
                runner = graph._runner_for("recapture()")
                self.update = give(own_work(fresh), graph, runner, "recapture()")
        except BaseException:
            fresh._recover()
            raise
        finally:
            fresh._empty()


def clone(graph: BaseGraph, copy: BaseGraph) -> None:
    """Let an empty graph, which keeps graphs, do the work of a kept one."""
    captured, runner = graph._kept("clone()"), graph._runner_for("clone()")
    work = shared_work(runner, captured, "clone()")
    check_shareable(work.captured, "clone()")
    made = Runner(work.captured, True, runner.home.held(), work.lease)
    made.beside, made.retained = runner.beside, work.retained
    made.observe(*work.observations)
    copy._home, copy._runner = graph._home, made


def update(graph: BaseGraph, other: BaseGraph) -> GraphUpdate:
    """Let a graph do the work of another one: `Graph.update`."""
    runner = graph._runner_for("update()")
    if not isinstance(other, BaseGraph):
        raise TypeError(f"Graph.update(): the argument must be an accelerator_graph.Graph, not {other!r}.")
    if other is graph:
        raise ValueError("Graph.update(): a graph can't be updated with itself; pass another one.")
    its = other._runner
    captured = None if its is None else its.captured
    refused = "" if its is None else its.refused.get("update()", "")
    if its is None or captured is None or refused:
        fact = REFUSED["update()"].get(other.state) or refused or NOT_KEPT
        raise graph._refusal("update()", f"the other graph can't be used: {fact}")
    home, there = runner.home, its.home
    if (home._backend, home.device) != (there._backend, there.device):
        raise ValueError(
            f"Graph.update(): the graphs are of the {describe(home)} and the {describe(there)}, and both "
            "must be of one backend and device."
        )
    return give(shared_work(its, captured, "update()"), graph, runner, "update()")
