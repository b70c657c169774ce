"""The part of the kit that a backend's author writes: memory of the device, work on it, and what is alive."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Self

from accelerator_graph import Stream


class Work(ABC):
    """Memory of device 0 of a backend, and one kind of work on it. Written by the backend's author.

    A plug-in names its class, which is called without arguments, with an entry point of the backend's name
    in the group ``accelerator_graph.conformance``.

    `new` and `read` use the runtime directly, not the library, and work on any thread. The kit checks the
    work first, since with wrong work the other rules could not fail.
    """

    backend: str
    """Name of the backend."""

    nodes_per_piece: ClassVar[int | None] = 1
    """How many nodes one `enqueue` adds to a graph; None if that varies."""

    exhausts_memory: ClassVar[bool] = False
    """True if `exhausted` takes away memory: what is refused then has the reason ``"out_of_memory"``."""

    kernel_name: str = ""
    """What `Backend.nodes` has in the name of a node of `enqueue`; empty if the runtime does not report."""

    @abstractmethod
    def new(self) -> Any:
        """Return a cell: 32 bits of the device's memory, holding 0. Never called during a capture.

        A rule that fails may drop cells while work on them is in progress. If your runtime does not keep
        memory until then, keep the cells.
        """

    @abstractmethod
    def enqueue(self, stream: Stream, cell: Any, a: int, b: int) -> None:
        """Enqueue one piece of work: ``cell = (cell * a + b) % 2**32``, read and written without a lock.

        It runs on an idle stream and is recorded on a capturing one. `a` and `b` are less than ``2**32``.
        With the capability ``"enqueue"``, use `Stream.launch`: no other rule launches real work.
        """

    @abstractmethod
    def read(self, cell: Any) -> int:
        """Return what the cell holds now. Called after the streams are synchronised, never in a capture.

        It must not wait for work itself, since that would hide a `synchronize` that does not wait.
        """

    def flag(self, cell: Any) -> tuple[Any, str]:
        """Return a cell as `while_` takes it: memory that `Stream.copy` accepts, and the name of its type.

        The default is the cell and ``"uint32"``.
        """
        return cell, "uint32"

    def enqueue_slow(self, stream: Stream, cell: Any, a: int, b: int) -> None:
        """Like `enqueue`, but wait a millisecond or more between reading and writing the cell.

        This makes errors of order visible that would otherwise be rare. The default is right only if every
        piece of work takes that long.
        """
        self.enqueue(stream, cell, a, b)

    def on(self, device: int) -> Self | None:
        """Return the work for another device; None, the default, if the kit shall use only device 0.

        With it the kit checks that work runs on the device that its stream was made for.
        """
        return None

    def fail(self, stream: Stream) -> bool:
        """Enqueue work that fails when it runs, and return True; False, the default, if there is none.

        It must be a failure that the device survives and the runtime reports.
        """
        return False

    def exhausted(self, after: int = 0) -> AbstractContextManager[object] | None:
        """Return a context manager; None, the default, if there is none.

        Inside it, the runtime makes `after` more objects, and then refuses what it would have to allocate:
        memory, handles or threads.
        """
        return None

    def own_stream(self) -> AbstractContextManager[object] | None:
        """Return a context manager with a stream that the runtime made; None, the default, if there is none.

        It is what users of the runtime have: an object that `Backend.as_stream` recognises, or a handle as
        `int`. The stream is of the work's device, and at its end, nobody uses it any more.
        """
        return None

    def device_name(self) -> str:
        """Return the name of the device, for reports; empty, the default, if it is not known."""
        return ""

    def buffer(self, nbytes: int) -> Any:
        """Return memory of that size, all 0, that `Stream.fill` and `Stream.copy` accept.

        The default is a `bytearray`. Needed with the capability ``"enqueue"``. Objects that can be referenced
        weakly let the kit check that graphs keep them.
        """
        return bytearray(nbytes)

    def read_bytes(self, buffer: Any) -> bytes:
        """Return the contents of a `buffer` now, as `read` does."""
        return bytes(buffer)

    def part(self, buffer: Any, start: int) -> Any | None:
        """Return the memory from byte `start` of a `buffer` to its end; None, the default, if there is none.

        It has to be an object that `Stream.fill` and `Stream.copy` accept. `start` is a multiple of 4096.
        """
        return None

    def live_objects(self) -> Mapping[str, int] | None:
        """Return how many of the runtime's objects are alive, by kind; None, the default, if nobody knows.

        With it the kit looks for leaks of streams, events, graphs and executables. Count by what the runtime
        offers, or by a wrapper around its functions; `live_instances` counts the objects of Python classes.
        """
        return None

    def counting(self) -> AbstractContextManager[object]:
        """Return a context inside which `live_objects` is asked, for wrappers that are there only then."""
        return nullcontext()


A, B = 3, 1
"""The factor and the summand of a piece of work that needs no others."""


def applied(times: int, a: int = A, b: int = B, start: int = 0) -> int:
    """Return what a cell holds after one piece of work has been done several times."""
    for _ in range(times):
        start = (start * a + b) % 2**32
    return start


def live_instances(*modules: str) -> dict[str, int]:
    """Count the objects whose classes are defined in some modules, or in packages of these names.

    It counts what Python's garbage collector tracks, which is every object that can refer to others.

    Parameters
    ----------
    *modules : str
        The names of modules and packages.

    Returns
    -------
    dict of str to int
        The number of objects, by the module and the name of the class.
    """
    packages = tuple(f"{module}." for module in modules)
    kinds = Counter(map(type, gc.get_objects()))
    return {
        f"{kind.__module__}.{kind.__qualname__}": count
        for kind, count in kinds.items()
        if f"{kind.__module__}.".startswith(packages)
    }
