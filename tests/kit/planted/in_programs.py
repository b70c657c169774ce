"""Backends that do wrong with some programs, for random ones to find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from accelerator_graph.backends._cpu.graph import Executable, Graph, Node
from accelerator_graph.backends.cpu import CpuBackend


class IgnoresDependencies(CpuBackend):
    """A run keeps the order of each branch, and none between branches."""

    def instantiate(self, graph: Graph) -> Executable:
        nodes = graph.nodes
        return super().instantiate(Graph([node._replace(after=_own_branch(node, nodes)) for node in nodes]))


def _own_branch(node: Node, nodes: Any) -> tuple[int, ...]:
    return tuple(other for other in node.after if nodes[other].branch == node.branch)


class ReplaysStaleParameters(CpuBackend):
    """A graph of the same shape as the first one of its stream replays with that one's parameters."""

    def open(self) -> None:
        super().open()
        self.first: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()

    def capture_end(self, token: Any) -> Graph:
        graphs = self.first.setdefault(token.origin, {})
        graph = super().capture_end(token)
        shape = tuple((node.kind, node.after) for node in graph.nodes)
        return Graph(graphs.setdefault(shape, graph.nodes))


class LosesAFill(CpuBackend):
    """Of two captured fills in a row, the second one."""

    def capture_end(self, token: Any) -> Graph:
        nodes = super().capture_end(token).nodes
        again = {
            number
            for number, node in enumerate(nodes)
            if node.kind == "memset" and [nodes[other].kind for other in node.after] == ["memset"]
        }
        return Graph([node._replace(call=_NOTHING) if n in again else node for n, node in enumerate(nodes)])


_NOTHING: Any = (int, (), {}, None)


class LosesTheLastOfThreeReplays(CpuBackend):
    """A queue that has room for two runs of an executable."""

    def open(self) -> None:
        super().open()
        self.latest: dict[Executable, list[Any]] = {}

    def replay(self, executable: Executable, stream: Any) -> None:
        runs = self.latest.setdefault(executable, [])
        runs[:] = [done for done in runs if not done.is_set]
        if len(runs) < 2 or stream.capture is not None:
            super().replay(executable, stream)
            runs.append(executable._last)

    def bind(self, executable: Any, stream: Any) -> Callable[[], None]:
        return lambda: self.replay(executable, stream)
