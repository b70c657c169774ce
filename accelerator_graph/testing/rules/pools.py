"""Pool ids."""

from __future__ import annotations

import gc

import accelerator_graph as ag
from accelerator_graph.backends.base import CaptureStatus

from .._case import Case, Number, applied, expect

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
        for device in range(1, self.backend.device_count()):
            other = self.stream(device)
            expect(ValueError, self.graph(other, pool=pool).capture_begin, match="device")
            assert self.status(other) is CaptureStatus.NONE
        assert self.replayed(first, cell) == applied(1)
