"""The captures that are in progress: which streams take part, and what they have recorded.

Nothing that is refused breaks a capture: the call raises, and the capture goes on.
"""

from __future__ import annotations

import threading

from accelerator_graph.errors import DriverError, Reason, driver_error

from ._commands import Command
from ._executable import Graph, Node
from ._stream import Capture, Event, Stream


class Captures:
    """All captures in progress, and what is permitted meanwhile."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.RLock()  # guards all captures, and `Stream.capture`

    def begin(self, stream: Stream) -> Capture:
        """Begin a capture. If anything is raised, none has begun."""
        capture = Capture(stream)
        try:
            with self._lock:
                if stream.active_capture is not None:
                    raise _error("capture_begin", "ILLEGAL_STATE", "foreign_capture")
                stream.capture = capture
                capture.open = True
            return capture
        except BaseException:
            self.close(capture)
            raise

    def end(self, capture: Capture) -> Graph:
        """End a capture and return its graph. If anything is raised, it has ended, too."""
        try:
            with self._lock:
                if not capture.open:
                    raise _error("capture_end", "ILLEGAL_STATE", "other", "the capture has ended already")
                if not capture.is_joined():
                    raise _error("capture_end", "CAPTURE_UNJOINED", "unjoined")
                return Graph(tuple(capture.nodes), capture.origin)
        finally:
            self.close(capture)

    def close(self, capture: Capture) -> None:
        """End a capture in any state, and forget what it has recorded."""
        with self._lock:
            capture.open = False
            for stream in capture.ends:
                if stream.capture is capture:
                    stream.capture = None
            capture.clear()

    def record(self, stream: Stream, command: Command) -> bool:
        """Add a node if the stream is capturing. Return False if it is not."""
        with self._lock:
            capture = stream.active_capture
            if capture is not None:
                capture.add(stream, command)
            return capture is not None

    def record_graph(self, stream: Stream, nodes: tuple[Node, ...]) -> bool:
        """Add the nodes of a graph if the stream is capturing. Return False if it is not."""
        with self._lock:
            capture = stream.active_capture
            if capture is not None:
                capture.add_graph(stream, nodes)
            return capture is not None

    def mark(self, stream: Stream) -> Event | None:
        """Return an event for what a capturing stream has recorded; None if it is not capturing."""
        with self._lock:
            capture = stream.active_capture
            return None if capture is None else Event(stream, capture=capture, nodes=capture.ends[stream])

    def link(self, stream: Stream, event: Event) -> bool:
        """Let the stream's next node depend on the event. Return False if no capture is involved."""
        with self._lock:
            own, other = stream.active_capture, event.capture
            if own is None and other is None:
                return False
            if other is None or not other.open:
                raise _error("wait_event", "CAPTURE_ISOLATION", "foreign_capture")
            if own is not None and own is not other:
                raise _error("wait_event", "CAPTURE_MERGE", "foreign_capture")
            origin = other.origin
            if (stream.context, stream.ordinal) != (origin.context, origin.ordinal):
                raise _error(
                    *("wait_event", "CL_INVALID_CONTEXT", "other"),
                    "a graph's streams must share one device and one context; make the other stream with "
                    "like= the captured one",
                )
            other.ends[stream] = other.ends.get(stream, frozenset()) | event.nodes
            stream.capture = other
            return True

    def check_waiting(self, stream: Stream, call: str) -> None:
        """Raise an error if the stream is capturing, since nothing runs there that could be waited for."""
        if stream.active_capture is not None:
            raise _error(call, "CAPTURE_UNSUPPORTED", "illegal_call")


def _error(call: str, code_name: str, reason: Reason, detail: str = "") -> DriverError:
    return driver_error(
        backend="opencl", call=call, code=None, code_name=code_name, reason=reason, detail=detail
    )
