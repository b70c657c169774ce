"""Memory: `fill`, `copy` and `launch`, how much there is, what a graph uses, and the ids of pools."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any
from unittest import SkipTest
from unittest.mock import patch

import accelerator_graph as ag
from accelerator_graph.backends.base import (
    Capability,
    CaptureStatus,
    Change,
    DeviceMemory,
    GraphNode,
    NodeParameters,
    addresses_in,
    word,
)
from accelerator_graph.backends.memory import memory_of

from .._case import Case, Number, applied, expect, needs

LARGE = (1 << 16) + 4101
"""Bytes: more than a page and than 16 bits can count, and a multiple of nothing."""
START = 4096
"""Where a part of memory begins."""


@needs(Capability.ENQUEUE)
class MemoryRules(Case):
    """Work that is enqueued through the library runs on an idle stream and is recorded on a capturing one."""

    def test_fill_sets_bytes(self) -> None:
        """`fill` sets all bytes of the memory, or the first `nbytes`."""
        stream, buffer = self.stream(), self.used.buffer(16)
        stream.fill(buffer, 255)
        stream.fill(buffer, 7, 4)
        stream.fill(buffer, 9, 0)
        assert self.bytes_of(buffer) == b"\x07" * 4 + b"\xff" * 12

    def test_copy_copies_bytes(self) -> None:
        """`copy` copies all of the source, or the first `nbytes`, into memory that may be larger."""
        stream, source, target = self.stream(), self.used.buffer(8), self.used.buffer(16)
        stream.fill(source, 3)
        stream.copy(target, source)
        assert self.bytes_of(target) == b"\x03" * 8 + b"\x00" * 8
        stream.fill(source, 4)
        stream.copy(target, source, 2)
        stream.copy(target, source, 0)
        assert self.bytes_of(target) == b"\x04" * 2 + b"\x03" * 6 + b"\x00" * 8

    def test_fill_and_copy_are_recorded(self) -> None:
        """During a capture `fill` and `copy` are recorded; each replay runs them in order."""
        stream = self.stream()
        first, second = self.used.buffer(8), self.used.buffer(8)
        with self.graph(stream) as graph:
            stream.fill(first, 1)
            stream.copy(second, first)
            stream.fill(first, 2, 4)
        assert (self.bytes_of(first), self.bytes_of(second)) == (bytes(8), bytes(8))
        for _ in range(2):
            stream.fill(first, 9)
            stream.fill(second, 9)
            graph.replay()
            assert self.bytes_of(first) == b"\x02" * 4 + b"\x01" * 4
            assert self.bytes_of(second) == b"\x01" * 8
        if self.has(Capability.NODES):
            assert graph.num_nodes >= 3

    def test_fill_and_copy_of_large_memory(self) -> None:
        """`fill` and `copy` reach every byte of large memory, at once and in each replay."""
        stream, source, target = self.stream(), self.used.buffer(LARGE), self.used.buffer(LARGE)
        edges = (LARGE - 1, 65537, 65535, 32769, 4097, 4095, 513, 129)  # where each fill ends

        def enqueue() -> None:
            stream.fill(source, 255)
            for value, edge in enumerate(edges):
                stream.fill(source, value, edge)
            stream.copy(target, source)
            stream.fill(source, 77)
            stream.copy(target, source, 8193)

        expected = bytearray(b"\xff" * LARGE)
        for value, edge in enumerate(edges):
            expected[:edge] = bytes([value]) * edge
        expected[:8193] = b"\x4d" * 8193
        self._leaves(enqueue, stream, target, bytes(expected))
        assert self.bytes_of(source) == b"\x4d" * LARGE

    def test_fill_and_copy_of_a_part_of_memory(self) -> None:
        """Memory that begins inside other memory is filled and copied from there on, and no other."""
        stream, source, target = self.stream(), self.used.buffer(3 * START), self.used.buffer(3 * START)
        parts = self.used.part(source, START), self.used.part(target, 2 * START)
        self.skip_unless(None not in parts, "has a Work without parts of buffers")

        def enqueue() -> None:
            stream.fill(source, 1)
            stream.fill(target, 2)
            stream.fill(parts[0], 3, 100)
            stream.copy(parts[1], parts[0], 200)

        expected = b"\x02" * 2 * START + b"\x03" * 100 + b"\x01" * 100 + b"\x02" * (START - 200)
        self._leaves(enqueue, stream, target, expected)
        assert self.bytes_of(source) == b"\x01" * START + b"\x03" * 100 + b"\x01" * (2 * START - 100)

    def test_wrong_memory_is_refused_before_anything_is_enqueued(self) -> None:
        """Values out of range, too many bytes and wrong types are immediate ValueErrors and TypeErrors."""
        stream, small, large = self.stream(), self.used.buffer(8), self.used.buffer(16)
        self._refuses_wrong_memory(stream, small, large)
        assert (self.bytes_of(small), self.bytes_of(large)) == (bytes(8), bytes(16))
        self.works(stream, self.graph(stream))

    def test_wrong_memory_does_not_hurt_a_capture(self) -> None:
        """Wrong arguments during a capture are the same errors; nothing is recorded, the capture goes on."""
        stream, small, large = self.stream(), self.used.buffer(8), self.used.buffer(16)
        with self.undisturbed_capture(stream) as graph:
            self._refuses_wrong_memory(stream, small, large)
        assert (self.bytes_of(small), self.bytes_of(large)) == (bytes(8), bytes(16))
        if self.has(Capability.NODES) and self.used.nodes_per_piece:
            assert graph.num_nodes == 2 * self.used.nodes_per_piece

    def test_wrong_launch_is_refused_before_anything_is_enqueued(self) -> None:
        """An unknown keyword, or an object that can't be an argument, is refused at once by `launch`."""
        stream, cell = self.stream(), self.cell()
        with patch.object(ag.Stream, "launch", autospec=True, side_effect=ag.Stream.launch) as launch:
            self.enqueue(stream, cell)
        self.skip_unless(launch.called, "has a Work that does not use Stream.launch")
        (_, work, *args), options = launch.call_args
        self.skip_unless(
            not isinstance(work, FunctionType | MethodType | BuiltinFunctionType),
            "launches functions of Python, which check their arguments themselves",
        )
        wrong = [(args, {**options, "no_such_option": 1})]
        wrong += [([*args[:at], object(), *args[at + 1 :]], options) for at in range(len(args))]
        wrong += [(args, {**options, name: object()}) for name in options]

        def refuses() -> None:
            for values, how in wrong:
                expect((TypeError, ValueError), stream.launch, work, *values, **how)

        refuses()
        assert self.read(cell) == applied(1)
        with self.undisturbed_capture(stream):
            refuses()
        assert self.read(cell) == applied(1)

    def test_graph_keeps_the_memory_that_it_uses(self) -> None:
        """The memory that `fill` and `copy` use in a capture lives until the graph is reset."""
        stream = self.stream()
        source, target = self.used.buffer(8), self.used.buffer(8)
        try:
            references = weakref.ref(source), weakref.ref(target)
        except TypeError as error:
            reason = f"Work.buffer returns objects of a type without weak references: {error}"
            raise SkipTest(reason) from error
        with self.graph(stream) as graph:
            stream.fill(source, 1)
            stream.copy(target, source)
        del source, target
        gc.collect()
        assert all(reference() is not None for reference in references)
        graph.replay()
        stream.synchronize()
        graph.reset()
        self.collect()
        assert all(reference() is None for reference in references)

    def _leaves(self, enqueue: Callable[[], None], stream: ag.Stream, target: Any, expected: bytes) -> None:
        """Check what work leaves in memory, enqueued at once and as a graph."""
        enqueue()
        found = [self.bytes_of(target)]
        with self.graph(stream) as graph:
            enqueue()
        for _ in range(2):
            stream.fill(target, 99)
            graph.replay()
            found.append(self.bytes_of(target))
        for how, each in zip(("enqueued", "replayed", "replayed again"), found, strict=True):
            pairs = enumerate(zip(each, expected, strict=True))
            wrong = next((at for at, (byte, right) in pairs if byte != right), -1)
            assert wrong == -1, f"{how}: byte {wrong} is {each[wrong]} instead of {expected[wrong]}"

    @needs(Capability.SET_NODE)
    def test_copies_can_read_from_elsewhere_in_later_runs(self) -> None:
        """`node_setter` changes what one copy reads, from the next run on and in no run before."""
        stream = self.stream()
        target, other, kept = (self.used.buffer(8) for _ in range(3))
        sources = [self.used.buffer(8) for _ in range(3)]
        for value, source in enumerate(sources, 1):
            stream.fill(source, value)
        with self.graph(stream, keep_graph=True) as graph:
            stream.copy(other, sources[0])
            stream.copy(target, sources[0])
        graph.instantiate()
        runner = graph._runner
        assert runner is not None and runner.captured is not None and runner.executable is not None  # noqa: PT018
        found = self.backend.node_setter(runner.captured.native, runner.executable.native, 1)
        self.skip_unless(found, "does not change copies")
        try:
            addresses = [memory_of(each, 8, writable=False, device=True).address for each in sources]
        except TypeError as error:
            raise SkipTest(f"Work.buffer returns objects whose address is not known: {error}") from error
        assert found is not None
        self.synchronize()
        for address in (addresses[1], addresses[2], addresses[0]):
            graph.replay()
            stream.copy(kept, target)
            found([Change(1, 0, word(address))])
            before, expected = self.bytes_of(kept), bytes([addresses.index(address) + 1]) * 8
            assert before != expected, "a run that was enqueued before has read from the new address"
            graph.replay()
            assert self.bytes_of(target) == expected
            assert self.bytes_of(other) == b"\x01" * 8

    def _refuses_wrong_memory(self, stream: ag.Stream, small: Any, large: Any) -> None:
        either = (TypeError, ValueError)
        wrong: list[tuple[Any, Callable[..., None], Any]] = [
            (ValueError, stream.fill, [(small, 256), (small, -1), (small, 1, 9), (small, 1, -1)]),
            (TypeError, stream.fill, [(small, "3"), (small, 1.0), (small, None), (small, 1, "3")]),
            (TypeError, stream.fill, [(object(), 1), (None, 1)]),
            (either, stream.fill, [(bytes(8), 1)]),
            (ValueError, stream.copy, [(small, large), (small, large, 9)]),
            (ValueError, stream.copy, [(large, small, 9), (large, small, -1)]),
            (TypeError, stream.copy, [(large, small, "3"), (object(), small), (small, object())]),
            (either, stream.copy, [(bytes(8), small)]),
            (TypeError, stream.launch, [(object(),)]),
        ]
        for kinds, call, calls in wrong:
            for args in calls:
                expect(kinds, call, *args)


