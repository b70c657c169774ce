"""A capture that fails leaves no trace."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import CaptureStatus

from .._case import Case, applied, expect, raises


class _Stop(BaseException):
    """Not an `Exception`, like what test runners and schedulers raise."""


BODY_RAISES = (ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, _Stop)
PASS_ALWAYS = (KeyboardInterrupt, SystemExit)
BROKEN = ("illegal_call", "invalidated")


class FailureRules(Case):
    """After any exception during a capture, the graph is empty and everything else is usable."""

    def test_exception_in_the_body_passes_unchanged(self) -> None:
        """If the body raises and the capture is valid, the same exception passes, with a note."""
        for kind in BODY_RAISES:
            (stream, cell, graph), error = self.setup(), kind("in the body")
            with raises(kind) as caught, graph:
                self.enqueue(stream, cell)
                raise error
            assert caught.error is error
            assert any("abandoned" in note for note in error.__notes__), kind
            self._left_no_trace(stream, graph, cell)

    def test_illegal_call_is_a_capture_error(self) -> None:
        """A synchronisation that breaks the capture raises, and the block raises `CaptureError` from it."""
        stream, cell = self._breakable(), self.cell()
        with raises(ag.CaptureError) as caught, self.graph(stream) as graph:
            self.enqueue(stream, cell)
            stream.synchronize()
        assert caught.error.reason in BROKEN
        cause = caught.error.__cause__
        assert isinstance(cause, ag.DriverError | ag.CaptureError)
        assert cause.reason in BROKEN
        self._left_no_trace(stream, graph, cell)

    def test_swallowed_illegal_call_is_a_capture_error_at_the_end(self) -> None:
        """A capture that an illegal call has broken does not become a graph, even if nobody noticed."""
        stream, cell = self._breakable(), self.cell()
        with raises(ag.CaptureError) as caught, self.graph(stream) as graph:
            self.enqueue(stream, cell)
            self._break(stream)
        assert caught.error.reason in BROKEN
        assert isinstance(caught.error.__cause__, ag.DriverError)
        self._left_no_trace(stream, graph, cell)

    def test_swallowed_illegal_call_is_a_capture_error_by_hand(self) -> None:
        """By hand, `capture_end` of a capture that an illegal call has broken raises `CaptureError`."""
        stream, cell, graph = self._broken()
        assert expect(ag.CaptureError, graph.capture_end).reason in BROKEN
        self._left_no_trace(stream, graph, cell)

    def test_exception_after_an_illegal_call_is_the_cause(self) -> None:
        """If the body raises after it broke the capture, `CaptureError` is raised from that exception."""
        stream, cell, error = self._breakable(), self.cell(), ValueError("in the body")
        with raises(ag.CaptureError) as caught, self.graph(stream) as graph:
            self._break(stream)
            raise error
        assert caught.error.__cause__ is error
        assert caught.error.reason in BROKEN
        self._left_no_trace(stream, graph, cell)

    def test_interrupt_after_an_illegal_call_passes_unchanged(self) -> None:
        """KeyboardInterrupt and SystemExit always pass, even if the capture was broken before."""
        for kind in PASS_ALWAYS:
            stream, cell = self._breakable(), self.cell()
            graph, error = self.graph(stream), kind("in the body")
            with raises(kind) as caught, graph:
                self._break(stream)
                raise error
            assert caught.error is error
            self._left_no_trace(stream, graph, cell)

    def test_broken_capture_can_be_reset(self) -> None:
        """After an illegal call `capture_status` is "invalidated", and `reset` abandons the capture."""
        stream, cell, graph = self._broken()
        assert self.status(stream) is CaptureStatus.INVALIDATED
        graph.reset()
        self._left_no_trace(stream, graph, cell)

    def test_failed_capture_restores_the_current_stream(self) -> None:
        """After a failed capture the thread's current stream is the same as before."""
        (stream, cell, graph), outer = self.setup(), self.stream()
        with outer:
            with raises(ValueError), graph:
                assert ag.current_stream() is stream
                raise ValueError
            assert ag.current_stream() is outer
        self._left_no_trace(stream, graph, cell)

    def test_failed_capture_releases_what_was_retained_in_it(self) -> None:
        """Objects that were retained during a failed capture are released; those from before stay."""
        _stream, _, graph = self.setup()
        before = weakref.ref(graph.retain(set[int]()))
        with raises(ValueError), graph:
            during = weakref.ref(graph.retain(set[int]()))
            assert during() is not None
            raise ValueError
        gc.collect()
        assert during() is None
        assert before() is not None
        graph.reset()
        gc.collect()
        assert before() is None

    def test_failed_capture_releases_its_pool(self) -> None:
        """After a failed capture its pool can be captured into again, by the same graph and by others."""
        stream, cell, pool = self.stream(), self.cell(), ag.graph_pool_handle()
        with raises(ValueError), self.graph(stream, pool=pool) as graph:
            raise ValueError
        other = self.captured(stream, cell, pool=ag.graph_pool_handle())
        with raises(ValueError), graph:
            raise ValueError
        self.works(stream, graph)
        assert graph.pool() == pool
        other.reset()
        assert self.captured(stream, cell, pool=pool).pool() == pool

    def test_callables_from_before_do_not_work_after_a_failed_capture(self) -> None:
        """A callable of an earlier capture still raises after the next capture has failed."""
        stream, cell, graph = self.setup_captured()
        launch = graph.bind()
        graph.reset()
        with raises(ValueError), graph:
            raise ValueError
        expect(ag.GraphStateError, launch)
        expect(ag.GraphStateError, graph.replay)
        self._left_no_trace(stream, graph, cell)

    def test_failures_do_not_add_up(self) -> None:
        """A graph and a stream survive many failed captures."""
        stream, cell, graph = self.setup()
        for _ in range(25):
            with raises(ValueError), graph:
                self.enqueue(stream, cell)
                raise ValueError
        self._left_no_trace(stream, graph, cell)

    def _breakable(self) -> ag.Stream:
        """Return a stream whose captures an illegal call breaks; skip the test if they survive it."""
        stream = self.stream()
        token = self.begin(stream)
        self.refusal(stream.synchronize)
        broken = self.status(stream) is CaptureStatus.INVALIDATED
        self.backend.capture_abandon(token)
        self.skip_unless(broken, "has captures that survive an illegal call")
        return stream

    def _broken(self) -> tuple[ag.Stream, Any, ag.Graph]:
        """Return a stream, a cell, and a graph whose capture an illegal call has broken."""
        stream, cell = self._breakable(), self.cell()
        graph = self.graph(stream)
        graph.capture_begin()
        self.enqueue(stream, cell)
        self._break(stream)
        return stream, cell, graph

    def _break(self, stream: ag.Stream) -> None:
        error = self.refusal(stream.synchronize)
        assert error is not None
        assert error.reason in BROKEN
        assert self.status(stream) is CaptureStatus.INVALIDATED

    def _left_no_trace(self, stream: ag.Stream, graph: ag.Graph, cell: Any) -> None:
        assert self.status(stream) is CaptureStatus.NONE
        assert not ag.is_current_stream_capturing()
        assert self.read(cell) == 0
        expect(ag.GraphStateError, graph.replay)
        self.works(stream, graph)
        assert self.read(cell) == applied(0)
