"""A third backend stands on the base for runtimes like CUDA's, and passes the kit."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

import accelerator_graph as ag
from accelerator_graph.testing import BackendConformance, Work
from backends.musa_stub import musart
from lanes import require

pytestmark = require("cpu")

PAUSE = 2_000_000


@musart.kernel(ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64)
def step(cell: int, a: int, b: int, pause: int) -> None:
    """Do ``cell = cell * a + b``, with a pause between reading and writing."""
    place = ctypes.c_uint32.from_address(cell)
    value = place.value
    if pause:
        time.sleep(pause / 1e9)
    place.value = (value * a + b) % 2**32


class MusaWork(Work):
    """Cells in the host's memory; a piece of work is the kernel."""

    backend = "musa_stub"
    for_ever: ClassVar[list[Any]] = []
    """All memory: the runtime works on addresses, and may be behind when a test has ended."""

    def __init__(self, device: int = 0) -> None:
        self.device = device

    def new(self) -> int:
        """Return the address of a cell."""
        self.for_ever.append(ctypes.c_uint32())
        return ctypes.addressof(self.for_ever[-1])

    def buffer(self, nbytes: int) -> Any:
        """Return memory of the process."""
        self.for_ever.append(super().buffer(nbytes))
        return self.for_ever[-1]

    def enqueue(self, stream: ag.Stream, cell: int, a: int, b: int, pause: int = 0) -> None:
        """Launch the kernel."""
        values = ctypes.c_uint64(cell), ctypes.c_uint32(a), ctypes.c_uint32(b), ctypes.c_uint64(pause)
        stream.launch(step, *values, grid=1, block=1)

    def enqueue_slow(self, stream: ag.Stream, cell: int, a: int, b: int) -> None:
        """Launch the kernel with a pause."""
        self.enqueue(stream, cell, a, b, PAUSE)

    def read(self, cell: int) -> int:
        """Return what the cell holds."""
        return ctypes.c_uint32.from_address(cell).value

    def on(self, device: int) -> MusaWork:
        """Return the work for another device, which has the same memory."""
        return MusaWork(device)

    def live_objects(self) -> Mapping[str, int]:
        """Return what the runtime has alive."""
        return musart.alive()

    @contextmanager
    def own_stream(self) -> Iterator[Any]:
        """Make a stream by the binding."""
        assert musart.musaSetDevice(self.device) == (0,)
        _, stream = musart.musaStreamCreateWithPriority(1, 0)
        yield stream
        assert musart.musaStreamDestroy(stream) == (0,)


@contextmanager
def registered() -> Iterator[None]:
    ag.backends.register("musa_stub", "backends.musa_stub.backend:MusaBackend")
    try:
        yield
    finally:
        ag.backends.unregister("musa_stub")


class TestMusa(BackendConformance):
    @pytest.fixture(autouse=True)
    def backend_is_there(self) -> Iterator[None]:
        with registered():
            yield

    @classmethod
    def left_out(cls) -> dict[str, str]:
        with registered():
            return super().left_out()

    def work(self) -> Work:
        return MusaWork()
