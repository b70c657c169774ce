"""The backend, as `accelerator_graph` calls it. Other modules define streams, commands and executables."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from accelerator_graph.backends.base import Availability, Enqueues, RecordsReplays
from accelerator_graph.backends.recording import Captures, Graph, HasCaptures, Retired
from accelerator_graph.errors import BackendUnavailableError

if TYPE_CHECKING:
    from ._commands import Command
    from ._devices import Devices
    from ._executable import Executable
    from ._stream import Stream


_WAY_OUT = "Install a runtime, for example PoCL, or correct OCL_ICD_VENDORS"


class OpenclBackend(HasCaptures, Enqueues, RecordsReplays):
    """In-order queues of OpenCL as streams, and command buffers as executables.

    Where a device has no command buffers, a replay enqueues the recorded commands again. `launch` takes a
    `pyopencl.Kernel`; `fill` and `copy` take a `pyopencl.Buffer`, or an array in one.

    Errors have OpenCL's numeric codes and names. Refusals of this backend have no codes, but the names that
    `recording.Captures` lists, and CL_INVALID_CONTEXT for streams of several contexts.
    """

    __slots__ = ("_devices", "_retired", "captures", "device_count")

    api_version: ClassVar[int] = 1
    priority: ClassVar[int | None] = None
    stream_modules: ClassVar[frozenset[str]] = frozenset({"pyopencl", "accelerator_graph_opencl"})

    _devices: Devices
    _retired: Retired

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
        try:
            from ._devices import Devices
            from ._stream import is_complete

            self._devices, self._retired = Devices(), Retired(is_complete)
            self.captures: Captures = Captures(self.name)
            self.device_count: int = len(self._devices.all)
        except Exception as error:
            raise BackendUnavailableError(
                f"OpenCL can't be initialised: {str(error).rstrip('.')}. {_WAY_OUT}"
            ) from error
        if not self.device_count:
            raise BackendUnavailableError(f"OpenCL finds no device. {_WAY_OUT}")

    def command_buffer_version(self, device: int) -> tuple[int, int, int] | None:
        """Return the version of a device's command buffers; None if commands are enqueued again instead."""
        extension = self._devices.extension(device)
        return None if extension is None else extension.version

    # ---- streams -------------------------------------------------------------------------------

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Stream:
        """Make an in-order queue. Priorities are ignored."""
        return self._devices.create_stream(device, like)

    def destroy_stream(self, stream: Stream) -> None:
        """Let the queue's work begin. The queue goes with the last reference to it."""
        stream.flush()

    def device_of(self, stream: Stream) -> int:
        """Return the position of the stream's device among all devices."""
        return stream.ordinal

    def context_id(self, stream: Stream) -> int:
        """Return the address of the stream's context."""
        return stream.context

    def as_stream(self, obj: object) -> Stream | None:
        """Return the stream of a `pyopencl.CommandQueue`. ValueError if the queue is out of order."""
        return self._devices.as_stream(obj)

    def synchronize(self, stream: Stream) -> None:
        """Wait until all work on the queue is done, no matter who enqueued it."""
        super().synchronize(stream)
        self._retired.sweep()

    # ---- work ----------------------------------------------------------------------------------

    def fill(self, stream: Stream, dst: Any, value: int, nbytes: int | None) -> None:
        """Set bytes of a `pyopencl.Buffer`, or of an array in one."""
        from ._commands import fill

        self._enqueue(stream, fill(stream, dst, value, nbytes))

    def copy(self, stream: Stream, dst: Any, src: Any, nbytes: int | None) -> None:
        """Copy between buffers, or arrays in them."""
        from ._commands import copy

        self._enqueue(stream, copy(stream, dst, src, nbytes))

    def launch(self, stream: Stream, work: Any, /, *args: Any, **how: Any) -> None:
        """Run a `pyopencl.Kernel`: see `_kernel.launch`."""
        from ._kernel import launch

        self._enqueue(stream, launch(stream, work, *args, **how))

    def read(self, stream: Stream, src: Any, nbytes: int) -> bytes:
        """Read a buffer, or an array in one, on the queue, and wait for that."""
        from ._commands import read

        return read(stream, src, nbytes)

    def _enqueue(self, stream: Stream, command: Command | None) -> None:
        if command is not None and not self.captures.record(stream, "launch", command):
            stream.enqueue(command)

    # ---- executables ---------------------------------------------------------------------------

    def instantiate(self, graph: Graph) -> Executable:
        """Make an executable, which is independent of the graph: a command buffer, if there can be one."""
        from ._executable import Executable

        self._retired.sweep()
        return Executable(graph, self._devices.extension(graph.origin.ordinal))

    def replay(self, executable: Executable, stream: Stream) -> None:
        """Run the executable on the stream, or record its nodes if the stream is capturing."""
        if not self.captures.record_graph(stream, executable.nodes):
            executable.enqueue(stream)

    def destroy_executable(self, executable: Executable) -> None:
        """Release the command buffer, and the memory that it uses, when all runs are done.

        A command buffer keeps neither the memory nor the samplers that are arguments of its kernels.
        """
        try:
            self._retired.sweep()
            run = executable.runs.latest
            mark = run and run.stream.unfinished()
            if mark is not None:
                self._retired.keep(mark, (executable.nodes, executable.buffer))
        finally:
            executable.destroy()