class AmountRules(Case):
    """What the backend reports about memory, and the report of the library that contains it."""

    @needs(Capability.NODES)
    def test_memory_is_reported_and_disturbs_no_capture(self) -> None:
        """`device_memory` and `host_bytes` are plausible or None, and captures go on meanwhile."""
        stream, cell, graph = self.setup()
        recorded = self.recorded(stream, cell)
        executable = self.backend.instantiate(recorded)
        self._plausible(self.backend.device_memory(recorded))
        reported = self.backend.host_bytes(recorded)
        with graph:
            self.enqueue(stream, cell)
            self._plausible(self.backend.device_memory(recorded))
            self._plausible(self.backend.device_memory(executable))
            for each in (reported, self.backend.host_bytes(recorded), self.backend.host_bytes(executable)):
                assert each is None or each >= 0
            self.enqueue(stream, cell)
        self.backend.destroy_graph(recorded)
        self.backend.destroy_executable(executable)
        assert self.replayed(graph, cell) == applied(2)

    @needs(Capability.ENQUEUE, Capability.NODES)
    def test_parameters_are_those_of_the_nodes(self) -> None:
        """`parameters` has what the fills and copies of a graph read and write, or that it is not known."""
        stream, source, target = self.stream(), self.used.buffer(8), self.used.buffer(8)
        parameters, nodes = self._parameters(stream, lambda: self._fill_and_copy(stream, source, target))
        found = addresses_in(parameters)
        self.skip_unless(found is not None, "does not report all parameters of nodes")
        assert found is not None
        assert [each.kind for each in parameters] == [node.kind for node in nodes]
        for node, each in zip(nodes, parameters, strict=True):
            assert {node.source, node.target} - {None} <= found
            if node.target is not None:
                assert each.blocks is not None
                assert each.blocks[0] == word(node.target)
        fewer, _ = self._parameters(stream, lambda: self._fill_and_copy(stream, source, target, 4))
        for whole, part in zip(parameters, fewer, strict=True):
            assert (whole.kind, whole.rest) != (part.kind, part.rest), (
                f"the {whole.kind!r} nodes of 8 and of 4 bytes have the same `rest`: put the size into it"
            )

    @needs(Capability.ENQUEUE, Capability.NODES, Capability.CHILD_GRAPHS)
    def test_parameters_inside_a_recorded_replay(self) -> None:
        """With "child_graphs", `parameters` has those of the graph whose replay was recorded."""
        stream, home, source, target = self.stream(), self.stream(), self.used.buffer(8), self.used.buffer(8)
        with self.graph(home, keep_graph=True) as graph:
            self._fill_and_copy(home, source, target)
        alone, _ = self._parameters(home, lambda: self._fill_and_copy(home, source, target))
        parameters, nodes = self._parameters(stream, lambda: self.record_run(graph, stream))
        self.skip_unless(addresses_in(alone) is not None, "does not report all parameters of nodes")
        self.skip_unless(any(node.bodies for node in nodes), "does not list what a recorded replay runs")
        assert [each.inside for each in parameters] == [tuple(alone)]

    @needs(Capability.ENQUEUE, Capability.NODES)
    def test_memory_in_use_is_not_said_to_be_gone(self) -> None:
        """`memory_at` never says of memory that a graph uses, and that is alive, that there is none."""
        stream, source, target = self.stream(), self.used.buffer(8), self.used.buffer(8)
        token = self.begin(stream)
        try:
            self._fill_and_copy(stream, source, target)
        finally:
            recorded = self.backend.capture_end(token)
        nodes = self.backend.nodes(recorded)[0]
        used = [at for node in nodes for at in (node.source, node.target) if at is not None]
        states = self.backend.memory_at(recorded, used)
        self.backend.destroy_graph(recorded)
        assert len(states) == len(used)
        assert [each for each in states if each not in ("held", "there", None)] == []
        with self.graph(stream, keep_graph=True) as graph:
            self._fill_and_copy(stream, source, target)
        assert graph.check().wrong == ()

    def _fill_and_copy(self, stream: ag.Stream, source: Any, target: Any, nbytes: int | None = None) -> None:
        stream.fill(source, 7, nbytes)
        stream.copy(target, source, nbytes)

    def _parameters(
        self, stream: ag.Stream, record: Callable[[], None]
    ) -> tuple[Sequence[NodeParameters], list[GraphNode]]:
        """Capture, and return the parameters and the nodes."""
        token = self.begin(stream)
        try:
            record()
        finally:
            graph = self.backend.capture_end(token)
        parameters, (nodes, _) = self.backend.parameters(graph), self.backend.nodes(graph)
        self.backend.destroy_graph(graph)
        return parameters, nodes

    def test_memory_of_a_graph_is_reported(self) -> None:
        """`Graph.memory` says of each part how large it is or why that is not known, and changes nothing."""
        stream, cell = self.stream(), self.cell()
        if self.has(Capability.NODES):
            with self.executable(stream, cell) as executable:
                reported = self.backend.host_bytes(executable)
                assert reported is None or reported >= 0
        with ag.measure_memory():
            graph = self.captured(stream, cell, keep_graph=True)
            before = graph.memory()
            graph.instantiate()
        memory = graph.memory()
        assert before.executable.nbytes is None
        assert (memory.backend, memory.device) == (stream.backend, stream.device)
        assert (memory.pool.id, memory.pool.graphs) == (tuple(graph.pool()), 1)
        parts = (memory.executable, memory.executable_host, memory.definition, memory.touched)
        for part in (*parts, memory.pool.held, memory.pool.used):
            assert part.note
            assert part.nbytes is None or part.nbytes >= 0
        assert ag.GraphMemory.from_json(memory.to_json()) == memory
        assert memory.name in str(memory)
        assert self.replayed(graph, cell) == applied(1)
        report = partial(ag.memory_report, {"this": graph})
        assert [each.name for each in report().graphs] == ["this"]
        graph.reset()
        assert report().graphs == ()

    def _plausible(self, memory: DeviceMemory | None) -> None:
        if memory is None:
            return
        assert 0 <= memory.free <= memory.total
        if memory.graphs_reserved is not None and memory.graphs_used is not None:
            assert memory.graphs_used >= 0
            assert memory.graphs_reserved >= 0


