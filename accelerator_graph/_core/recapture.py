"""Captures into a graph that goes on replaying meanwhile: `Graph.recapture`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from .._interpreter.sure_exit import if_skipped, sure_exit
from .capture import CapturePlan
from .current_stream import stream_to_capture
from .lifecycle import Lifecycle
from .side_streams import beside_current
from .streams import FrameworkCurrent
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
        self.update = None
        stream, home = graph._given_stream, None
        if stream is None and runner.beside:
            stream, home, _ = beside_current(graph._backend_name, wait=False)
        elif stream is None and isinstance(runner.home._owner, FrameworkCurrent):
            stream = stream_to_capture(graph._backend_name)
        elif stream is None:
            stream = runner.home
        where, wanted = ((each._backend, each.device) for each in (stream, runner.home))
        if where != wanted:
            raise ValueError(
                f"Graph.recapture(): the graph is on device {wanted[1]} of backend {wanted[0].name!r}, but "
                f"the current stream on device {where[1]} of backend {where[0].name!r}; make a stream of the "
                "graph's device current."
            )
        fresh._guard = if_skipped(self, fresh._recover)
        plan = CapturePlan()
        plan.stream, plan.home, plan.prepare = stream, home, True
        plan.pool = runner.lease.shown if fresh._graph_pool is None else None
        fresh._enter(plan)
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
                runner = graph._runner_for("recapture()")
                self.update = give(own_work(fresh), graph, runner, "recapture()")
        except BaseException:
            fresh._recover()
            raise
        finally:
            fresh._empty()
