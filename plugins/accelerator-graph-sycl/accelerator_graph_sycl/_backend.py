"""The backend: SYCL's queues and command graphs, as accelerator_graph sees them."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from ctypes import byref
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from weakref import WeakSet

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

from . import _contents as contents
from . import _library
from ._capture import Capture, Captures, Event
from ._executable import Executable, wait_for_runs
from ._launch import launch_sizes
from ._library import Handle, Library

if TYPE_CHECKING:
    from ._memory import Memory


class SyclBackend(Events, Enqueues, ReadsGraphs, RecordsReplays):
    """Streams are in-order `dpctl.SyclQueue` objects, and graphs are those of the SYCL runtime.

    A capturing queue records whatever anyone enqueues: dpctl's own calls as well as `Stream.launch`, which
    takes a `dpctl.program.SyclKernel`. Errors have the numbers and names of ``sycl::errc``; a call that this
    package refuses itself has no number and the name REFUSED.
    """

    __slots__ = ("_captures", "_contexts", "_devices", "_dpctl", "_executables", "_library", "device_count")

    api_version: ClassVar[int] = 1
    priority: ClassVar[int | None] = None
    recording: ClassVar[Literal["stream", "explicit"]] = "stream"
    stream_modules: ClassVar[frozenset[str]] = frozenset({"dpctl"})

    # ---- being there ---------------------------------------------------------------------------

    @classmethod
    def probe(cls) -> Availability:
        """Return whether dpctl and the shim are installed. Neither is loaded."""
        versions = {name: found for name in ("dpctl", "intel-sycl-rt") if (found := _version(name))}
        if find_spec("dpctl") is None:
            return Availability(False, "dpctl is not installed. Install it with: pip install dpctl", versions)
        if _library.path() is None:
            return Availability(
                False,
                "its shim was not compiled. Install the package again from its source folder, with a C++ "
                "compiler: pip install --force-reinstall --no-deps --no-build-isolation PATH",
                versions,
            )
        return Availability(True, versions=versions)

    def open(self) -> None:
        """Load dpctl, the runtime and the shim, and find the devices that support graphs."""
        try:
            import dpctl

            self._library = Library(self.name)
        except (ImportError, OSError) as error:
            raise BackendUnavailableError(f"the SYCL runtime can't be loaded ({error})") from error
        self._dpctl: Any = dpctl
        found = [device for device in dpctl.get_devices() if self._supports_graphs(device)]
        if not found:
            raise BackendUnavailableError(
                "SYCL finds no device that supports graphs. Install a device's driver; for the CPU: pip "
                "install intel-opencl-rt, and set OCL_ICD_FILENAMES to the path of its libintelocl.so"
            )
        self._devices = {device: ordinal for ordinal, device in enumerate(found)}
        self.device_count: int = len(found)
        self._contexts: dict[Any, int] = {}
        self._captures = Captures(self._library)
        self._executables: WeakSet[Executable] = WeakSet()
        atexit.register(wait_for_runs, self._library, self._executables, os.getpid())

    # ---- streams -------------------------------------------------------------------------------

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Any:
        """Make an in-order queue, by default in the device's default context. Priorities are ignored."""
        if like is not None:
            return self._dpctl.SyclQueue(like.sycl_context, like.sycl_device, property="in_order")
        return self._dpctl.SyclQueue(list(self._devices)[device], property="in_order")

    def destroy_stream(self, stream: Any) -> None:
        """Do nothing: a queue is released with the last reference to it."""

    def device_of(self, stream: Any) -> int:
        """Return the ordinal of a queue's device."""
        return self._devices[stream.sycl_device]

    def context_id(self, stream: Any) -> int:
        """Return a number for the queue's context, which is kept alive from now on."""
        return self._contexts.setdefault(stream.sycl_context, len(self._contexts))

    def synchronize(self, stream: Any) -> None:
        """Wait until all work on the queue is done. A capturing queue refuses, and its capture goes on."""
        self._refuse_capturing(stream, "synchronize")
        self._library.call("synchronize", stream.addressof_ref())

    def as_stream(self, obj: object) -> Any | None:
        """Return `obj` if it is a queue that can be captured: in order, on a device that supports graphs."""
        if not isinstance(obj, self._dpctl.SyclQueue):
            return None
        if not obj.is_in_order:
            raise ValueError(
                f"{obj} is out of order and can't be a stream; make it with "
                'dpctl.SyclQueue(property="in_order").'
            )
        if obj.sycl_device not in self._devices:
            raise ValueError(
                f"{obj} is on a device that does not support graphs, or on part of one; use a queue on one "
                "of dpctl.get_devices()."
            )
        return obj

    # ---- capability: events --------------------------------------------------------------------

    def record_event(self, stream: Any, *, timed: bool = False) -> Event:
        """Mark the present end of the queue's work, or of what it has recorded."""
        return self._captures.record(stream)

    def wait_event(self, stream: Any, event: Event) -> None:
        """Let later work on the queue wait for the event: a barrier, which is an empty node in a capture."""
        self._captures.wait(stream, event)

    def destroy_event(self, event: Event) -> None:
        """Delete the runtime's event."""
        event.close()

    def query(self, stream: Any) -> bool:
        """Return True if all work on the queue is done. Raises like `synchronize`."""
        self._refuse_capturing(stream, "query")
        return bool(self._library.ask("query", stream.addressof_ref()))

    # ---- capability: enqueue -------------------------------------------------------------------

    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        """Set bytes of USM memory."""
        from ._memory import memory_of

        target = memory_of(dst, nbytes, writable=True, host=False)
        self._check_context(stream, target)
        self._library.call("memset", stream.addressof_ref(), target.address, value, target.nbytes)

    def copy(self, stream: Any, dst: Any, src: Any, nbytes: int | None) -> None:
        """Copy between USM memory and host memory, in any direction."""
        from ._memory import memory_of

        source = memory_of(src, nbytes, writable=False, host=True)
        target = memory_of(dst, source.nbytes, writable=True, host=True)
        for memory, obj in ((source, src), (target, dst)):
            if hasattr(obj, "__sycl_usm_array_interface__"):
                self._check_context(stream, memory)
        self._library.call("memcpy", stream.addressof_ref(), target.address, source.address, source.nbytes)

    def launch(
        self,
        stream: Any,
        work: Any,
        /,
        *args: Any,
        global_size: int | Sequence[int] = 1,
        local_size: int | Sequence[int] | None = None,
    ) -> None:
        """Enqueue a kernel.

        Parameters
        ----------
        stream : dpctl.SyclQueue
            Where to.
        work : dpctl.program.SyclKernel
            The kernel.
        *args
            What `dpctl.SyclQueue.submit_async` takes: USM memory, and ctypes objects for scalars.
        global_size : int or sequence of int
            How many work-items, in one to three dimensions in SYCL's order: the last one is dimension 0 of
            OpenCL C.
        local_size : int or sequence of int, optional
            How many of them make a work-group; by default the runtime decides.
        """
        from dpctl.program import SyclKernel

        if not isinstance(work, SyclKernel):
            raise TypeError(
                f"backend {self.name!r} launches kernels; {type(work).__name__!r} object is not a "
                "dpctl.program.SyclKernel."
            )
        if len(args) != work.num_args:
            raise TypeError(
                f"kernel {work.get_function_name()!r} takes {work.num_args} arguments, not {len(args)}."
            )
        sizes, local = launch_sizes(global_size, local_size, work.work_group_size)
        try:
            stream.submit_async(work, list(args), sizes, local)
        except self._dpctl.SyclKernelSubmitError as error:
            detail = (
                f"kernel {work.get_function_name()!r} was not submitted; check the types of its arguments"
            )
            raise self._library.refusal("launch", "other", detail, "SyclKernelSubmitError") from error

    # ---- capture -------------------------------------------------------------------------------

    def capture_status(self, stream: Any) -> CaptureStatus:
        """Return whether the queue records, no matter who began it. No call breaks a capture."""
        return CaptureStatus.ACTIVE if self._library.capture_of(stream) else CaptureStatus.NONE

    def capture_info(self, stream: Any) -> CaptureInfo | None:
        """Return the runtime's number of the graph that the queue records into, and how many nodes it has.

        Those of barriers are included. Of a capture that dpctl began, the number is not known.
        """
        number = self._library.capture_of(stream)
        graph = self._captures.graph_of(number)
        count = None if graph is None else contents.node_count(self._library, graph)
        return CaptureInfo(number, count) if number else None

    def capture_begin(self, stream: Any, mode: str) -> Capture:
        """Let the queue record into a new graph."""
        return self._captures.begin(stream)

    def capture_end(self, token: Capture) -> Handle:
        """Let all queues that took part run their work again, and return the graph."""
        return self._captures.end(token)

    def capture_abandon(self, token: Capture) -> None:
        """End the capture if it has not ended, and discard the graph."""
        self._captures.abandon(token)

    # ---- graphs and executables ----------------------------------------------------------------

    def instantiate(self, graph: Handle) -> Executable:
        """Finalize the graph."""
        is_empty = not contents.node_count(self._library, graph)
        executable = Executable(self._library, is_empty=is_empty)
        self._library.call("finalize", graph.address, byref(executable.slot))
        self._executables.add(executable)
        return executable

    def replay(self, executable: Executable, stream: Any) -> None:
        """Enqueue the executable; a capturing queue records it as one node, and nothing if it is empty."""
        if executable.is_empty:
            return
        executable.queue = stream
        self._library.call("replay", executable.address, stream.addressof_ref())

    def native_calls(self, stream: Any) -> SyclCalls:
        """Return replays with all addresses looked up before."""
        return SyclCalls(self._library, stream)

    def destroy_graph(self, graph: Handle) -> None:
        """Delete the runtime's graph. Executables have what they need."""
        graph.close()

    def destroy_executable(self, executable: Executable) -> None:
        """Delete the runtime's executable. Runs in progress complete; graphs that recorded it keep it."""
        executable.close()

    # ---- looking into a graph ------------------------------------------------------------------

    def nodes(self, graph: Handle, executable: Any = None) -> tuple[list[GraphNode], list[GraphEdge]]:
        """List the nodes in the order of recording, and their dependencies. Names are only in `dump`."""
        return contents.list_nodes(self._library, graph)

    def dump(self, graph: Handle, path: str, verbose: bool) -> bool:
        """Let the runtime draw the graph, since only it knows the names of kernels."""
        contents.draw(self._library, graph, path, verbose)
        return True

    # ---- helpers -------------------------------------------------------------------------------

    def _refuse_capturing(self, stream: Any, call: str) -> None:
        if self._library.capture_of(stream):
            raise self._library.refusal(call, "illegal_call")

    def _check_context(self, stream: Any, memory: Memory) -> None:
        """Raise ValueError for memory that is not the queue's: the runtime would crash."""
        if memory.nbytes and not self._library.ask("usm", stream.addressof_ref(), memory.address):
            raise ValueError(
                f"there is no USM memory of the stream's context at {memory.address:#x}; allocate it with "
                "`stream.native` or another queue of that context."
            )

    def _supports_graphs(self, device: Any) -> bool:
        return bool(self._library.ask("supported", device.addressof_ref()))


class SyclCalls(NativeCalls):
    """Replays on one queue."""

    __slots__ = ("_library", "_queue")

    def __init__(self, library: Library, queue: Any) -> None:
        self._library = library
        self._queue = queue

    def bind(self, executable: Executable) -> Callable[[], None]:
        """Return a callable that does what `SyclBackend.replay` does."""
        if executable.is_empty:
            return lambda: None
        replay, error = self._library.function("replay"), self._library.error
        address, stream = executable.address, self._queue
        queue = stream.addressof_ref()

        def launch() -> None:
            executable.queue = stream
            code = replay(address, queue)
            if code:
                raise error("replay", code)

        return launch


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
