"""Graphs, and how an executable runs: as a command buffer, or by enqueuing its commands again."""

from __future__ import annotations

import threading
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, NamedTuple

from accelerator_graph.errors import driver_error

from ._command_buffer import CommandBuffer
from ._stream import Stream, is_complete

if TYPE_CHECKING:
    import pyopencl as cl

    from ._commands import Command
    from ._extension import Extension


class Node(NamedTuple):
    """What one call has recorded."""

    command: Command
    after: tuple[int, ...]
    """The nodes that it depends on. All of them were recorded earlier."""


class Graph:
    """What a capture has recorded, in the order of recording.

    Attributes
    ----------
    extension : Extension or None
        None if it can't become a command buffer.
    """

    __slots__ = ("extension", "nodes", "origin")

    def __init__(self, nodes: tuple[Node, ...], origin: Stream, extension: Extension | None) -> None:
        self.nodes = nodes
        self.origin = origin
        self.extension = extension


class Executable:
    """A graph that can run. It does not need the `Graph` any more."""

    __slots__ = ("_context", "_done", "_last", "buffer", "extension", "nodes")

    def __init__(self, graph: Graph) -> None:
        self.nodes = graph.nodes
        self.extension = graph.extension
        self._context = graph.origin.context
        self.buffer = _recorded(graph)
        self._last: Stream | None = None
        self._done: cl.Event | None = None
        """A marker behind the latest run, if the command buffer can't be enqueued before."""

    def enqueue(self, stream: Stream) -> None:
        """Run once more on a stream, after the previous run."""
        if stream.context != self._context:
            raise driver_error(
                backend="opencl",
                call="replay",
                code=None,
                code_name="CL_INVALID_CONTEXT",
                detail="the stream's context is not the graph's; make the stream with like= the captured one",
            )
        last = self._last
        with stream.lock:  # else the commands of another thread may come between those of one run
            if last is not None and last is not stream:
                stream.wait(last.mark())
            self._last = stream
            stream.latest = object()
            if not self._enqueue_buffer(stream):
                for command, _ in self.nodes:
                    command.enqueue(stream.handle)
        stream.flush()

    def _enqueue_buffer(self, stream: Stream) -> bool:
        """Return False if the commands have to be enqueued instead."""
        buffer = self.buffer
        if buffer is None or not buffer.extension.accepts(stream.properties):
            return False
        if buffer.extension.simultaneous:
            buffer.enqueue(byref(c_void_p(stream.handle)))
            return True
        if self._done is not None and not is_complete(self._done):
            return False
        buffer.enqueue(byref(c_void_p(stream.handle)))
        self._done = stream.mark()
        return True

    def unfinished(self) -> cl.Event | None:
        """Return a marker behind the latest run; None if all runs are done."""
        event = None if self._last is None else self._last.mark()
        return None if event is None or is_complete(event) else event

    def destroy(self) -> None:
        """Forget what to run."""
        self.nodes, self.buffer, self._last = (), None, None


class Retired:
    """What runs in progress still need after their executables were destroyed.

    A command buffer keeps neither the memory nor the samplers that are arguments of its kernels.
    """

    __slots__ = ("_lock", "_waiting")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: list[tuple[cl.Event, object]] = []

    def keep(self, executable: Executable) -> None:
        """Keep what an executable uses until its latest run is done."""
        event = executable.unfinished()
        if event is not None:
            with self._lock:
                self._waiting.append((event, (executable.nodes, executable.buffer)))

    def sweep(self) -> None:
        """Let go of what is no longer needed."""
        with self._lock:
            self._waiting = [each for each in self._waiting if not is_complete(each[0])]


def _recorded(graph: Graph) -> CommandBuffer | None:
    if graph.extension is None or not graph.nodes:
        return None
    buffer = CommandBuffer(graph.extension, graph.origin)
    points: list[int] = []
    for command, after in graph.nodes:
        points.append(command.record(buffer, [points[each] for each in after]))
    buffer.finalize()
    return buffer
