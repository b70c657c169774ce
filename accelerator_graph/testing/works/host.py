"""Memory and work of backends that launch Python callables on the host's memory."""

from __future__ import annotations

import ctypes
import platform
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from unittest.mock import patch

import accelerator_graph as ag
from accelerator_graph.backends._cpu import worker
from accelerator_graph.backends._cpu.graph import Stream
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.backends.recording import Capture

from .._work import Work, live_instances


class Cell(ctypes.c_uint32):
    """An int."""


class Buffer(bytearray):
    """Memory that can be referred to weakly, so that it shows who keeps it."""


class HostWork(Work):
    """Cells in the process's own memory; a piece of work is a callable."""

    def __init__(self, backend: str = "cpu") -> None:
        self.backend = backend

    @property
    def kernel_name(self) -> str:  # type: ignore[override]
        """The function's name, on the cpu backend."""
        return "step" if self._is_cpu() else ""

    def new(self) -> Cell:
        """Return a cell."""
        return Cell()

    def enqueue(self, stream: ag.Stream, cell: Cell, a: int, b: int) -> None:
        """Launch `step`."""
        stream.launch(step, cell, a, b)

    def enqueue_slow(self, stream: ag.Stream, cell: Cell, a: int, b: int) -> None:
        """Launch `slow_step`."""
        stream.launch(slow_step, cell, a, b)

    def read(self, cell: Cell) -> int:
        """Return what the cell holds now."""
        return cell.value

    def fail(self, stream: ag.Stream) -> bool:
        """Launch a callable that raises, if the backend reports that."""
        if self._is_cpu():
            stream.launch(fails)
        return self._is_cpu()

    def exhausted(self, after: int = 0) -> AbstractContextManager[object] | None:
        """Let the streams of the cpu backend get so many threads, and no more."""
        return patch.object(worker, "start", Threads(after)) if self._is_cpu() else None

    def own_stream(self) -> AbstractContextManager[object] | None:
        """Return a stream of the cpu backend's classes."""
        return nullcontext(Stream()) if self._is_cpu() else None

    def _is_cpu(self) -> bool:
        return isinstance(ag.backends.get(self.backend), CpuBackend)

    def device_name(self) -> str:
        """Return the kind of processor."""
        return f"the processor ({platform.machine()})"

    def buffer(self, nbytes: int) -> Buffer:
        """Return memory of the process."""
        return Buffer(nbytes)

    def part(self, buffer: Buffer, start: int) -> memoryview:
        """Return a view."""
        return memoryview(buffer)[start:]

    def live_objects(self) -> Mapping[str, int]:
        """Count the objects of the modules that the backend's class comes from."""
        modules = {kind.__module__ for kind in type(ag.backends.get(self.backend)).__mro__}
        own = CpuBackend.__module__.replace(".cpu", "._cpu"), Capture.__module__
        return live_instances(*own, *modules - {"builtins", "abc"})


def step(cell: Cell, a: int, b: int) -> None:
    """Do one piece of work."""
    cell.value = (cell.value * a + b) % 2**32


def slow_step(cell: Cell, a: int, b: int) -> None:
    """Do one piece of work, with a pause between reading and writing the cell."""
    value = cell.value
    time.sleep(0.002)
    cell.value = (value * a + b) % 2**32


def fails() -> None:
    """Fail, as a piece of work."""
    raise ZeroDivisionError("this piece of work fails")


class Threads:
    """Starts so many threads, then fails as `threading.Thread.start` does if the system has no more."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._start = worker.start

    def __call__(self, thread: threading.Thread) -> bool:
        """Start a thread."""
        if self._left == 0:
            raise RuntimeError("can't start new thread")
        self._left -= 1
        return self._start(thread)
