"""Nodes of an executable that are changed: which can be, and what later runs do then."""

from __future__ import annotations

import ctypes
from typing import Any
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, Change, word
from accelerator_graph.backends.memory import memory_of

from .._case import Case, needs


class NodeChangeRules(Case):
    """`Graph.set_node`, and the backend's `node_setter`."""

    @needs(Capability.ENQUEUE, Capability.NODES)
    def test_what_can_be_changed_is_told(self) -> None:
        """`GraphNode.settable` is what the setter of each node can change; nothing if there is none."""
        graph = self._filled_and_copied()[0]
        runner = graph._runner
        assert runner is not None and runner.captured is not None and runner.executable is not None  # noqa: PT018
        for node in graph.describe().nodes:
            setter = self.backend.node_setter(runner.captured.value, runner.executable.value, node.id)
            assert sorted(node.settable) == sorted(setter.settable if setter else ()), node
            if setter is not None:
                assert setter.kind == node.kind
                assert setter.nbytes in (node.nbytes, None)

    @needs(Capability.ENQUEUE, Capability.NODES)
    def test_changed_nodes_do_something_else_in_later_runs(self) -> None:
        """The value and the target of a fill, and both addresses of a copy, are changed together."""
        graph, filled, copied, other = self._changeable("value", "target", "source")
        graph.set_nodes({0: {"value": 7, "target": other}, 1: {"source": other, "target": filled}})
        graph.replay()
        assert [self._held(each) for each in (filled, copied, other)] == [b"\x07" * 8, bytes(8), b"\x07" * 8]
        graph.instantiate()
        graph.replay()
        assert [self._held(each) for each in (filled, copied)] == [b"\x01" * 8] * 2

    @needs(Capability.ENQUEUE, Capability.NODES)
    def test_disabled_nodes_are_left_out(self) -> None:
        """Later runs leave out what is disabled, and only that, until it is enabled; its parameters stay."""
        graph, filled, copied, _ = self._changeable("enabled", "value")
        fill, copy = ("enabled" in node.settable for node in graph.describe().nodes)
        if fill:
            graph.set_node(0, enabled=False)
        graph.set_node(0, value=6)
        graph.replay()
        assert [self._held(each) for each in (filled, copied)] == [bytes(8) if fill else b"\x06" * 8] * 2
        if fill:
            graph.set_node(0, enabled=True)
            graph.replay()
            assert [self._held(each) for each in (filled, copied)] == [b"\x06" * 8] * 2
        if copy:
            graph.set_node(1, enabled=False)
            graph.set_node(0, value=5)
            graph.replay()
            assert [self._held(each) for each in (filled, copied)] == [b"\x05" * 8, b"\x06" * 8]
            graph.set_node(1, enabled=True)
            graph.replay()
            assert [self._held(each) for each in (filled, copied)] == [b"\x05" * 8] * 2

    @needs(Capability.ENQUEUE, Capability.NODES)
    def test_two_executables_are_changed_apart(self) -> None:
        """A change of one executable leaves the graph and its other executables as they are."""
        graph, filled, _, _ = self._changeable("value")
        assert graph._runner is not None
        captured = graph._runner.captured
        assert captured is not None
        self.skip_unless(not self.backend.single_executable(captured.value), "has one executable of a graph")
        second = self.backend.instantiate(captured.value)
        try:
            graph.set_node(0, value=9)
            self.backend.replay(second, graph.stream.native if graph.stream else None)
            assert self._held(filled) == b"\x01" * 8
            graph.replay()
            assert self._held(filled) == b"\x09" * 8
        finally:
            self.backend.destroy_executable(second)

    @needs(Capability.ENQUEUE)
    def test_function_of_a_node_setter_sets_the_node(self) -> None:
        """The function of a `NodeSetter` does what the setter does, where its guard is met."""
        graph, filled, copied, other = self._filled_and_copied()
        runner = graph._runner
        assert runner is not None and runner.captured is not None and runner.executable is not None  # noqa: PT018
        setter = self.backend.node_setter(runner.captured.value, runner.executable.value, 1)
        self.skip_unless(setter and setter.function, "does not change copies in C")
        assert setter is not None and setter.function is not None  # noqa: PT018
        found = setter.function
        if found.guard is not None:
            current, context = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p()
            assert current(found.guard.address)(ctypes.addressof(context)) == 0
            self.skip_unless(context.value == found.guard.context, "has no context that is current here")
        stream = graph.stream
        assert stream is not None
        stream.fill(other, 7)
        source = memory_of(other, 8, writable=False, device=True).address
        ctypes.c_uint64.from_address(setter.address_of(1, 0)).value = source
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_void_p,) * len(found.arguments))
        assert prototype(found.address)(*found.arguments) == 0
        graph.replay()
        assert self._held(copied) == b"\x07" * 8
        setter([Change(1, 0, word(memory_of(filled, 8, writable=False, device=True).address))])
        graph.replay()
        assert self._held(copied) == b"\x01" * 8

    def _filled_and_copied(self) -> tuple[ag.Graph, Any, Any, Any]:
        """Return a graph that fills memory and copies it, both memories, and a third one; all are zero."""
        stream = self.stream()
        filled, copied, other = (self.used.buffer(8) for _ in range(3))
        for each in (filled, copied, other):
            stream.fill(each, 0)
        with self.graph(stream, keep_graph=True) as graph:
            stream.fill(filled, 1)
            stream.copy(copied, filled)
        graph.instantiate()
        return graph, filled, copied, other

    def _changeable(self, *names: str) -> tuple[ag.Graph, Any, Any, Any]:
        found = self._filled_and_copied()
        nodes = found[0].describe().nodes
        can = {name for node in nodes for name in node.settable}
        if not can.issuperset(names):
            raise SkipTest(
                f"backend {self.backend.name!r} does not change the {' and '.join(names)} of nodes"
            )
        return found

    def _held(self, buffer: Any) -> bytes:
        self.synchronize()
        return self.used.read_bytes(buffer)
