"""Memory and work of backends that launch Python callables on the host's memory."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from unittest.mock import patch

import accelerator_graph as ag
from accelerator_graph.backends._cpu import worker
from accelerator_graph.backends.cpu import CpuBackend

from .._work import Work, live_instances


class Cell:
    """An int."""

    def __init__(self) -> None:
        self.value = 0


class Buffer(bytearray):
    """Memory that can be referred to weakly, so that it shows who keeps it."""


class HostWork(Work):
    """Cells in the process's own memory; a piece of work is a callable."""

    def __init__(self, backend: str = "cpu") -> None:
        self.backend = backend

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

    def exhausted(self) -> AbstractContextManager[object] | None:
        """Let the streams of the cpu backend get no threads."""
        return patch.object(worker, "start", no_thread) if self._is_cpu() else None

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
        return live_instances(CpuBackend.__module__.replace(".cpu", "._cpu"), *modules - {"builtins", "abc"})


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


def no_thread(thread: threading.Thread) -> bool:
    """Fail as `threading.Thread.start` does if the system has no more threads."""
    raise RuntimeError("can't start new thread")
