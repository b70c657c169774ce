"""The cpu backend's captures, by the rules of a CUDA driver."""

from __future__ import annotations

import threading

from ..._interpreter.sure_exit import Between
from ...errors import DriverError, Reason, driver_error
from ..base import CaptureStatus
from .graph import Node
from .stream import Event, Stream
from .work import Call, name_of

MODES = ("thread_local", "global", "relaxed")


class Capture:
    """What has been recorded, and by which streams."""

    __slots__ = ("ends", "mode", "nodes", "origin", "status", "thread")

    def __init__(self, origin: Stream, mode: str) -> None:
        self.origin = origin
        self.mode = mode
        self.thread = threading.current_thread()
        self.nodes: list[Node] = []
        self.ends: dict[Stream, frozenset[int]] = {origin: frozenset()}
        """The streams that take part, each with the nodes that its next one depends on."""
        self.status = CaptureStatus.NONE
        """NONE before it has begun and after it has ended: what begins and ends it is this assignment."""

    def forbids_waiting(self, thread: threading.Thread) -> bool:
        """Say whether `thread` may not wait even for streams that don't take part."""
        if self.status is CaptureStatus.NONE:
            return False
        return self.mode == "global" or (self.mode == "thread_local" and self.thread is thread)

    def joined(self) -> bool:
        """Say whether the origin has waited for all work of the streams that were forked."""
        last = set(range(len(self.nodes))).difference(*(node.after for node in self.nodes))
        return last <= self.ends[self.origin]


class Captures:
    """All captures that are in progress, and what is permitted meanwhile."""

    __slots__ = ("_lock", "_open", "_relaxed")

    def __init__(self) -> None:
        self._lock = threading.RLock()  # guards all captures, and `Stream.capture`
        self._open: set[Capture] = set()
        self._relaxed: dict[object, threading.Thread] = {}

    def begin(self, stream: Stream, mode: str) -> Capture:
        """Begin a capture. Whatever is raised, none has begun then."""
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
        """End a capture and return what it has recorded. Whatever is raised, it has ended."""
        try:
            with self._lock:
                if capture.status is CaptureStatus.NONE:
                    raise _error("capture_end", "ILLEGAL_STATE", "other", "the capture has ended already")
                if capture.mode != "relaxed" and capture.thread is not threading.current_thread():
                    raise _error("capture_end", "CAPTURE_WRONG_THREAD", "wrong_thread")
                if capture.status is CaptureStatus.INVALIDATED:
                    raise _error("capture_end", "CAPTURE_INVALIDATED", "invalidated")
                if not capture.joined():
                    raise _error("capture_end", "CAPTURE_UNJOINED", "unjoined")
                capture.status = CaptureStatus.NONE
                return capture.nodes
        finally:
            self.close(capture)

    def close(self, capture: Capture) -> None:
        """Leave nothing of a capture, whatever its state."""
        with self._lock:
            capture.status = CaptureStatus.NONE
            for stream in capture.ends:
                if stream.capture is capture:
                    stream.capture = None
            self._open.discard(capture)
            capture.ends = {}
            capture.nodes = []

    def record(self, stream: Stream, name: str, kind: str, call: Call) -> bool:
        """Add a node, if the stream is capturing. Return whether it is."""
        with self._lock:
            capture = _active(stream, name)
            if capture is None:
                return False
            label = name_of(call[0]) if kind == "host" else ""
            capture.nodes.append(Node(kind, label, call, tuple(sorted(capture.ends[stream]))))
            capture.ends[stream] = frozenset({len(capture.nodes) - 1})
            return True

    def mark(self, stream: Stream) -> Event | None:
        """Make an event of what a capturing stream has recorded; None if it is not capturing."""
        with self._lock:
            capture = _active(stream, "record_event")
            return None if capture is None else Event(capture=capture, nodes=capture.ends[stream])

    def link(self, stream: Stream, event: Event) -> bool:
        """Make the stream depend on the event, in its capture. Return False if none is involved."""
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
            other.ends[stream] = other.ends.get(stream, frozenset()) | event.nodes
            stream.capture = other
            return True

    def relaxed(self) -> Between:
        """Return a context in which this thread may wait for streams that no capture takes part in."""
        key = object()
        thread = threading.current_thread()
        return Between(lambda: self._relaxed.__setitem__(key, thread), lambda: self._relaxed.pop(key, None))

    def check_waiting(self, stream: Stream, call: str) -> None:
        """Refuse to wait for a stream where a capture forbids it. That breaks the capture."""
        if not self._open:
            return
        with self._lock:
            own, thread = _of(stream), threading.current_thread()
            others = () if thread in self._relaxed.values() else self._open
            broken = [own] if own else [each for each in others if each.forbids_waiting(thread)]
            for capture in broken:
                capture.status = CaptureStatus.INVALIDATED
        if broken:
            raise _error(call, "CAPTURE_UNSUPPORTED", "illegal_call")


def _of(stream: Stream) -> Capture | None:
    capture = stream.capture
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
