"""Commands: fills and copies, checked and complete, to enqueue or to record. Kernels are in `_kernel`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from ._driver import Owned, check, enqueue_copy, enqueue_fill, retained_memory
from ._memory import Region, region_of

if TYPE_CHECKING:
    from ._command_buffer import CommandBuffer
    from ._queue import Queue


class Command(ABC):
    """One piece of work. It keeps the objects that it uses alive."""

    __slots__ = ("_keep", "_retained")

    kind: ClassVar[str]
    name = ""

    def __init__(self, *keep: object) -> None:
        self._keep = keep
        self._retained: Sequence[Owned] = ()

    call: ClassVar[str]

    @abstractmethod
    def on(self, queue: int) -> Callable[[], int]:
        """Return the call of OpenCL that enqueues it on the queue with this handle."""

    def enqueue(self, queue: int) -> None:
        """Enqueue it."""
        check(self.call, self.on(queue)())

    @abstractmethod
    def record(self, buffer: CommandBuffer, after: Sequence[int]) -> int:
        """Record it behind some points of a command buffer; return its own point."""

    @abstractmethod
    def retain(self) -> None:
        """Take references of its own, for use after the owners have released what it uses."""


class Fill(Command):
    """Sets bytes."""

    __slots__ = ("_arguments", "_target")

    kind = "memset"
    call = "clEnqueueFillBuffer"

    def __init__(self, target: Region, value: int) -> None:
        super().__init__(target.owner)
        self._target = target
        self._arguments = (target.handle, bytes([value]), 1, target.offset, target.nbytes)

    def on(self, queue: int) -> Callable[[], int]:
        """Return the fill."""
        return partial(enqueue_fill, queue, *self._arguments, 0, None, None)

    def record(self, buffer: CommandBuffer, after: Sequence[int]) -> int:
        """Record it."""
        return buffer.fill(after, *self._arguments)

    def retain(self) -> None:
        """Retain the memory."""
        self._retained = (retained_memory(self._target.handle),)


class Copy(Command):
    """Copies bytes."""

    __slots__ = ("_arguments", "_handles")

    kind = "memcpy"
    call = "clEnqueueCopyBuffer"

    def __init__(self, target: Region, source: Region) -> None:
        super().__init__(target.owner, source.owner)
        self._handles = target.handle, source.handle
        offsets = source.offset, target.offset
        self._arguments = (source.handle, target.handle, *offsets, source.nbytes)

    def on(self, queue: int) -> Callable[[], int]:
        """Return the copy."""
        return partial(enqueue_copy, queue, *self._arguments, 0, None, None)

    def record(self, buffer: CommandBuffer, after: Sequence[int]) -> int:
        """Record it."""
        return buffer.copy(after, *self._arguments)

    def retain(self) -> None:
        """Retain both memory objects."""
        self._retained = [retained_memory(handle) for handle in self._handles]


def fill(queue: Queue, dst: Any, value: int, nbytes: int | None) -> Fill | None:
    """Return the command that sets bytes; None if there are none to set."""
    target = region_of(dst, nbytes, queue)
    return Fill(target, value) if target.nbytes else None


def copy(queue: Queue, dst: Any, src: Any, nbytes: int | None) -> Copy | None:
    """Return the command that copies bytes; None if there are none to copy."""
    source = region_of(src, nbytes, queue)
    target = region_of(dst, source.nbytes, queue)
    if not source.nbytes:
        return None
    if source.handle == target.handle and abs(source.offset - target.offset) < source.nbytes:
        raise ValueError("copy: the source and the target overlap; copy through other memory.")
    return Copy(target, source)
