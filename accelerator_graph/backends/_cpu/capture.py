"""The cpu backend's streams, events and captures, by the rules of a CUDA driver."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

from .. import recording
from ..base import CaptureMode, CaptureStatus
from ..recording import Capture
from .worker import Latch, Worker


class Stream:
    """A stream. Its thread ends after `Worker.stop`."""

    __slots__ = ("__weakref__", "capture", "worker")

    def __init__(self) -> None:
        self.worker: Worker = Worker()
        self.capture: Capture | None = None
        """The capture that the stream takes part in. A capture that has ended counts as none."""


class Event:
    """A point in a stream's work: a latch or, if the stream was capturing, nodes of that capture."""

    __slots__ = ("capture", "latch", "nodes")

    def __init__(
        self,
        latch: Latch | None = None,
        capture: Capture | None = None,
        nodes: frozenset[int] = frozenset(),
    ) -> None:
        self.latch: Latch | None = latch
        self.capture: Capture | None = capture
        self.nodes: frozenset[int] = nodes


MODES: tuple[CaptureMode, ...] = ("thread_local", "global", "relaxed")


class _Thread(threading.local):
    def __init__(self) -> None:
        self.relaxed: Any = threading.RLock()


class CpuCaptures(recording.Captures):
    """All captures in progress, and what is permitted meanwhile. What is refused breaks them."""

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        super().__init__("cpu")
        self._thread = _Thread()

    def refused(self, *captures: Capture | None) -> None:
        """Break the captures."""
        for capture in captures:
            if capture is not None:
                capture.status = CaptureStatus.INVALIDATED

    def check_end(self, capture: Capture) -> None:
        """Raise an error for a thread that has not begun the capture, unless its mode is relaxed."""
        if capture.mode != "relaxed" and capture.thread is not threading.current_thread():
            raise self.error("capture_end", "CAPTURE_WRONG_THREAD", "wrong_thread")

    def relaxed(self) -> AbstractContextManager[Any]:
        """Return a context in which captures of other streams don't forbid this thread to wait.

        It is a lock that only this thread ever takes: no signal is handled inside of its methods.
        """
        lock: AbstractContextManager[Any] = self._thread.relaxed
        return lock

    def check_waiting(self, waited: Stream | Event, call: str) -> None:
        """Raise an error if a capture forbids waiting for a stream or event. The capture is broken then."""
        if not self._open:
            return
        with self._lock:
            own, thread = self.of(waited), threading.current_thread()
            others = () if self._thread.relaxed._is_owned() else self._open
            broken = [own] if own else [each for each in others if _forbids_waiting(each, thread)]
            self.refused(*broken)
        if broken:
            raise self.error(call, "CAPTURE_UNSUPPORTED", "illegal_call")


def _forbids_waiting(capture: Capture, thread: threading.Thread) -> bool:
    """Return True if a thread must not wait even for streams that don't take part in a capture."""
    if capture.status is CaptureStatus.NONE:
        return False
    return capture.mode == "global" or (capture.mode == "thread_local" and capture.thread is thread)
