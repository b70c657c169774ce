"""What is verified where there is a graph already: the caller's, or that of a graphed function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..._arrays.signatures import Call
from ..._core import stream_stack
from ..._core.streams import Stream
from ..._graphed.recorded_call import RecordedCall
from ...api import Graph
from .places import Place
from .program import Program


class GraphProgram(Program):
    """A graph that the caller has captured, and the function that it has to agree with."""

    given_graph = True

    def __init__(
        self, g: Graph, reference: Callable[..., Any], inputs: Sequence[Any], outputs: Any, state: Any
    ) -> None:
        stream = g._runner_for("replay()").destination().held()
        super().__init__(reference, inputs, state, stream)
        self.graph = g
        self.outputs = self.arrays_of(outputs, "outputs")

    def capture(self) -> None:
        """Do nothing."""


class RecordedProgram(Program):
    """A call of a graphed function, and the graph that was captured for calls like it."""

    copies_arguments = True

    def __init__(
        self,
        function: Callable[..., Any],
        call: Call,
        names: Sequence[str],
        recorded: RecordedCall,
        stream: Stream,
    ) -> None:
        self._shape, self._values = call.shape, call.values
        self._recorded, self._call_leaves = recorded, call.leaves
        bound = function if not call.instance else partial(function, *call.instance)
        self._begin(bound, names, None, stream)
        self.name = getattr(function, "__qualname__", self.name)
        self.graph = recorded.graph
        self.outputs = self.arrays_of(recorded.result.in_place(call.leaves), "result")

    def capture(self) -> None:
        """Do nothing."""

    def replay(self) -> list[Place]:
        """Replay as the graphed function does, which copies arguments and results."""
        if self._captured:
            return super().replay()
        result = stream_stack.within(self.stream, self._run_recorded)
        return self.arrays_of(result, "result")

    def _run_recorded(self) -> Any:
        where = self._recorded.streams.ready(self.stream)
        assert where is not None
        return self._recorded.run(self._call_leaves, where)
