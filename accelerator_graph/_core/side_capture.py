"""Captures on a side stream: `accelerator_graph.graph`."""

from __future__ import annotations

from types import TracebackType
from typing import Generic, TypeVar

from .._interpreter.integers import boolean
from .._interpreter.sure_exit import if_skipped, sure_exit
from . import pools, streams
from .capture_plan import CaptureMode, CapturePlan, check_mode
from .lifecycle import Lifecycle
from .side_streams import beside_current

G = TypeVar("G", bound=Lifecycle)


class graph(Generic[G]):
    """Capture into a graph on a side stream, as `torch.cuda.graph` does.

    Parameters
    ----------
    g : Graph
        The graph to capture into.
    pool, capture_error_mode
        As in `Graph.capture_begin`; None keeps the graph's own.
    stream : stream, optional
        The stream to capture; by default the graph's own if it was made with one, else a side stream of
        the thread, which waits for the current one.
    prepare : bool
        Synchronise the current stream before the capture, or the captured one if it was named.

    Notes
    -----
    ``with graph(g):`` returns the graph. It fails and cleans up like ``with g:``. If a side stream was made,
    replays go to the stream that was current, if there was one.
    """

    def __init__(
        self,
        g: G,
        pool: pools.AnyPool | None = None,
        stream: object = None,
        capture_error_mode: CaptureMode | None = None,
        *,
        prepare: bool = True,
    ) -> None:
        if not isinstance(g, Lifecycle):
            raise TypeError(f"graph: the argument must be an accelerator_graph.Graph, not {g!r}.")
        if pool is not None:
            pools.check_pool(pool)
        if capture_error_mode is not None:
            check_mode(capture_error_mode)
        self._graph = g
        stream = None if stream is None else streams.as_stream(stream, g._backend_name)
        self._stream = stream
        self._pool = pool
        self._mode = capture_error_mode
        self._prepare = prepare is True or boolean(prepare, "graph: prepare")

    def __enter__(self) -> G:
        g = self._graph
        if g._capture is not None or g._runner is not None:
            g._check("capture_begin()")
        g._guard = if_skipped(self, g._recover)
        plan = CapturePlan()
        plan.stream, plan.pool, plan.mode, plan.prepare = self._stream, self._pool, self._mode, self._prepare
        if plan.stream is None and g._given_stream is None:
            plan.stream, plan.home, known = beside_current(g._backend_name, wait=not self._prepare)
            if known is not None:
                plan.default, plan.frameworks = known.stream, known.taking_part
        g._enter(plan)
        return g

    @sure_exit
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._graph._exit(kind, exc, trace)
