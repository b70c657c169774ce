"""What the kit has to be given for a backend: memory of its device, and work on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from accelerator_graph import Stream

if TYPE_CHECKING:
    from typing import Self


class Work(ABC):
    """Memory of device 0 of a backend, and one kind of work on it. Written by the backend's author.

    `new` and `read` use the runtime directly, not the library, and work on any thread. The kit checks
    all this first: rules about work that is not what it should be could not fail.
    """

    backend: str
    """Name of the backend."""

    nodes_per_piece: ClassVar[int | None] = 1
    """How many nodes of a graph one `enqueue` becomes; None if that varies."""

    @abstractmethod
    def new(self) -> Any:
        """Return a cell: 32 bits of the device's memory, holding 0. Never called during a capture."""

    @abstractmethod
    def enqueue(self, stream: Stream, cell: Any, a: int, b: int) -> None:
        """Enqueue one piece of work: ``cell = (cell * a + b) % 2**32``, read and written without a lock.

        Runs on an idle stream, is recorded on a capturing one. `a` and `b` are less than ``2**32``.
        """

    @abstractmethod
    def read(self, cell: Any) -> int:
        """Return what the cell holds now. Called after the streams were synchronised, never in a capture.

        It must not wait for work itself: it would hide a `synchronize` that doesn't wait.
        """

    def enqueue_slow(self, stream: Stream, cell: Any, a: int, b: int) -> None:
        """As `enqueue`, with a millisecond or more between the reading and the writing.

        Makes visible what would otherwise only go wrong now and then. The default will do only where
        every piece of work takes that long.
        """
        self.enqueue(stream, cell, a, b)

    def on(self, device: int) -> Self | None:
        """Return the same for another device; None, the default, if the kit is to use device 0 alone.

        With it the kit sees whether work runs on the device that its stream was made for.
        """
        return None

    def buffer(self, nbytes: int) -> Any:
        """Return memory that `Stream.fill` and `Stream.copy` take, and that knows its size; all 0.

        By default a `bytearray`. Needed with the capability ``"enqueue"``.
        """
        return bytearray(nbytes)

    def read_bytes(self, buffer: Any) -> bytes:
        """Return what a `buffer` holds now, as `read` does."""
        return bytes(buffer)
