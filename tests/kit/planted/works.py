"""Works that are not what they say, for the kit to find: rules about them could not fail."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from unittest.mock import patch

import accelerator_graph as ag
from accelerator_graph.testing import Work
from accelerator_graph.testing.works.host import Cell, HostWork, fails, step
from kit.planted import without_a_fault


class NotSlow(HostWork):
    def enqueue_slow(self, stream: ag.Stream, cell: Cell, a: int, b: int) -> None:
        Work.enqueue_slow(self, stream, cell, a, b)


class SlowBeforeItReads(HostWork):
    def enqueue_slow(self, stream: ag.Stream, cell: Cell, a: int, b: int) -> None:
        stream.launch(time.sleep, 0.002)
        self.enqueue(stream, cell, a, b)


class SlowDoesOtherWork(HostWork):
    def enqueue_slow(self, stream: ag.Stream, cell: Cell, a: int, b: int) -> None:
        super().enqueue_slow(stream, cell, 1, b)


class ReadWaits(HostWork):
    """Waits for all that it has enqueued."""

    def __init__(self, backend: str) -> None:
        super().__init__(backend)
        self.streams: set[ag.Stream] = set()

    def enqueue_slow(self, stream: ag.Stream, cell: Cell, a: int, b: int) -> None:
        self.streams.add(stream)
        super().enqueue_slow(stream, cell, a, b)

    def read(self, cell: Cell) -> int:
        for stream in self.streams:
            stream.synchronize()
        return super().read(cell)


class OneCell(HostWork):
    cell = Cell()

    def new(self) -> Cell:
        return self.cell


class UsedCells(HostWork):
    def new(self) -> Cell:
        cell = super().new()
        cell.value = 1
        return cell


class ForgetsTheValue(HostWork):
    def enqueue(self, stream: ag.Stream, cell: Cell, a: int, b: int) -> None:
        stream.launch(cell.__setattr__, "value", 0)
        stream.launch(step, cell, a, b)


class OneBuffer(HostWork):
    def __init__(self, backend: str) -> None:
        super().__init__(backend)
        self.memory = bytearray(16)

    def buffer(self, nbytes: int) -> memoryview:  # type: ignore[override]
        return memoryview(self.memory)[:nbytes]


class WorkOfADevice(HostWork):
    """No bug: work that reaches its cells only on their device."""

    device = 0

    def own_stream(self) -> None:
        return None

    def on(self, device: int) -> WorkOfADevice:
        there = WorkOfADevice(self.backend)
        there.device = device
        return there

    def enqueue(self, stream: ag.Stream, cell: Cell, a: int, b: int) -> None:
        stream.launch(self.step, cell, a, b)

    def step(self, cell: Cell, a: int, b: int) -> None:
        if without_a_fault.running_on.device == self.device:
            step(cell, a, b)


class KernelWork(HostWork):
    """No bug: a piece of work is a kernel that is no function of Python's."""

    def enqueue(self, stream: ag.Stream, cell: Cell, a: int, b: int) -> None:
        stream.launch(without_a_fault.kernel, cell, a, b, grid=1)


class FullWork(HostWork):
    """No bug: sets `full` of the backend."""

    def exhausted(self, after: int = 0) -> AbstractContextManager[object]:
        return patch.object(ag.backends.get(self.backend), "full", True)


class FailingWork(HostWork):
    """No bug: can fail on any backend that runs callables."""

    def fail(self, stream: ag.Stream) -> bool:
        stream.launch(fails)
        return True
