"""Copies to static inputs that are nodes of the graph: a call only changes where they read from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .._core.streams import Stream
from ..api import Graph
from ..backends.base import Recorder
from ..errors import DriverError
from .arrays import ArrayType
from .signature import Leaves


@dataclass(frozen=True, eq=False, slots=True)
class InputNode:
    """A copy to the static array of one argument."""

    index: int
    """Of the argument, among the arrays of a call."""
    address: Callable[[Any], int]
    static: int
    """The address of the static array."""
    nbytes: int
    array_type: ArrayType


class InputNodes:
    """The first nodes of a graph, each a copy from the caller's array to the static one.

    Parameters
    ----------
    stream : Stream
        Beside it the graph is captured.
    leaves, statics : sequence of arrays
        The arrays of the call that is captured, and the static ones.
    array_types : sequence of ArrayType
        Their types.
    indices : sequence of int
        Which of them are copied.
    """

    def __init__(
        self,
        stream: Stream,
        leaves: Leaves,
        statics: Sequence[Any],
        array_types: Sequence[ArrayType],
        indices: Sequence[int],
    ) -> None:
        self._nodes: list[InputNode] = []
        if type(stream._backend).source_setter is not Recorder.source_setter:
            self._nodes = [
                InputNode(i, address, address(statics[i]), nbytes, array_types[i])
                for i in indices
                if (address := array_types[i].address) is not None
                and (nbytes := _same_bytes(leaves[i], statics[i]))
                and address(leaves[i])
            ]
        self.indices = {node.index for node in self._nodes}
        """The arguments that are copied by nodes."""
        self._sources = [0] * len(self._nodes)
        self._setters: list[Callable[[int], None]] = []

    def record(self, stream: Stream, leaves: Leaves) -> None:
        """Record the copies, as the first work of a capture."""
        for node in self._nodes:
            source = node.address(leaves[node.index])
            stream._backend.copy(stream._native, node.static, source, node.nbytes)

    def connect(self, graph: Graph) -> bool:
        """Find the nodes in the executable. Return False if their sources can't be changed."""
        if not self._nodes:
            return True
        graph.instantiate()
        runner = graph._runner
        assert runner is not None
        assert runner.captured is not None
        assert runner.executable is not None
        made = runner.captured.value, runner.executable.value
        found = [runner.captured.recorder.source_setter(*made, node) for node in range(len(self._nodes))]
        self._setters = [each for each in found if each is not None]
        return len(self._setters) == len(self._nodes)

    def read_from(self, leaves: Leaves) -> None:
        """Have the next run read these arrays."""
        sources = self._sources
        for k, node in enumerate(self._nodes):
            leaf = leaves[node.index]
            address = node.address(leaf)
            if address != sources[k]:
                sources[k] = 0  # not known, if this is interrupted
                if address == 0 or address == node.static or not self._set(k, address):
                    address = self._copied(k, leaf)
                sources[k] = address

    def _set(self, k: int, address: int) -> bool:
        try:
            self._setters[k](address)
        except DriverError:  # memory of another kind than that of the first call
            return False
        return True

    def _copied(self, k: int, leaf: Any) -> int:
        """Have a run read a copy of an array whose memory it can't read. Return 0: it is used once."""
        node = self._nodes[k]
        copy = node.array_type.empty_like(leaf)  # freed in the order of the stream
        node.array_type.assign(copy, leaf)
        self._setters[k](node.address(copy))
        return 0


def _same_bytes(x: Any, y: Any) -> int:
    """Return how many bytes two arrays have; 0 if these have gaps, or are in another order in the other."""
    if hasattr(x, "stride"):
        steps, others, size = x.stride(), y.stride(), 1
    else:
        steps, others, size = x.strides, y.strides, x.dtype.itemsize
    if tuple(steps) != tuple(others):
        return 0
    for step, length in sorted(zip(steps, x.shape, strict=True)):
        if length == 1:
            continue
        if step != size:
            return 0
        size *= length
    return int(x.nbytes)
