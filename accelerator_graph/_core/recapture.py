"""Captures into a graph that goes on replaying meanwhile: `Graph.recapture`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from .._interpreter.sure_exit import if_skipped, sure_exit
from .capture_plan import CapturePlan
from .lifecycle import Lifecycle
from .side_streams import beside_current
from .stream_owners import FrameworkCurrent
from .update import GraphUpdate, give, own_work

_THEN = "the graph goes on doing its former work"


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

    def __init__(self, graph: Lifecycle, fresh: Lifecycle) -> None:
        self._graph = graph
        self._fresh = fresh
        self.update = None

    def __enter__(self) -> Self:
        graph, fresh = self._graph, self._fresh
        runner = graph._runner_for("recapture()")
        fresh._check("capture_begin()")
        fresh._guard = if_skipped(self, fresh._recover)
        stream, home = None, None
        if graph._given_stream is None:
            if runner.beside:
                stream, home = beside_current(graph._backend_name, wait=False)
            elif not isinstance(runner.home._owner, FrameworkCurrent):
                stream = runner.home
        fresh._enter(CapturePlan(stream, home, prepare=True))
        assert fresh._home is not None
        where = fresh._home._backend, fresh._home.device
        if where != (runner.home._backend, runner.home.device):
            fresh._recover()
            raise ValueError(
                f"Graph.recapture(): the graph is on device {runner.home.device} of backend "
                f"{runner.home.backend!r}, and the current stream is on device {where[1]} of backend "
                f"{where[0].name!r}; make a stream of the graph's device current."
            )
        return self

    @sure_exit
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        graph, fresh = self._graph, self._fresh
        try:
            if exc is not None and fresh._capture is not None:
                fresh._abandon(exc, _THEN)
            else:
                fresh.__exit__(kind, exc, trace)
            if exc is None:
                graph._check("recapture()")
                self.update = give(own_work(fresh), graph, "recapture()")
        except BaseException:
            fresh._recover()
            raise
        finally:
            fresh._empty()
