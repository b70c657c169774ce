"""The backend, as `accelerator_graph` calls it. Other modules define streams, captures and graphs."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from accelerator_graph.backends.base import (
    Availability,
    CaptureInfo,
    CaptureStatus,
    Enqueues,
    Events,
    GraphEdge,
    GraphNode,
    NativeCalls,
    ReadsGraphs,
    RecordsReplays,
)
from accelerator_graph.errors import BackendUnavailableError

if TYPE_CHECKING:
    from accelerator_graph.backends.recording import Capture

    from ._executable import Executable, Graph
    from ._runtime import Runtime
    from ._stream import Event, Stream


class OpenclBackend(Events, Enqueues, ReadsGraphs, RecordsReplays):
    """In-order queues of OpenCL as streams, and command buffers as executables.

    Where a device has no command buffers, a replay enqueues the recorded commands again. `launch` takes a
    `pyopencl.Kernel`; `fill` and `copy` take a `pyopencl.Buffer`, or an array in one.

    Errors have OpenCL's numeric codes and names. Refusals of this backend have no codes but these names:

    ====================  =======================================================================
    ILLEGAL_STATE         a capture was begun on a capturing stream, or ended twice
    CAPTURE_UNSUPPORTED   a stream was synchronized or queried while it captures
    CAPTURE_ISOLATION     a stream was to wait for work outside its capture, or the reverse
    CAPTURE_MERGE         a stream of one capture was to wait for work of another
    CAPTURE_UNJOINED      the capture was ended before its stream had waited for all forked work
    CL_INVALID_CONTEXT    streams of several contexts or devices were used for one graph
    ====================  =======================================================================
    """

    __slots__ = ("_runtime",)

    api_version: ClassVar[int] = 1
    priority: ClassVar[int | None] = None
    recording: ClassVar[Literal["stream", "explicit"]] = "explicit"
    stream_modules: ClassVar[frozenset[str]] = frozenset({"pyopencl", "accelerator_graph_opencl"})

    _runtime: Runtime

    # ---- being there ---------------------------------------------------------------------------

    @classmethod
    def probe(cls) -> Availability:
        """Look for pyopencl. Whether there is a device, only `open` can tell."""
        if find_spec("pyopencl") is None:
            reason = 'pyopencl is not installed. Install it with: pip install "pyopencl>=2025.1"'
            return Availability(False, reason)
        try:
            return Availability(True, versions={"pyopencl": version("pyopencl")})
        except PackageNotFoundError:
            return Availability(True)

    def open(self) -> None:
        """Import pyopencl, and ask OpenCL for its devices."""
        reason, cause = "OpenCL finds no device", None
        try:
            from ._runtime import Runtime

            self._runtime = Runtime()
            if self._runtime.devices.all:
                return
        except Exception as error:
            reason, cause = f"OpenCL can't be initialised: {str(error).rstrip('.')}", error
        reason += ". Install a runtime, for example PoCL, or correct OCL_ICD_VENDORS"
        raise BackendUnavailableError(
            f"backend {self.name!r} is not available: {reason}.", reasons={self.name: reason}
        ) from cause

    def device_count(self) -> int:
        """Return how many devices all platforms have together."""
        return len(self._runtime.devices.all)

    def command_buffer_version(self, device: int) -> tuple[int, int, int] | None:
        """Return the version of a device's command buffers; None if commands are enqueued again instead."""
        extension = self._runtime.devices.extension(device)
        return None if extension is None else extension.version

    # ---- streams -------------------------------------------------------------------------------

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Stream:
        """Make an in-order queue. Priorities are ignored."""
        return self._runtime.devices.create_stream(device, like)

    def destroy_stream(self, stream: Stream) -> None:
        """Let the queue's work begin. The queue goes with the last reference to it."""
        stream.flush()

    def device_of(self, stream: Stream) -> int:
        """Return the position of the stream's device among all devices."""
        return stream.ordinal

    def context_id(self, stream: Stream) -> int:
        """Return the address of the stream's context."""
        return stream.context

    def synchronize(self, stream: Stream) -> None:
        """Wait until all work on the queue is done, no matter who enqueued it."""
        self._runtime.captures.check_waiting(stream, "synchronize")
        stream.synchronize()

    def as_stream(self, obj: object) -> Stream | None:
        """Return the stream of a `pyopencl.CommandQueue`. ValueError if the queue is out of order."""
        return self._runtime.devices.as_stream(obj)

    # ---- capability: events --------------------------------------------------------------------

    def record_event(self, stream: Stream, *, timed: bool = False) -> Event:
        """Mark the present end of the stream's work, or of what the stream has recorded."""
        return self._runtime.record_event(stream)

    def wait_event(self, stream: Stream, event: Event) -> None:
        """Let later work on the stream wait for the event. An event of a capture takes the stream into it."""
        if not self._runtime.captures.link(stream, event):
            stream.follow(event)

    def query(self, stream: Stream) -> bool:
        """Return True if all work on the queue is done."""
        self._runtime.captures.check_waiting(stream, "query")
        return stream.query()

    # ---- capability: enqueue -------------------------------------------------------------------

    def fill(self, stream: Stream, dst: Any, value: int, nbytes: int | None) -> None:
        """Set bytes of a `pyopencl.Buffer`, or of an array in one."""
        self._runtime.fill(stream, dst, value, nbytes)

    def copy(self, stream: Stream, dst: Any, src: Any, nbytes: int | None) -> None:
        """Copy between buffers, or arrays in them."""
        self._runtime.copy(stream, dst, src, nbytes)

    def launch(self, stream: Stream, work: Any, /, *args: Any, **how: Any) -> None:
        """Run a kernel.

        Parameters
        ----------
        work : pyopencl.Kernel
            Of the stream's context. Its own arguments are neither used nor changed.
        *args
            All of the kernel's arguments: a `pyopencl.Buffer`, image, sampler or `LocalMemory`, shared
            virtual memory, an array that begins with its buffer, None for no memory, or a NumPy scalar of
            the declared type.
        global_size : int or tuple of int
            How many work items, by dimension.
        local_size : int or tuple of int, optional
            How many of them are a group. By default the runtime chooses.
        global_offset : int or tuple of int, optional
            The first global id.
        """
        self._runtime.launch(stream, work, *args, **how)

    # ---- capture -------------------------------------------------------------------------------

    def capture_status(self, stream: Stream) -> CaptureStatus:
        """Return whether the stream takes part in a capture. Nothing breaks one."""
        return self._runtime.captures.status(stream)

    def capture_info(self, stream: Stream) -> CaptureInfo | None:
        """Return a number for the capture that the stream takes part in, and how many commands it has."""
        return self._runtime.captures.info(stream)

    def capture_begin(self, stream: Stream, mode: str) -> Capture:
        """Record what is enqueued through the library from now on, instead of running it."""
        return self._runtime.captures.begin(stream)

    def capture_end(self, token: Capture) -> Graph:
        """End the capture. All streams that took part are ordinary ones again, even if it raises."""
        return self._runtime.end_capture(token)

    def capture_abandon(self, token: Capture) -> None:
        """End the capture if it has not ended, and throw away what was recorded."""
        self._runtime.captures.close(token)

    # ---- graphs and executables ----------------------------------------------------------------

    def instantiate(self, graph: Graph) -> Executable:
        """Make an executable, which is independent of the graph: a command buffer, if there can be one."""
        return self._runtime.instantiate(graph)

    def replay(self, executable: Executable, stream: Stream) -> None:
        """Run the executable on the stream, or record its nodes if the stream is capturing."""
        self._runtime.replay(executable, stream)

    def native_calls(self, stream: Stream) -> OpenclCalls:
        """Return replays with all attributes looked up before."""
        return OpenclCalls(self._runtime, stream)

    def destroy_graph(self, graph: Graph) -> None:
        """Forget what was recorded. Executables have what they need."""
        graph.nodes = ()

    def destroy_executable(self, executable: Executable) -> None:
        """Release the command buffer, and the memory that it uses, when all runs are done."""
        self._runtime.destroy_executable(executable)

    # ---- looking into a graph ------------------------------------------------------------------

    def nodes(self, graph: Graph) -> tuple[list[GraphNode], list[GraphEdge]]:
        """List the recorded commands in order, and the dependencies between them."""
        nodes = [
            GraphNode(index, node.command.kind, node.command.name) for index, node in enumerate(graph.nodes)
        ]
        edges = [
            GraphEdge(source, target) for target, node in enumerate(graph.nodes) for source in node.after
        ]
        return nodes, edges


class OpenclCalls(NativeCalls):
    """Replays on one stream."""

    __slots__ = ("_runtime", "_stream")

    def __init__(self, runtime: Runtime, stream: Stream) -> None:
        self._runtime = runtime
        self._stream = stream

    def bind(self, executable: Executable) -> Callable[[], None]:
        """Return a callable that does what `OpenclBackend.replay` does."""
        stream, replay, enqueue = self._stream, self._runtime.replay, executable.enqueue

        def launch() -> None:
            if stream.capture is None:
                enqueue(stream)
            else:
                replay(executable, stream)

        return launch
