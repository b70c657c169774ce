"""Graphs, and how an executable runs: as a command buffer, or by enqueuing its commands again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from ctypes import c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

from accelerator_graph.backends.recording import Run, Runs
from accelerator_graph.errors import DriverError, driver_error

from ._command_buffer import CommandBuffer
from ._driver import failure, release_event
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

    __slots__ = ("_context", "_free", "_runs", "buffer", "nodes")

    def __init__(self, graph: Graph, extension: Extension | None) -> None:
        self.nodes: tuple[Node, ...] = graph.nodes
        self._context = graph.origin.context
        self.buffer = _recorded(graph, extension) if extension and graph.nodes else None
        self._free: list[cl.Event | None] = [None]
        """A marker behind the latest run of the command buffer, if it can't run twice at once."""
        self._runs = Runs()

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
        with queue.lock:  # else the commands of another thread may come between those of one run
            try:
                self._enqueue(queue)
            finally:
                queue.latest = object()
        queue.flush()

    def _enqueue(self, queue: Queue) -> None:
        buffer = self.buffer
        if buffer is None or not buffer.accepts(queue):
            self._runs.enqueue(_Run(queue, [node.command.on(queue.handle) for node in self.nodes]))
        elif buffer.extension.simultaneous:
            self._runs.enqueue(_BufferRun(queue, buffer))
        else:
            free = self._free.pop() if self._free else _TAKEN
            if free is _TAKEN or (free is not None and not is_complete(free)):
                if free is not _TAKEN:
                    self._free.append(free)
                self._runs.enqueue(_Run(queue, [node.command.on(queue.handle) for node in self.nodes]))
                return
            try:
                self._runs.enqueue(_BufferRun(queue, buffer))
            finally:
                self._free.append(queue.mark())

    def unfinished(self) -> cl.Event | None:
        """Return a marker behind the latest run; None if all runs are done."""
        latest = self._runs.latest
        return None if latest is None else latest.queue.unfinished()

    def destroy(self) -> None:
        """Forget what to run."""
        self.nodes, self.buffer, self._runs = (), None, Runs()


_TAKEN: Any = object()


class _Run(Run):
    """A run on a queue, of commands."""

    __slots__ = ("queue",)

    def __init__(self, queue: Queue, calls: Iterable[Callable[[], int]]) -> None:
        super().__init__(calls)
        self.queue: Queue = queue

    def follow(self, previous: _Run | None) -> None:
        """Let the queue wait for the run before."""
        if previous is not None and previous.queue is not self.queue:
            self.queue.wait(previous.queue.mark())

    def failed(self, code: int) -> DriverError:
        """Return the error for the code of a command."""
        return failure("replay", code)


class _BufferRun(_Run):
    """A run of a command buffer."""

    __slots__ = ("_before", "_begin", "_beside", "_end")

    def __init__(self, queue: Queue, buffer: CommandBuffer) -> None:
        self._begin, self._end = c_void_p(), c_void_p()
        self._beside = buffer.out_of_order
        super().__init__(queue, buffer.calls(queue, self._begin, self._end))

    def follow(self, previous: _Run | None) -> None:
        """Let the queue wait for the run before, and mark where it is then."""
        super().follow(previous)
        if self._beside:
            self._before = self.queue.mark()
            self._begin.value = self._before.int_ptr

    def failed(self, code: int) -> DriverError:
        """Return the error for the code of a call, none of which comes after it."""
        if self._end:
            release_event(self._end)
        return failure("clEnqueueCommandBufferKHR", code)


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
