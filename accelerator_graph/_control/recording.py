"""A capture that turns into segments at its first loop or branch that the host has to test."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .._breaks.marks import thread
from .._breaks.recording import Recording, cut_off
from .._core import capture_table
from .._core.capture import Capture
from .._core.replay import Runner

if TYPE_CHECKING:
    from .._core.capture import Captured, CaptureMode, Where
    from .._core.graph import BaseGraph
    from .._core.pools import Lease, PoolId
    from .._core.streams import Stream


def innermost() -> tuple[Capture, BaseGraph] | None:
    """Return the capture that this thread has begun last, and its graph; None outside of captures."""
    capture = capture_table.innermost()
    return None if capture is None else (capture, capture_table.thread.graphs[id(capture)])


def recording_of(capture: Capture, graph: BaseGraph) -> Recording:
    """Return what records a capture in segments, which it does from now on."""
    breaks = thread.recording
    if breaks is not None and breaks.is_innermost():
        return breaks
    return capture.recording if isinstance(capture, Segment) else SilentRecording(capture, graph)


class SilentRecording(Recording):
    """A capture in segments of which nothing runs, as in every ordinary capture.

    Parameters
    ----------
    capture : Capture
        The capture that has begun, whose work so far becomes the first segment.
    graph : Graph
        Its graph.
    """

    runs = False

    def __init__(self, capture: Capture, graph: BaseGraph) -> None:
        super().__init__(graph, capture.place, capture.lease.id, capture.mode, (), capture.guard)
        self._begun_at = capture.begun_at
        self._place.prepares, self._place.waits_for = False, None
        self.kind = partial(Segment, self)

    def begin_segment(self) -> None:
        """Record what follows."""
        super().begin_segment()
        capture = self._graph._capture
        assert capture is not None
        capture.begun_at = self._begun_at

    def finished(self, capture: Capture, last: Runner) -> Runner:
        """Return what replays the graph, whose last segment has just ended."""
        if self._inside:
            raise cut_off("a loop or a branch")
        self.add(capture, last)
        capture.lease.capturing = False
        runner = self._runner
        runner.finish(self._graph, capture.lease, ran=False)
        capture.retained = [*self.retained()]
        capture.observations.clear()  # each segment has its own
        self._leave()
        return runner


class Segment(Capture):
    """The capture of a segment: its end is that of the whole, unless another segment follows.

    Parameters
    ----------
    recording : SilentRecording
        The capture of the whole.
    place, pool, mode
        As of any capture.
    """

    __slots__ = ("recording",)

    def __init__(
        self, recording: SilentRecording, place: Where, pool: PoolId | None, mode: CaptureMode
    ) -> None:
        self.recording = recording
        super().__init__(place, pool, mode)

    def makes(self, captured: Captured, keep: bool, home: Stream, lease: Lease) -> Runner:
        """Return what replays the graph."""
        return self.recording.finished(self, Runner(captured, keep, home, lease))

    def abandon(self) -> None:
        """End the capture and discard the recording, and all segments before. Calling it twice is fine."""
        try:
            super().abandon()
        finally:
            self.recording.drop()
