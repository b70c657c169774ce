"""Memory and work of backends that launch Python callables on the host's memory."""

from __future__ import annotations

import platform
import time

import accelerator_graph as ag

from .._work import Work


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

    def device_name(self) -> str:
        """Return the kind of processor."""
        return f"the processor ({platform.machine()})"

    def buffer(self, nbytes: int) -> Buffer:
        """Return memory of the process."""
        return Buffer(nbytes)


def step(cell: Cell, a: int, b: int) -> None:
    """Do one piece of work."""
    cell.value = (cell.value * a + b) % 2**32


def slow_step(cell: Cell, a: int, b: int) -> None:
    """Do one piece of work, with a pause between reading and writing the cell."""
    value = cell.value
    time.sleep(0.002)
    cell.value = (value * a + b) % 2**32
