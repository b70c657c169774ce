"""Waits that a capture can't record, and broken captures: nothing is lost silently."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, CaptureStatus

from .._case import Case, applied, folder, needs, only_if

BROKEN = ("illegal_call", "invalidated", "foreign_capture", "other")
"""The possible reasons when an invalidated capture ends."""


class IsolationRules(Case):
    """A capture is disturbed by no work of others, and its streams can wait for its own events only."""

    def test_preparing_a_capture_disturbs_no_other(self) -> None:
        """Waiting for a stream inside `relaxed` invalidates no capture of this thread or of another."""
        second, cell, inner = self.stream(), self.cell(), self.graph()
        with self.undisturbed_capture(), ag.graph(inner, stream=second):
            self.enqueue(second, cell)
        inner.replay(second)
        assert self.read(cell) == applied(1)

    @only_if(lambda backend: not backend.destroy_disturbs_captures, "lets the library wait for captures")
    def test_destroying_disturbs_no_capture(self) -> None:
        """The ``destroy_`` methods leave captures alone, unless `destroy_disturbs_captures` is True."""
        backend, other = self.backend, self.stream()
        graph = self.recorded(other, self.cell())
        executable, doomed = backend.instantiate(graph), backend.create_stream(0)
        event = backend.record_event(other.native) if self.has(Capability.EVENTS) else None
        with self.undisturbed_capture():
            backend.destroy_executable(executable)
            backend.destroy_graph(graph)
            backend.destroy_stream(doomed)
            if event is not None:
                backend.destroy_event(event)

    def test_calls_about_other_objects_disturb_no_capture(self) -> None:
        """Work on another stream, and calls about another graph, leave a capture as it is."""
        backend, other, capturing = self.backend, self.stream(), self.stream()
        graph, like = (self.recorded(other, self.cell()) for _ in range(2))
        executable = backend.instantiate(graph)
        made = partial(backend.instantiate_timed, graph, (), ())
        calls: list[tuple[Capability | None, str, Callable[[], object]]] = [
            (None, "work on another stream", lambda: self.enqueue(other, self.cell())),
            (None, "`as_stream`", lambda: backend.as_stream(other.native)),
            (None, "`create_stream`", lambda: backend.destroy_stream(backend.create_stream(other.device))),
            (Capability.TIMING, "`record_timed_event`", lambda: self._timed_event(other)),
            (Capability.NODES, "`nodes`", lambda: backend.nodes(graph)),
            (None, "`parameters`", lambda: backend.parameters(graph)),
            (None, "`node_setter`", lambda: backend.node_setter(graph, executable, 0)),
            (None, "`update`", lambda: backend.update(executable, graph, like)),
            (None, "`replay`", lambda: backend.replay(executable, other.native)),
            (Capability.GRAPH_EVENTS, "`instantiate_timed`", lambda: backend.destroy_executable(made()[0])),
            (None, "`dump`", lambda: self._dumped(graph)),
        ]
        with self.undisturbed_capture(capturing):
            for capability, name, call in calls:
                if capability is None or self.has(capability):
                    call()
                    assert self.status(capturing) is CaptureStatus.ACTIVE, f"{name} has broken a capture"
        backend.destroy_executable(executable)
        for each in (graph, like):
            backend.destroy_graph(each)

    @needs(Capability.EVENTS)
    def test_wait_for_an_event_from_before_the_capture_is_refused(self) -> None:
        """A capturing stream can't wait for an event that another stream recorded before the capture."""
        outside, cell = self._outside()
        event = outside.record()
        self._refused_in_a_capture(lambda stream: stream.wait(event))
        assert self.read(cell) == applied(1)

    @needs(Capability.EVENTS)
    def test_wait_for_an_event_of_its_own_from_before_the_capture_is_refused(self) -> None:
        """A capturing stream can't wait for an event that it recorded before its capture."""
        stream = self._outside()[0]
        event = stream.record()
        self._refused_in_a_capture(lambda stream: stream.wait(event), stream)

    @needs(Capability.EVENTS)
    def test_wait_for_a_stream_outside_the_capture_is_refused(self) -> None:
        """A capturing stream can't wait for a stream that is not in its capture, idle or not."""
        outside, cell = self._outside()
        self._refused_in_a_capture(lambda stream: stream.wait(outside))
        self.enqueue_slow(outside, cell)
        self._refused_in_a_capture(lambda stream: stream.wait(outside))
        assert self.read(cell) == applied(2)
        assert self.status(outside) is CaptureStatus.NONE

    @needs(Capability.EVENTS)
    def test_forked_stream_can_not_wait_for_a_stream_outside(self) -> None:
        """A stream that was forked into a capture can't wait for a stream outside it."""
        outside, fork = self._outside()[0], self.stream()

        def wait(stream: ag.Stream) -> None:
            fork.wait(stream)
            try:
                fork.wait(outside)
            finally:
                if self.status(stream) is CaptureStatus.ACTIVE:
                    stream.wait(fork)

        self._refused_in_a_capture(wait)
        assert self.status(fork) is CaptureStatus.NONE

    @needs(Capability.EVENTS)
    def test_wait_for_an_event_of_another_capture_is_refused(self) -> None:
        """A capturing stream can't wait for an event of another capture; neither loses work silently."""
        first, second, cell, other = self.stream(), self.stream(), self.cell(), self.cell()
        graph, theirs = self.graph(first), self.graph(second)
        theirs.capture_begin()
        self.enqueue(second, other)
        event = second.record()
        graph.capture_begin()
        self.enqueue(first, cell)
        self._refused(lambda: first.wait(event), "foreign_capture")
        captures = (graph, first, cell), (theirs, second, other)
        ended = [self._end(each, stream, cell) for each, stream, cell in captures]
        for (each, stream, cell), as_a_graph in zip(captures, ended, strict=True):
            self._check(each, stream, cell, as_a_graph)

    @needs(Capability.EVENTS)
    def test_wait_for_an_event_of_an_ended_capture_is_refused(self) -> None:
        """No stream can wait for an event of a capture that has ended, whether it became a graph or not."""
        for as_a_graph in (True, False):
            self._refused_after_the_end(as_a_graph)

    def _refused_after_the_end(self, as_a_graph: bool) -> None:
        stream, idle, cell = self.stream(), self.stream(), self.cell()
        graph = self.graph(stream)
        graph.capture_begin()
        self.enqueue(stream, cell)
        event = stream.record()
        self.enqueue(stream, cell)
        if as_a_graph:
            graph.capture_end()
        else:
            graph.reset()
        self._refused(lambda: idle.wait(event), "foreign_capture")
        self.works(idle, self.graph(idle))
        for capturing in (idle, stream):
            self._refused_in_a_capture(lambda stream: stream.wait(event), capturing)
        assert self.read(cell) == 0

    def test_capture_is_a_graph_only_if_it_is_active(self) -> None:
        """After an illegal call, an active capture becomes a complete graph, an invalidated one an error."""
        calls: list[Callable[[ag.Stream], object]] = [ag.Stream.synchronize]
        if self.has(Capability.EVENTS):
            calls.append(ag.Stream.query)
        for call in calls:
            stream, cell, graph = self.setup_capturing()
            if self.backend.recording == "stream":
                self._refused(lambda: call(stream), "illegal_call")  # noqa: B023
            else:
                self.refusal(lambda: call(stream))  # noqa: B023
            self._ends_as_it_says(graph, stream, cell)

    def _timed_event(self, stream: ag.Stream) -> None:
        self.backend.destroy_event(self.backend.record_timed_event(stream.native))

    def _dumped(self, graph: Any) -> None:
        with folder() as path:
            self.backend.dump(graph, str(path / "graph.dot"), False)

    def _outside(self) -> tuple[ag.Stream, Any]:
        """Return a stream that does slow work, and the cell that it works on."""
        stream, cell = self.stream(), self.cell()
        self.enqueue_slow(stream, cell)
        return stream, cell

    def _refused_in_a_capture(
        self,
        wait: Callable[[ag.Stream], None],
        stream: ag.Stream | None = None,
    ) -> None:
        stream, cell = stream or self.stream(), self.cell()
        graph = self.graph(stream)
        graph.capture_begin()
        self.enqueue(stream, cell)
        self._refused(lambda: wait(stream), "foreign_capture")
        self._ends_as_it_says(graph, stream, cell)

    def _refused(self, call: Callable[[], object], reason: str) -> None:
        error = self.refusal(call)
        assert error is not None, f"no error with the reason {reason!r} was raised"
        assert error.reason == reason, f"this error has the wrong reason: {error}"

    def _ends_as_it_says(self, graph: ag.Graph, stream: ag.Stream, cell: Any) -> None:
        self._check(graph, stream, cell, self._end(graph, stream, cell))

    def _end(self, graph: ag.Graph, stream: ag.Stream, cell: Any) -> bool:
        """End a capture that has one piece of work; return True if it became a graph, of two pieces."""
        active = self.status(stream) is CaptureStatus.ACTIVE
        if active:
            self.enqueue(stream, cell)
            graph.capture_end()
        else:
            assert self.status(stream) is CaptureStatus.INVALIDATED
            error = self.refusal(graph.capture_end)
            if error is None:
                raise AssertionError("a capture that was invalidated became a graph")
            assert error.reason in BROKEN, f"this error has the wrong reason: {error}"
        assert self.status(stream) is CaptureStatus.NONE
        return active

    def _check(self, graph: ag.Graph, stream: ag.Stream, cell: Any, as_a_graph: bool) -> None:
        assert self.read(cell) == 0
        if as_a_graph:
            assert self.replayed(graph, cell) == applied(2)
            graph.reset()
        self.works(stream, graph)
