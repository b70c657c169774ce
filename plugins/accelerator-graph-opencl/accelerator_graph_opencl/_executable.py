"""Graphs, and how an executable runs: as a command buffer, or by enqueuing its commands again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from accelerator_graph.errors import DriverError, driver_error

from ._command_buffer import CommandBuffer
from ._queue import Queue, is_complete

if TYPE_CHECKING:
    import pyopencl as cl

    from ._commands import Command
    from ._extension import Extension

_INVALID_OPERATION = -59


class Node(NamedTuple):
    """What one call has recorded."""

    command: Command
    after: tuple[int, ...]
    """The nodes that it depends on. All of them were recorded earlier."""


class Graph:
    """What a capture has recorded, in the order of recording."""

    __slots__ = ("nodes", "origin")

    def __init__(self, nodes: tuple[Node, ...], origin: Queue) -> None:
        self.nodes: tuple[Node, ...] = nodes
        self.origin: Queue = origin


class Executable:
    """A graph that can run. It does not need the `Graph` any more.

    Attributes
    ----------
    buffer : CommandBuffer or None
        None if there can't be one: a run enqueues the commands again.
    """

    __slots__ = ("_context", "_done", "_last", "buffer", "nodes")

    def __init__(self, graph: Graph, extension: Extension | None) -> None:
        self.nodes: tuple[Node, ...] = graph.nodes
        self._context = graph.origin.context
        self.buffer = _recorded(graph, extension) if extension and graph.nodes else None
        self._last: Queue | None = None
        self._done: cl.Event | None = None
        """A marker behind the latest run, if the command buffer can't be enqueued before."""

    def enqueue(self, queue: Queue) -> None:
        """Run once more on a queue, after the previous run."""
        if queue.context != self._context:
            raise driver_error(
                backend="opencl",
                call="replay",
                code=None,
                code_name="CL_INVALID_CONTEXT",
                detail="the stream's context is not the graph's; make the stream with like= the captured one",
            )
        last = self._last
        with queue.lock:  # else the commands of another thread may come between those of one run
            if last is not None and last is not queue:
                queue.wait(last.mark())
            self._last = queue
            try:
                if not self._enqueue_buffer(queue):
                    for command, _ in self.nodes:
                        command.enqueue(queue.handle)
            finally:
                queue.latest = object()
        queue.flush()

    def _enqueue_buffer(self, queue: Queue) -> bool:
        """Return False if the commands have to be enqueued instead."""
        buffer = self.buffer
        if buffer is None or not buffer.accepts(queue):
            return False
        if buffer.extension.simultaneous:
            buffer.enqueue(queue)
            return True
        if self._done is not None and not is_complete(self._done):
            return False
        buffer.enqueue(queue)
        self._done = queue.mark()
        return True

    def unfinished(self) -> cl.Event | None:
        """Return a marker behind the latest run; None if all runs are done."""
        return None if self._last is None else self._last.unfinished()

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


def _recorded(graph: Graph, extension: Extension) -> CommandBuffer | None:
    """Return a command buffer; None if one of the commands can't be in one, such as a kernel that prints."""
    forked = any(node.after != (index - 1,) for index, node in enumerate(graph.nodes) if index)
    buffer = CommandBuffer(extension, graph.origin, out_of_order=forked and extension.out_of_order)
    points: list[int] = []
    try:
        for command, after in graph.nodes:
            points.append(command.record(buffer, [points[each] for each in after]))
    except DriverError as error:
        if error.code == _INVALID_OPERATION:
            return None
        raise
    buffer.finalize()
    return buffer
