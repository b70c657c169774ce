"""The cpu backend: streams, events, captures and graphs of Python callables, without an accelerator.

A bare stream on a machine without an accelerator belongs to this backend. It is also the example of a
whole backend: `accelerator_graph.backends.base` says what each method has to do, and this module shows
one way to do it. The folder ``_cpu`` defines what a stream, a capture and a graph are here.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import FunctionType
from typing import Any, ClassVar, Literal

from ._cpu.graph import (
    MODES,
    CpuCaptures,
    Executable,
    Graph,
    Stream,
    copy,
    fill,
    graph_of,
    node_setter,
    parameters,
)
from ._cpu.work import PACKAGE, SUSPENDED, Call, caller, check_callable, name_of, run_calls
from .base import (
    Availability,
    CaptureMode,
    GraphContents,
    MemoryState,
    Misfit,
    NativeCalls,
    NodeParameters,
    NodeSetter,
)
from .memory import memory_of
from .mixins import ChangesGraphs, MarksProgress, RecordsReplays, TimesGraphs, UpdatesGraphs
from .recording import Capture, Event, HasCaptures

_for_ever: list[object] = []
"""Memory that lives as long as the process."""


class CpuBackend(HasCaptures, TimesGraphs, MarksProgress, RecordsReplays, ChangesGraphs, UpdatesGraphs):
    """Streams of Python callables, each with a thread of its own, captured by CUDA's rules.

    `launch` takes a callable and its arguments; `fill` and `copy` take host memory. What a capture forbids
    breaks it, and so does a refused wait. Every event notes the time.

    If a callable raises an exception, the rest of its replay is skipped, and later work on the stream runs.
    The next `synchronize` or `query` of the stream, or of one that has waited for it, raises a `DriverError`
    from the exception, once. The error names the callable and the line that enqueued it. If the stream is
    released or the interpreter exits before anyone has waited, the error goes to `threading.excepthook`.

    When the interpreter exits, work has a second to complete. Later exit handlers and finalizers can still
    use streams: a thread that waits for a stream then does the stream's work itself.

    Errors have no numeric codes, but the names that `recording.Captures` lists, and these:

    ====================  =======================================================================
    WORK_FAILED           a callable raised an exception
    NO_THREAD             the system has no thread for the stream
    THREAD_STOPPED        the interpreter's exit has frozen the stream's thread in the middle of its work
    WOULD_DEADLOCK        a callable synchronized the stream that it runs on
    CAPTURE_WRONG_THREAD  a thread ended a capture that another thread had begun
    ====================  =======================================================================
    """

    __slots__ = ("captures",)

    captures: CpuCaptures

    api_version: ClassVar[int] = 1
    recording: ClassVar[Literal["stream", "explicit"]] = "stream"  # illegal calls break captures, as CUDA's
    capture_modes: ClassVar[tuple[CaptureMode, ...]] = MODES
    stream_modules: ClassVar[frozenset[str]] = frozenset({"accelerator_graph"})
    survives_fork = True

    # ---- being there ---------------------------------------------------------------------------

    @classmethod
    def probe(cls) -> Availability:
        """Return that it is usable, as it always is."""
        return Availability(usable=True, versions={"python": platform.python_version()}, devices=1)

    def open(self) -> None:
        """Begin without captures. A forked child has none of its parent's."""
        self.captures = CpuCaptures()

    # ---- streams -------------------------------------------------------------------------------

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Stream:
        """Make a stream, whose thread starts with the first work. Priorities are ignored."""
        return Stream()

    def destroy_stream(self, stream: Stream) -> None:
        """Let the stream's thread end when all work on it is done."""
        stream.worker.stop()

    def device_of(self, stream: Stream) -> int:
        """Return 0."""
        return 0

    def as_stream(self, obj: object) -> Stream | None:
        """Return `obj` if it is a stream of this backend. Streams have no handles."""
        return obj if isinstance(obj, Stream) else None

    # ---- capability: timing --------------------------------------------------------------------

    def elapsed_time(self, start: Event, end: Event) -> float | None:
        """Return the milliseconds between two events, by the clock `time.perf_counter_ns`."""
        first, last = start.mark, end.mark
        return (last.time - first.time) / 1e6 if first.is_set and last.is_set else None

    # ---- capability: enqueue -------------------------------------------------------------------

    def fill(self, stream: Stream, dst: Any, value: int, nbytes: int | None) -> None:
        """Set bytes of host memory. Arguments are checked here, not when the work runs."""
        memory = memory_of(dst, nbytes, writable=True, device=False)
        self._enqueue(stream, "fill", "memset", (fill, (memory, value), {}, caller()))

    def copy(self, stream: Stream, dst: Any, src: Any, nbytes: int | None) -> None:
        """Copy host memory. Arguments are checked here, not when the work runs."""
        source = memory_of(src, nbytes, writable=False, device=False)
        target = memory_of(dst, source.nbytes, writable=True, device=False)
        self._enqueue(stream, "copy", "memcpy", (copy, (target, source), {}, caller()))

    def read(self, stream: Stream, src: Any, nbytes: int) -> bytes:
        """Wait for the stream's work, and read host memory."""
        memory = memory_of(src, nbytes, writable=False, device=False)
        self.synchronize(stream)
        return ctypes.string_at(memory.address, nbytes)

    def launch(self, stream: Stream, work: Callable[..., object], /, *args: Any, **how: Any) -> None:
        """Call ``work(*args, **how)`` on the stream's thread."""
        code = work.__code__ if type(work) is FunctionType else None
        if code is None or code.co_flags & SUSPENDED:
            check_callable(work)
        site = None if code is not None and code.co_filename.startswith(PACKAGE) else caller()
        call = work, args, how, site
        if stream.capture is None:
            stream.worker.submit(partial(run_calls, (call,)))
        else:
            self._enqueue(stream, "launch", "host", call)

    def _enqueue(self, stream: Stream, method: str, kind: str, call: Call) -> None:
        if stream.capture is not None:
            name = name_of(call[0]) if kind == "host" else ""
            if self.captures.record(stream, method, (kind, name, call)):
                return
        stream.worker.submit(partial(run_calls, (call,)))

    def host_memory(self, stream: Stream, nbytes: int) -> int:
        """Return the address of new memory."""
        memory = ctypes.create_string_buffer(nbytes)
        _for_ever.append(memory)
        return ctypes.addressof(memory)

    # ---- capture -------------------------------------------------------------------------------

    def relaxed(self, stream: Stream) -> AbstractContextManager[None]:
        """Return a context in which captures of other streams don't forbid this thread to wait."""
        return self.captures.relaxed()

    def capture_end(self, token: Capture) -> Graph:
        """End the capture. All streams that took part are ordinary ones again, even if it raises."""
        return graph_of(self.captures.end(token))

    # ---- graphs and executables ----------------------------------------------------------------

    def instantiate(self, graph: Graph) -> Executable:
        """Make an executable, which is independent of the graph."""
        return Executable(graph)

    def replay(self, executable: Executable, stream: Stream) -> None:
        """Run the executable on the stream, or record it as one node if the stream is capturing."""
        if stream.capture is None or not self.captures.record(
            stream, "replay", ("graph", "", executable.as_call())
        ):
            executable.enqueue(stream.worker)

    def native_calls(self, stream: Stream) -> CpuCalls:
        """Return replays with all attributes looked up before."""
        return CpuCalls(self, stream)

    def node_setter(self, graph: Graph, executable: Executable, node: int, *inside: int) -> NodeSetter | None:
        """Return what changes the addresses of a copy, or the address and the value of a fill."""
        return node_setter(executable, (node, *inside))

    def update(self, executable: Executable, former: Graph, graph: Graph) -> Misfit | None:
        """Let later runs make the calls of another graph, if these are of the same kinds and order."""
        return executable.update(graph.nodes)

    def destroy_executable(self, executable: Executable) -> None:
        """Forget what to run. Runs that were enqueued complete."""
        executable.destroy()

    # ---- looking into a graph ------------------------------------------------------------------

    def nodes(self, graph: Graph, executable: Executable | None = None) -> GraphContents:
        """List the recorded calls in order, and the dependencies between them."""
        from ._cpu.contents import list_nodes

        return list_nodes(graph.nodes)

    def instantiate_timed(
        self, graph: Graph, before: Sequence[int], after: Sequence[int]
    ) -> tuple[Executable, Sequence[Event]]:
        """Make an executable that notes the time before and after some of the calls."""
        from ._cpu.contents import with_marks

        nodes, marks = with_marks(graph.nodes, before, after)
        return Executable(Graph(nodes)), [Event(mark) for mark in marks]

    def host_bytes(self, obj: Graph | Executable) -> int:
        """Return the size of the recorded calls, without the callables and the arguments themselves."""
        from ._cpu.contents import host_bytes

        return host_bytes(obj.nodes)

    def memory_at(self, graph: Graph, addresses: Sequence[int]) -> Sequence[MemoryState | None]:
        """Return which addresses lie in memory that the recorded fills and copies keep alive."""
        from ._cpu.contents import held_memory

        spans = held_memory(graph.nodes)
        return ["held" if any(address in span for span in spans) else None for address in addresses]

    def parameters(self, graph: Graph) -> Sequence[NodeParameters]:
        """Return those of fills and copies; what callables do is not known."""
        return [parameters(node) for node in graph.nodes]


class CpuCalls(NativeCalls):
    """Replays on one stream."""

    __slots__ = ("_backend", "_stream")

    def __init__(self, backend: CpuBackend, stream: Stream) -> None:
        self._backend = backend
        self._stream = stream

    def bind(self, executable: Executable) -> Callable[[], None]:
        """Return a callable that does what `CpuBackend.replay` does."""
        stream, replay = self._stream, self._backend.replay
        enqueue, worker = executable.enqueue, stream.worker

        def launch() -> None:
            if stream.capture is None:
                enqueue(worker)
            else:
                replay(executable, stream)

        return launch
