"""The graph of a pass, whose first nodes may be the copies to its static tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..._arrays.arrays import array_type_of
from ..._core.pools import PoolId
from ..._core.streams import Stream
from ...api import Graph, graph
from ...backends.base import Recorder
from ...errors import UnsupportedError
from ..input_nodes import InputNodes


class CapturedPass:
    """The graph of one pass, captured into a pool beside a stream."""

    def __init__(self, side: Stream, pool: PoolId) -> None:
        self._side = side
        self._pool = pool
        self.graph: Graph = Graph()
        self.nodes: InputNodes | None = None
        """The copies that are nodes of the graph, if there are any."""

    def capture(self, run: Callable[[], None]) -> None:
        """Capture a pass whose static tensors are filled before each replay."""
        with graph(self.graph, self._pool, self._side):
            run()

    def capture_with_copies(self, run: Callable[[], None], targets: Sequence[Any], *, again: bool) -> bool:
        """Capture a pass and copies to its static tensors; return False if these can't be changed.

        Then the pass is captured without them, if it can run `again`.
        """
        statics = [each.detach() for each in targets]
        types = {i: array_type_of(each) for i, each in enumerate(statics)}
        known = {i: each for i, each in types.items() if each is not None}
        nodes = InputNodes(self._side, statics, statics, known, [*known])
        sources = [each.clone() if i in nodes.arguments else each for i, each in enumerate(statics)]
        self.graph = Graph(keep_graph=True)
        with graph(self.graph, self._pool, self._side):
            nodes.record(self._side, sources)
            run()
        runner = self.graph._runner
        assert runner is not None
        assert runner.captured is not None
        settable = type(runner.captured.recorder).node_setter is not Recorder.node_setter
        if settable and nodes.connect(self.graph):
            self.nodes = nodes if nodes.arguments else None
            return True
        if nodes.arguments:
            if not again:
                raise UnsupportedError("the sources of its copies can't be changed; pass inputs='copy'.")
            self.graph.reset()
            self.graph = Graph()
            self.capture(run)
        return False
