"""What the works of the backends for devices have in common, and what they count."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import accelerator_graph as ag

from .._work import Work

Made = Callable[[Any, tuple[Any, ...]], bool]
"""Whether a call has made or destroyed something, by its answer and its arguments."""


class Counts:
    """The objects that were made since the counting began, less those that were destroyed.

    Parameters
    ----------
    steps : dict
        By the name of a function: the kind of object, and 1 if the function makes one, -1 if it destroys one.
    made : callable
        Whether a call has done so.
    """

    def __init__(self, steps: Mapping[str, tuple[str, int]], made: Made) -> None:
        self._steps = steps
        self._made = made
        self._lock = threading.Lock()
        self.alive: Counter[str] = Counter()

    @contextmanager
    def counting(self, place: Any) -> Iterator[None]:
        """Count the calls of the functions that are attributes of `place`."""
        self.alive.clear()
        with ExitStack() as undo:
            for name in self._steps:
                undo.enter_context(patch.object(place, name, _Counted(self, name, getattr(place, name))))
            yield

    def note(self, name: str, answer: Any, arguments: tuple[Any, ...]) -> None:
        """Count a call."""
        if self._made(answer, arguments):
            kind, step = self._steps[name]
            with self._lock:
                self.alive[kind] += step


class _Counted:
    """A function whose calls are counted."""

    def __init__(self, counts: Counts, name: str, function: Any) -> None:
        self._counts = counts
        self._name = name
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        answer = self._function(*arguments)
        self._counts.note(self._name, answer, arguments)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


ARENA_BYTES = 1 << 22
PAUSE = 2_000_000


class Buffer:
    """Device memory that knows its size."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


class Arena:
    """Memory of a device that is handed out and never comes back: freeing it would break captures."""

    def __init__(self, address: int) -> None:
        self.free: int = address
        self.end: int = address + ARENA_BYTES
        self.lock: threading.Lock = threading.Lock()

    def take(self, nbytes: int) -> int:
        """Return the address of memory that holds 0."""
        with self.lock:
            address, self.free = self.free, self.free + -(-nbytes // 16) * 16
            assert self.free <= self.end, "the arena is used up; make it larger"
            return address


class DeviceWork(Work):
    """Cells in the memory of `device`; a piece of work is a kernel that `enqueue` launches."""

    device: Any
    kernel_name = "step"

    def new(self) -> int:
        """Return the address of a cell."""
        address: int = self.device.take(4)
        return address

    def device_name(self) -> str:
        """Return the vendor's name of the device."""
        name: str = self.device.name()
        return name

    def enqueue(self, stream: ag.Stream, cell: int, a: int, b: int, pause: int = 0) -> None:
        """Launch the kernel, which waits for `pause` nanoseconds between reading and writing the cell."""
        raise NotImplementedError

    def enqueue_slow(self, stream: ag.Stream, cell: int, a: int, b: int) -> None:
        """Launch the kernel with a pause."""
        self.enqueue(stream, cell, a, b, PAUSE)

    def read(self, cell: int) -> int:
        """Copy a cell to the host."""
        return int.from_bytes(self.device.read(cell, 4), "little")

    def buffer(self, nbytes: int) -> Buffer:
        """Return memory of the device."""
        return Buffer(self.device.take(nbytes), nbytes)

    def part(self, buffer: Buffer, start: int) -> Buffer:
        """Return the rest of a buffer."""
        return Buffer(buffer.address + start, buffer.nbytes - start)

    def read_bytes(self, buffer: Buffer) -> bytes:
        """Copy a buffer to the host."""
        found: bytes = self.device.read(buffer.address, buffer.nbytes)
        return found
