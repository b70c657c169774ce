"""The captures that are in progress on the cpu backend, by the rules of a CUDA driver."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

from ...errors import DriverError, Reason, driver_error
from ..base import CaptureMode, CaptureStatus
from .graph import Node
from .stream import Capture, Event, Stream
from .work import Call, name_of

MODES: tuple[CaptureMode, ...] = ("thread_local", "global", "relaxed")


class _Thread(threading.local):
    def __init__(self) -> None:
        self.relaxed: Any = threading.RLock()


class Captures:
    """All captures in progress, and what is permitted meanwhile."""

    __slots__ = ("_lock", "_open", "_thread")

    def __init__(self) -> None:
        self._lock = threading.RLock()  # guards all captures, and `Stream.capture`
        self._open: set[Capture] = set()
        self._thread = _Thread()

    def begin(self, stream: Stream, mode: CaptureMode) -> Capture:
        """Begin a capture. If anything is raised, none has begun."""
        capture = Capture(stream, mode)
        try:
            with self._lock:
                if _of(stream) is not None:
                    raise _error("capture_begin", "ILLEGAL_STATE", "foreign_capture")
                self._open.add(capture)
                stream.capture = capture
                capture.status = CaptureStatus.ACTIVE
            return capture
        except BaseException:
            self.close(capture)
            raise

    def end(self, capture: Capture) -> list[Node]:
        """End a capture and return what it has recorded. If anything is raised, it has ended, too."""
        try:
            with self._lock:
                if capture.status is CaptureStatus.NONE:
                    raise _error("capture_end", "ILLEGAL_STATE", "other", "the capture has ended already")
                if capture.mode != "relaxed" and capture.thread is not threading.current_thread():
                    raise _error("capture_end", "CAPTURE_WRONG_THREAD", "wrong_thread")
                if capture.status is CaptureStatus.INVALIDATED:
                    raise _error("capture_end", "CAPTURE_INVALIDATED", "invalidated")
                if not capture.is_joined():
                    raise _error("capture_end", "CAPTURE_UNJOINED", "unjoined")
                capture.status = CaptureStatus.NONE
                return capture.nodes
        finally:
            self.close(capture)

    def close(self, capture: Capture) -> None:
        """End a capture in any state, and forget what it has recorded."""
        with self._lock:
            capture.status = CaptureStatus.NONE
            for stream in capture.ends:
                if stream.capture is capture:
                    stream.capture = None
            self._open.discard(capture)
            capture.clear()

    def record(self, stream: Stream, method: str, kind: str, call: Call) -> bool:
        """Add a node if the stream is capturing. Return False if it is not."""
        with self._lock:
            capture = _active(stream, method)
            if capture is None:
                return False
            nodes, name = capture.nodes, name_of(call[0]) if kind == "host" else ""
            after = tuple(sorted(capture.ends[stream]))
            nodes.append(Node(kind, name, call, after, capture.branches[stream]))
            capture.ends[stream] = frozenset({len(nodes) - 1})
            return True

    def mark(self, stream: Stream) -> Event | None:
        """Return an event for what a capturing stream has recorded; None if it is not capturing."""
        with self._lock:
            capture = _active(stream, "record_event")
            return None if capture is None else Event(capture=capture, nodes=capture.ends[stream])

    def link(self, stream: Stream, event: Event) -> bool:
        """Let the stream's next node depend on the event. Return False if no capture is involved."""
        with self._lock:
            own, other = _active(stream, "wait_event"), event.capture
            if own is None and other is None:
                return False
            if other is None or other.status is CaptureStatus.NONE:
                if own is not None:
                    own.status = CaptureStatus.INVALIDATED
                raise _error("wait_event", "CAPTURE_ISOLATION", "foreign_capture")
            if own is not None and own is not other:
                own.status = other.status = CaptureStatus.INVALIDATED
                raise _error("wait_event", "CAPTURE_MERGE", "foreign_capture")
            if other.status is CaptureStatus.INVALIDATED:
                raise _error("wait_event", "CAPTURE_INVALIDATED", "invalidated")
            other.join(stream, event.nodes)
            stream.capture = other
            return True

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
            own, thread = _of(waited), threading.current_thread()
            others = () if self._thread.relaxed._is_owned() else self._open
            broken = [own] if own else [each for each in others if each.forbids_waiting(thread)]
            for capture in broken:
                capture.status = CaptureStatus.INVALIDATED
        if broken:
            raise _error(call, "CAPTURE_UNSUPPORTED", "illegal_call")


def _of(member: Stream | Event) -> Capture | None:
    capture = member.capture
    return None if capture is None or capture.status is CaptureStatus.NONE else capture


def _active(stream: Stream, call: str) -> Capture | None:
    capture = _of(stream)
    if capture is not None and capture.status is CaptureStatus.INVALIDATED:
        raise _error(call, "CAPTURE_INVALIDATED", "invalidated")
    return capture


def _error(call: str, code_name: str, reason: Reason, detail: str = "") -> DriverError:
    return driver_error(
        backend="cpu", call=call, code=None, code_name=code_name, reason=reason, detail=detail
    )
