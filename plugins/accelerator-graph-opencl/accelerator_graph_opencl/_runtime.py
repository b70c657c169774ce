"""All that exists once for an open backend, and the work that is enqueued through it."""

from __future__ import annotations

from typing import Any

from accelerator_graph.backends.recording import Capture

from . import _commands as commands
from ._capture import Captures
from ._commands import Command
from ._devices import Devices
from ._executable import Executable, Graph, Node, Retired
from ._kernel import kernel_command
from ._stream import Event, Stream


class Runtime:
    """Devices, captures, and executables that were destroyed while they ran."""

    __slots__ = ("_retired", "captures", "devices")

    def __init__(self) -> None:
        self.devices: Devices = Devices()
        self.captures: Captures = Captures("opencl")
        self._retired = Retired()

    def fill(self, stream: Stream, dst: Any, value: int, nbytes: int | None) -> None:
        """Set bytes, now or in a replay."""
        self._enqueue(stream, commands.fill(stream, dst, value, nbytes))

    def copy(self, stream: Stream, dst: Any, src: Any, nbytes: int | None) -> None:
        """Copy bytes, now or in a replay."""
        self._enqueue(stream, commands.copy(stream, dst, src, nbytes))

    def launch(self, stream: Stream, kernel: Any, /, *args: Any, **how: Any) -> None:
        """Run a kernel, now or in a replay."""
        self._enqueue(stream, kernel_command(stream, kernel, *args, **how))

    def _enqueue(self, stream: Stream, command: Command | None) -> None:
        if command is None:  # no bytes
            return
        if stream.capture is not None:
            command.retain()
        if not self.captures.record(stream, "launch", command):
            stream.enqueue(command)

    def record_event(self, stream: Stream) -> Event:
        """Return an event for the present end of the work, or of what the stream has recorded."""
        point = self.captures.mark(stream)
        return stream.record() if point is None else Event(stream, None, *point)

    def end_capture(self, capture: Capture) -> Graph:
        """End a capture and return its graph."""
        work = self.captures.end(capture)
        return Graph(tuple(Node(command, after) for command, after, _ in work), capture.origin)

    def instantiate(self, graph: Graph) -> Executable:
        """Make an executable."""
        self._retired.sweep()
        return Executable(graph, self.devices.extension(graph.origin.ordinal))

    def replay(self, executable: Executable, stream: Stream) -> None:
        """Run an executable, or record its nodes if the stream is capturing."""
        if not self.captures.record_graph(stream, executable.nodes):
            executable.enqueue(stream)

    def destroy_executable(self, executable: Executable) -> None:
        """Forget an executable; what its runs in progress need is kept until they are done."""
        try:
            self._retired.sweep()
            self._retired.keep(executable)
        finally:
            executable.destroy()
