"""Backends that do wrong with some programs, for random ones to find."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any
from weakref import WeakKeyDictionary

from accelerator_graph.backends._cpu.graph import Executable, Graph
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.backends.recording import Event
from kit.planted.without_a_fault import NothingNative, TwoDevices


class IgnoresDependencies(CpuBackend):
    """A run does one branch after another, the one that began last first."""

    def instantiate(self, graph: Graph) -> Executable:
        nodes = sorted(graph.nodes, key=lambda node: -node.branch)
        after = [(number - 1,) if number else () for number in range(len(nodes))]
        line = [node._replace(after=before, branch=0) for node, before in zip(nodes, after, strict=True)]
        return super().instantiate(Graph(line))


class ReplaysLateOnAStreamOfItsOwn(CpuBackend):
    """So late that no run of a program hides it by being slow."""

    def replay(self, executable: Any, stream: Any) -> None:
        own = self.create_stream(0)
        self.launch(own, time.sleep, 0.02)
        super().replay(executable, own)


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


class LosesTheLastOfThreeReplays(NothingNative):
    """A queue that has room for two runs of an executable until somebody waits."""

    def open(self) -> None:
        super().open()
        self.runs: Counter[Executable] = Counter()

    def synchronize(self, stream: Any) -> None:
        super().synchronize(stream)
        self.runs.clear()

    def replay(self, executable: Executable, stream: Any) -> None:
        self.runs[executable] += 1
        if self.runs[executable] < 3 or stream.capture is not None:
            super().replay(executable, stream)


class EventOfADevice(Event):
    device = 0


class IgnoresWaitsForAnotherDevice(TwoDevices):
    """Streams of two devices do not wait for each other's work outside of captures."""

    def record_event(self, stream: Any, *, timed: bool = False) -> EventOfADevice:
        event = super().record_event(stream)
        made = EventOfADevice(event.mark, event.capture, event.nodes)
        made.device = self.device_of(stream)
        return made

    def wait_event(self, stream: Any, event: EventOfADevice) -> None:
        if event.capture is not None or self.device_of(stream) == event.device:
            super().wait_event(stream, event)
