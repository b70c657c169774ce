"""A command buffer: recorded once, enqueued any number of times."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int32, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from ._driver import Owned, check, translated

if TYPE_CHECKING:
    from ._extension import Extension
    from ._stream import Stream

_FLAGS = 0x1293  # CL_COMMAND_BUFFER_FLAGS_KHR
_OUT_OF_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE


class CommandBuffer:
    """A command buffer of the extension.

    It is recorded for a queue of its own, since that queue's properties decide in which order the commands run:
    out of order, the given points alone decide.
    """

    __slots__ = ("_enqueue", "_owned", "_queue", "extension", "handle")

    def __init__(self, extension: Extension, stream: Stream) -> None:
        self.extension = extension
        with translated("clCreateCommandQueueWithProperties"):
            queue, how = stream.queue, _OUT_OF_ORDER if extension.out_of_order else 0
            self._queue = cl.CommandQueue(queue.context, queue.device, properties=how)
        code = c_int32()
        properties = (c_uint64 * 3)(_FLAGS, extension.flags, 0)
        queues = byref(c_void_p(self._queue.int_ptr))
        handle = extension.functions.create(1, queues, properties, byref(code))
        check("clCreateCommandBufferKHR", code.value)
        self._owned = Owned(handle, extension.functions.release)
        self.handle: int = handle
        self._enqueue = extension.functions.enqueue

    def kernel(self, after: Sequence[int], *arguments: Any) -> int:
        """Record a kernel behind some points; return its own point."""
        return self._record("clCommandNDRangeKernelKHR", self.extension.functions.kernel, after, arguments)

    def fill(self, after: Sequence[int], *arguments: Any) -> int:
        """Record a fill behind some points; return its own point."""
        return self._record("clCommandFillBufferKHR", self.extension.functions.fill, after, arguments)

    def copy(self, after: Sequence[int], *arguments: Any) -> int:
        """Record a copy behind some points; return its own point."""
        return self._record("clCommandCopyBufferKHR", self.extension.functions.copy, after, arguments)

    def _record(self, name: str, function: Any, after: Sequence[int], arguments: Sequence[Any]) -> int:
        point, count = c_uint32(), len(after)
        points = (c_uint32 * count)(*after) if count else None
        check(name, function(self.handle, None, None, *arguments, count, points, byref(point), None))
        return point.value

    def finalize(self) -> None:
        """End the recording."""
        check("clFinalizeCommandBufferKHR", self.extension.functions.finalize(self.handle))

    def enqueue(self, queues: Any) -> None:
        """Enqueue one run on an array of one queue."""
        code = self._enqueue(1, queues, self.handle, 0, None, None)
        if code:
            check("clEnqueueCommandBufferKHR", code)
