"""The first nodes of a pass's graph: copies to its static tensors, unless the caller's tensors are these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from ..._core.streams import Stream
from ...api import Graph
from ..arrays import ArrayType, array_type_of
from ..input_nodes import InputNodes


class CopyNodes(InputNodes):
    """The copies to static tensors that are nodes of a graph, which is captured beside a stream."""

    def __init__(self, stream: Stream, statics: Sequence[Any]) -> None:
        types = [array_type_of(each) for each in statics]
        known = [i for i, each in enumerate(types) if each is not None]
        leaves = list(statics)
        super().__init__(stream, leaves, leaves, cast("list[ArrayType]", types), known)
        self._enablers: list[Callable[[bool], None] | None] = []
        self._enabled: list[bool | None] = [True] * len(self._nodes)
        """Whether later runs make each copy; None if an interrupt has left that unknown."""

    def connect(self, graph: Graph) -> bool:
        """Find the nodes in the executable. Return False if their sources can't be changed."""
        if not super().connect(graph):
            return False
        runner = graph._runner
        for number in range(len(self._nodes)):
            assert runner is not None
            assert runner.captured is not None
            assert runner.executable is not None
            made = runner.captured.value, runner.executable.value
            setter = runner.captured.recorder.node_setter(*made, number)
            self._enablers.append(None if setter is None else setter.enable)
        return True

    def read_from(self, leaves: Sequence[Any]) -> None:
        """Have the next run read these tensors, and leave out the copies of those that are static ones."""
        for number, node in enumerate(self._nodes):
            leaf = leaves[node.argument]
            address = node.address(leaf)
            if address == node.static and self._enable(number, wanted=False):
                continue
            self._enable(number, wanted=True)
            if address != self._sources[number]:
                self._sources[number] = 0  # nobody knows, if this is interrupted
                if address != node.static and self._set(number, address):
                    self._sources[number] = address
                else:
                    self._setters[number](node.address(leaf.clone()))  # freed in the order of the stream

    def _enable(self, number: int, *, wanted: bool) -> bool:
        """Have later runs make a copy or leave it out; return False if that can't be changed."""
        enable = self._enablers[number]
        if enable is not None and self._enabled[number] is not wanted:
            self._enabled[number] = None
            enable(wanted)
            self._enabled[number] = wanted
        return enable is not None