FIRST = 2**40


class PoolRules(Case):
    """Which graphs may share memory."""

    def test_ids_have_the_shape_of_torchs(self) -> None:
        """`graph_pool_handle` returns ``(0, n)``; without a pool or with (0, 0), it is ``(n, 0)``."""
        stream, cell = self.stream(), self.cell()
        handles = [ag.graph_pool_handle() for _ in range(3)]
        own = [self.captured(stream, cell, pool=pool).pool() for pool in (None, None, (0, 0))]
        assert all(handle[0] == 0 and handle[1] >= FIRST for handle in handles)
        assert all(pool[0] >= FIRST and pool[1] == 0 for pool in own)
        assert len({*handles, *own}) == 6

    def test_graphs_share_a_pool(self) -> None:
        """Graphs that are given the same pool have an equal `pool`, and all of them work."""
        stream, cell, first = self.setup_captured()
        second = self.captured(stream, cell, pool=first.pool())
        handle = ag.graph_pool_handle()
        third = self.captured(stream, cell, pool=handle)
        fourth = self.captured(stream, cell, pool=handle)
        assert first.pool() == second.pool()
        assert third.pool() == fourth.pool() == handle
        for graph in (first, second, third, fourth):
            graph.replay()
        assert self.read(cell) == applied(4)

    def test_graph_that_goes_leaves_the_pool_to_the_capture(self) -> None:
        """While a graph captures into a pool, the end of another graph of the pool does not free the pool."""
        stream, other, cell, pool = self.stream(), self.stream(), self.cell(), ag.graph_pool_handle()
        first, second = (self.captured(stream, cell, pool=pool) for _ in range(2))
        third = self.graph(other, pool=pool)
        with self.undisturbed_capture(stream, pool=pool):
            first.reset()
            expect(ag.GraphStateError, third.capture_begin, match="pool")
            del second
            gc.collect()
            expect(ag.GraphStateError, third.capture_begin, match="pool")
            assert self.status(other) is CaptureStatus.NONE
        self.works(other, third)

    def test_pool_of_capture_begin_wins(self) -> None:
        """The pool passed to `capture_begin` overrides the constructor's and the attribute's."""
        stream, cell = self.stream(), self.cell()
        made, given = ag.graph_pool_handle(), ag.graph_pool_handle()
        graph = self.graph(stream, pool=made)
        assert graph.graph_pool == made
        graph.capture_begin(given)
        self.enqueue(stream, cell)
        graph.capture_end()
        assert graph.pool() == given
        graph.reset()
        graph.graph_pool = given
        with graph:
            self.enqueue(stream, cell)
        assert graph.pool() == given

    def test_ids_may_be_any_integers(self) -> None:
        """The numbers of an id can be of any type with ``__index__``; `Graph.pool` returns ints."""
        stream, cell, handle = self.stream(), self.cell(), ag.graph_pool_handle()
        graph = self.captured(stream, cell, pool=(Number(0), Number(handle[1])))
        assert graph.pool() == handle
        assert [type(half) for half in graph.pool()] == [int, int]
        expect(TypeError, ag.Graph, pool=(False, handle[1]))

    def test_wrong_ids_are_refused_where_they_are_given(self) -> None:
        """Two non-zero numbers or a negative one are an immediate ValueError, a wrong type a TypeError."""
        stream, _, graph = self.setup()
        values: list[object] = [(1, 1), (-1, 0), (0, -1)]
        types: list[object] = [1, "pool", (1,), (0, 1, 2), (0, 1.0), [0, 1]]
        for pool in values + types:
            kind = ValueError if pool in values else TypeError
            expect(kind, ag.Graph, pool=pool)
            expect(kind, setattr, graph, "graph_pool", pool)
            expect(kind, graph.capture_begin, pool=pool)
            expect(kind, ag.graph, graph, pool=pool)
        assert graph.graph_pool is None
        self.works(stream, graph)

    def test_ended_pool_is_refused(self) -> None:
        """A pool ends with its last graph; such an id, or one never given out, is an immediate ValueError."""
        stream, cell, first = self.setup_captured()
        pool = first.pool()
        second = self.captured(stream, cell, pool=pool)
        first.reset()
        third = self.captured(stream, cell, pool=pool)
        for graph in (second, third):
            graph.reset()
        for unknown in (pool, (0, 2**62), (2**62, 0)):
            expect(ValueError, first.capture_begin, pool=unknown, match="pool")
            assert self.status(stream) is CaptureStatus.NONE
        self.works(stream, first)

    def test_pool_of_another_device_is_refused(self) -> None:
        """A pool belongs to one device: a capture into it on another device is a ValueError."""
        stream, cell, pool = self.stream(), self.cell(), ag.graph_pool_handle()
        first = self.captured(stream, cell, pool=pool)
        for device in range(1, self.backend.device_count):
            other = self.stream(device)
            expect(ValueError, self.graph(other, pool=pool).capture_begin, match="device")
            assert self.status(other) is CaptureStatus.NONE
        assert self.replayed(first, cell) == applied(1)
