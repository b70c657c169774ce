"""How an executable runs: as a command buffer, or by enqueuing its commands again."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_void_p
from typing import TYPE_CHECKING

from accelerator_graph.backends.recording import Graph, Recorded, Run, Runs
from accelerator_graph.errors import DriverError

from ._command_buffer import CommandBuffer
from ._driver import failure, other_context, release_event
from ._stream import Stream

if TYPE_CHECKING:
    from ._extension import Extension

_INVALID_OPERATION = -59


class Executable:
    """A graph that can run. It does not need the `Graph` any more.

    Attributes
    ----------
    buffer : CommandBuffer or None
        None if there can't be one: a run enqueues the commands again.
    """

    __slots__ = ("_context", "buffer", "nodes", "runs")

    def __init__(self, graph: Graph, extension: Extension | None) -> None:
        self.nodes: Sequence[Recorded] = graph.nodes
        self._context = graph.origin.context
        self.buffer = _recorded(graph, extension) if extension and graph.nodes else None
        self.runs: Runs = Runs()

    def enqueue(self, stream: Stream) -> None:
        """Run once more on a stream, after the previous run."""
        if stream.context != self._context:
            detail = "the stream's context is not the graph's; make the stream with like= the captured one"
            raise other_context("replay", detail)
        with stream.lock:  # else the commands of another thread may come between those of one run
            try:
                buffer = self.buffer if self.buffer and self.buffer.accepts(stream) else None
                self.runs.enqueue(_Run(stream, self.nodes, buffer))
            finally:
                stream.latest = object()
        stream.flush()

    def destroy(self) -> None:
        """Forget what to run."""
        self.nodes, self.buffer, self.runs = (), None, Runs()


class _Run(Run):
    """A run on a stream: of commands, or of a command buffer."""

    __slots__ = ("_before", "_begin", "_beside", "_call", "_end", "stream")

    def __init__(self, stream: Stream, nodes: Sequence[Recorded], buffer: CommandBuffer | None) -> None:
        self.stream: Stream = stream
        self._begin, self._end = c_void_p(), c_void_p()
        self._beside = buffer is not None and buffer.out_of_order
        if buffer is None:
            self._call = "replay"
            super().__init__(node.work.on(stream.handle) for node in nodes)
        else:
            self._call = "clEnqueueCommandBufferKHR"
            super().__init__(buffer.calls(stream, self._begin, self._end))

    def follow(self, previous: _Run | None) -> None:
        """Let the stream wait for the run before, and mark where it is then."""
        if previous is not None and previous.stream is not self.stream:
            self.stream.follow(previous.stream.mark())
        if self._beside:
            self._before = self.stream.mark()
            self._begin.value = self._before.int_ptr

    def failed(self, code: int) -> DriverError:
        """Return the error for the code of a call, none of which comes after it."""
        if self._end:
            release_event(self._end)
        return failure(self._call, code)


def _recorded(graph: Graph, extension: Extension) -> CommandBuffer | None:
    """Return a command buffer; None if one of the commands can't be in one, such as a kernel that prints."""
    forked = any(node.after != (index - 1,) for index, node in enumerate(graph.nodes) if index)
    buffer = CommandBuffer(extension, graph.origin, out_of_order=forked and extension.out_of_order)
    points: list[int] = []
    try:
        for command, after, _ in graph.nodes:
            points.append(command.record(buffer, [points[each] for each in after]))
    except DriverError as error:
        if error.code == _INVALID_OPERATION:
            return None
        raise
    buffer.finalize()
    return buffer
