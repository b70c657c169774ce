"""A captured call of a graphed function, which is replayed on the contents of other arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
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


@dataclass(eq=False)
class RecordedCall:
    """A captured graph, with what is needed to replay it for other calls with its signature."""

    graph: Graph
    pool: PoolId
    inputs: StaticInputs
    result: Result
    streams: ReplayStreams
    order: CallOrder
    signature: Hashable
    used: int = 0
    """When the graph was replayed last, counted in replays of the function."""
    closed: bool = False

    def is_on_device_of(self, stream: Stream) -> bool:
        """Return True if the graph was captured on a stream's device."""
        captured = self._captured_stream()
        return captured._backend is stream._backend and captured.device == stream.device

    def _captured_stream(self) -> Stream:
        assert self.graph.stream is not None
        return self.graph.stream

    def run(self, leaves: Leaves, where: ReplayStream) -> Any:
        """Copy the arrays of a call in, replay, and return the result of the call."""
        stream = where.stream
        if where.entered:
            result = stream_stack.within(stream, self._enqueue, leaves, stream, where.launch)
        else:
            result = self._enqueue(leaves, stream, where.launch)
        if where.marked:
            self.order.mark_end()
        return result

    def _enqueue(self, leaves: Leaves, stream: Stream, launch: Callable[[], None]) -> Any:
        self.inputs.copy_in(leaves, stream)
        launch()
        self.inputs.copy_back(leaves, stream)
        return self.result.for_call(leaves, stream)

    def close(self) -> None:
        """Give back the graph, once the calls so far are done."""
        self.closed = True
        side = side_of(self._captured_stream())  # no other thread captures on this stream
        self.order.wait(side)
        side.synchronize()
        self.graph.reset()
