"""Commands: checked and complete, to enqueue or to record. Kernels are checked in `_kernel`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from . import _driver as driver
from ._driver import translated

if TYPE_CHECKING:
    from ._command_buffer import CommandBuffer
    from ._stream import Stream


class Command:
    """One piece of work, of a kind that a `GraphNode` has.

    It keeps the objects that it uses alive, and has references of its own to the memory and the samplers
    among them: an owner may release those, and command buffers don't keep them.
    """

    __slots__ = ("_arguments", "_keep", "kind", "name")

    def __init__(self, kind: str, name: str, arguments: Sequence[Any], keep: Sequence[Any]) -> None:
        self.kind: str = kind
        self.name: str = name
        self._arguments = arguments
        with translated("clRetainMemObject"):
            self._keep = [each for kept in keep for each in (kept, _retained(kept))]

    def on(self, queue: int) -> Callable[[], int]:
        """Return the call of OpenCL that enqueues it on the queue with this handle."""
        return partial(driver.enqueue[self.kind], queue, *self._arguments, 0, None, None)

    def record(self, buffer: CommandBuffer, after: Sequence[int]) -> int:
        """Record it behind some points of a command buffer; return its own point."""
        return buffer.record(self.kind, after, self._arguments)


def _retained(obj: Any) -> object:
    obj = getattr(obj, "base_data", obj)  # an array's
    if isinstance(obj, cl.MemoryObjectHolder):
        return cl.Buffer.from_int_ptr(obj.int_ptr)
    return cl.Sampler.from_int_ptr(obj.int_ptr) if isinstance(obj, cl.Sampler) else None


def fill(stream: Stream, dst: Any, value: int, nbytes: int | None) -> Command | None:
    """Return the command that sets bytes; None if there are none to set."""
    target, offset, count = region_of(dst, nbytes, stream)
    return Command("memset", "", (target, bytes([value]), 1, offset, count), [dst]) if count else None


def copy(stream: Stream, dst: Any, src: Any, nbytes: int | None) -> Command | None:
    """Return the command that copies bytes; None if there are none to copy."""
    source, begin, count = region_of(src, nbytes, stream)
    target, start, _ = region_of(dst, count, stream)
    if not count:
        return None
    if source == target and abs(begin - start) < count:
        raise ValueError("copy: the source and the target overlap; copy through other memory.")
    return Command("memcpy", "", (source, target, begin, start, count), [dst, src])


def read(stream: Stream, src: Any, nbytes: int) -> bytes:
    """Return bytes of a buffer once the work on the queue is done."""
    _, begin, count = region_of(src, nbytes, stream)
    found = bytearray(count)
    buffer = getattr(src, "base_data", src)
    cl.enqueue_copy(stream.queue, found, buffer, src_offset=begin, is_blocking=True)
    return bytes(found)


def region_of(obj: Any, nbytes: int | None, stream: Stream) -> tuple[int, int, int]:
    """Return the handle, the offset and the bytes of a buffer, or of an array without gaps in one.

    Raises
    ------
    TypeError
        The object is not memory of OpenCL.
    ValueError
        It has fewer bytes, has gaps, or is of another context.
    """
    buffer = getattr(obj, "base_data", obj)  # of an array; its module takes long to import
    if not isinstance(buffer, cl.Buffer):
        raise TypeError(
            f"{type(obj).__name__!r} object is not a pyopencl.Buffer or an array in one. A graph can't read "
            "or write host memory; use pyopencl.enqueue_copy with stream.native.queue outside of it."
        )
    if buffer is not obj and not obj.flags.forc:
        raise ValueError("the array is not contiguous; pass a contiguous copy of it.")
    check_context(buffer, stream)
    offset, size = (0, buffer.size) if buffer is obj else (obj.offset, obj.nbytes)
    wanted = size if nbytes is None else operator.index(nbytes)
    if wanted > size:
        raise ValueError(
            f"the {type(obj).__name__!r} object has {size} bytes, not {wanted}; pass a smaller "
            "nbytes or more memory."
        )
    return buffer.int_ptr, offset, wanted


def check_context(obj: Any, stream: Stream) -> None:
    """Raise ValueError if memory, or a kernel, does not belong to the stream's context."""
    with translated("clGetMemObjectInfo" if isinstance(obj, cl.MemoryObjectHolder) else "clGetKernelInfo"):
        context = obj.context.int_ptr
    if context != stream.context:
        raise ValueError(
            f"the {type(obj).__name__!r} object belongs to another context than the stream; make it, or its "
            "program, with stream.native.queue.context."
        )
