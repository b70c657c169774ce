"""Pool ids."""

from __future__ import annotations

import gc

import accelerator_graph as ag
from accelerator_graph.backends.base import CaptureStatus

from .._case import Case, Number, applied, raises

FIRST = 2**40


class PoolRules(Case):
    """Which graphs may share memory."""

    def test_ids_have_the_shape_of_torchs(self) -> None:
        """`graph_pool_handle` returns ``(0, n)``, a capture without a pool gets ``(n, 0)``; ids are new."""
        stream, cell = self.stream(), self.cell()
        handles = [ag.graph_pool_handle() for _ in range(3)]
        own = [self.captured(stream, cell).pool() for _ in range(3)]
        assert all(handle[0] == 0 and handle[1] >= FIRST for handle in handles)
        assert all(pool[0] >= FIRST and pool[1] == 0 for pool in own)
        assert len({*handles, *own}) == 6

    def test_graphs_share_a_pool(self) -> None:
        """Graphs that are given the same pool have an equal `pool`, and all of them work."""
        stream, cell = self.stream(), self.cell()
        first = self.captured(stream, cell)
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
        graph, third = self.graph(stream, pool=pool), self.graph(other, pool=pool)

        def refused() -> None:
            with raises(ag.GraphStateError, match="pool"):
                third.capture_begin()
            assert self.status(other) is CaptureStatus.NONE

        with graph:
            self.enqueue(stream, cell)
            first.reset()
            refused()
            del second
            gc.collect()
            refused()
        graph.replay()
        assert self.read(cell) == applied(1)
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

    def test_zero_means_none(self) -> None:
        """``(0, 0)`` means no pool: the capture gets one of its own."""
        stream, cell = self.stream(), self.cell()
        pool = self.captured(stream, cell, pool=(0, 0)).pool()
        assert pool[0] >= FIRST
        assert pool[1] == 0

    def test_ids_may_be_any_integers(self) -> None:
        """The numbers of an id can be of any type with ``__index__``; `Graph.pool` returns ints."""
        stream, cell, handle = self.stream(), self.cell(), ag.graph_pool_handle()
        graph = self.captured(stream, cell, pool=(Number(0), Number(handle[1])))
        assert graph.pool() == handle
        assert [type(half) for half in graph.pool()] == [int, int]
        with raises(TypeError):
            ag.Graph(pool=(False, handle[1]))

    def test_wrong_ids_are_refused_where_they_are_given(self) -> None:
        """Two non-zero numbers or a negative one are an immediate ValueError, a wrong type a TypeError."""
        stream = self.stream()
        graph = self.graph(stream)
        bad: list[tuple[object, type[Exception]]] = [
            ((1, 1), ValueError),
            ((-1, 0), ValueError),
            ((0, -1), ValueError),
            (1, TypeError),
            ("pool", TypeError),
            ((1,), TypeError),
            ((0, 1, 2), TypeError),
            ((0, 1.0), TypeError),
            ([0, 1], TypeError),
        ]
        for pool, kind in bad:
            with raises(kind):
                ag.Graph(pool=pool)  # type: ignore[arg-type]
            with raises(kind):
                graph.graph_pool = pool  # type: ignore[assignment]
            with raises(kind):
                graph.capture_begin(pool=pool)  # type: ignore[arg-type]
            with raises(kind):
                ag.graph(graph, pool=pool)  # type: ignore[arg-type]
        assert graph.graph_pool is None
        self.works(stream, graph)

    def test_ended_pool_is_refused(self) -> None:
        """A pool ends with its last graph; after that its id is a ValueError before a capture begins."""
        stream, cell = self.stream(), self.cell()
        first = self.captured(stream, cell)
        pool = first.pool()
        second = self.captured(stream, cell, pool=pool)
        first.reset()
        third = self.captured(stream, cell, pool=pool)
        for graph in (second, third):
            graph.reset()
        with raises(ValueError, match="pool"):
            first.capture_begin(pool=pool)
        assert self.status(stream) is CaptureStatus.NONE
        self.works(stream, first)

    def test_pool_that_was_never_given_out_is_refused(self) -> None:
        """An id that the library has not given out yet is a ValueError before a capture begins."""
        stream = self.stream()
        graph = self.graph(stream)
        for pool in ((0, 2**62), (2**62, 0)):
            with raises(ValueError, match="pool"):
                graph.capture_begin(pool=pool)
            assert self.status(stream) is CaptureStatus.NONE
        self.works(stream, graph)

    def test_pool_of_another_device_is_refused(self) -> None:
        """A pool belongs to one device: a capture into it on another device is a ValueError."""
        stream, cell, pool = self.stream(), self.cell(), ag.graph_pool_handle()
        first = self.captured(stream, cell, pool=pool)
        for device in range(1, self.backend.device_count()):
            other = self.stream(device)
            with raises(ValueError, match="device"):
                self.graph(other, pool=pool).capture_begin()
            assert self.status(other) is CaptureStatus.NONE
        first.replay()
        assert self.read(cell) == applied(1)
