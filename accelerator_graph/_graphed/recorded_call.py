"""A captured call of a graphed function, which is replayed on the contents of other arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from .._core import stream_stack
from .._core.side_streams import side_of
from .call_order import CallOrder
from .replay_streams import ReplayStream, ReplayStreams
from .results import Result
from .signature import Leaves
from .static_inputs import StaticInputs

if TYPE_CHECKING:
    from .._core.pools import PoolId
    from .._core.streams import Stream
    from ..api import Graph


class RecordedCall:
    """A captured graph, with its static arrays.

    Parameters
    ----------
    graph : Graph
        The graph.
    pool : PoolId
        The memory pool that it was captured into.
    inputs : StaticInputs
        What the graph reads.
    result : Result
        What the function returned in the capture.
    streams : ReplayStreams
        Where the graph is replayed.
    order : CallOrder
        The order of the calls of the same function.
    signature : Hashable
        What all calls of the graph have in common.

    Attributes
    ----------
    used : int
        When it was replayed last, counted in replays of the function.
    closed : bool
        Whether the graph is gone.
    """

    def __init__(
        self,
        graph: Graph,
        pool: PoolId,
        inputs: StaticInputs,
        result: Result,
        streams: ReplayStreams,
        order: CallOrder,
        signature: Hashable,
    ) -> None:
        self._graph = graph
        self.pool = pool
        self._inputs = inputs
        self._result = result
        self._streams = streams
        self._order = order
        self.signature = signature
        self.used = 0
        self.closed = False

    def is_on_device_of(self, stream: Stream) -> bool:
        """Return True if the graph was captured on a stream's device."""
        captured = self._captured_stream()
        return captured._backend is stream._backend and captured.device == stream.device

    def _captured_stream(self) -> Stream:
        assert self._graph.stream is not None
        return self._graph.stream

    def ready(self, current: Stream | None = None) -> ReplayStream | None:
        """Return the stream of a call; see `ReplayStreams.ready`."""
        return self._streams.ready(current)

    def run(self, leaves: Leaves, where: ReplayStream) -> Any:
        """Copy the arrays of a call in, replay, and return the result of the call."""
        stream = where.stream
        if where.entered:
            result = stream_stack.within(stream, self._enqueue, leaves, stream, where.launch)
        else:
            result = self._enqueue(leaves, stream, where.launch)
        if where.marked:
            self._order.mark_end()
        return result

    def _enqueue(self, leaves: Leaves, stream: Stream, launch: Callable[[], None]) -> Any:
        self._inputs.copy_in(leaves, stream)
        launch()
        self._inputs.copy_back(leaves, stream)
        return self._result.for_call(leaves, stream)

    def close(self) -> None:
        """Give back the graph, once the calls so far are done."""
        self.closed = True
        side = side_of(self._captured_stream())  # no other thread captures on this stream
        self._order.wait(side)
        side.synchronize()
        self._graph.reset()
