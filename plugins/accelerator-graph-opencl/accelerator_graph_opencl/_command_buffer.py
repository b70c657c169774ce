"""A command buffer: recorded once, enqueued any number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import byref, c_int32, c_uint32, c_uint64, c_void_p
from functools import partial
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from ._driver import Owned, check, enqueue_barrier, flush, release_event, translated

if TYPE_CHECKING:
    from ._extension import Extension
    from ._queue import Queue

_FLAGS = 0x1293  # CL_COMMAND_BUFFER_FLAGS_KHR
_OUT_OF_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE


class CommandBuffer:
    """A command buffer of the extension.

    It is recorded for a queue of its own, since that queue's properties decide in which order the commands
    run: out of order, the given points alone decide. But on an in-order queue they run one after another all
    the same, as Intel's runtime does it, so such a command buffer is enqueued on its own queue, too.
    """

    __slots__ = ("_enqueue", "_owned", "_queue", "extension", "handle", "out_of_order")

    def __init__(self, extension: Extension, queue: Queue, *, out_of_order: bool = False) -> None:
        self.extension: Extension = extension
        self.out_of_order: bool = out_of_order
        with translated("clCreateCommandQueueWithProperties"):
            context, device = queue.opencl_context, queue.queue.device
            how = _OUT_OF_ORDER if out_of_order else 0
            self._queue = cl.CommandQueue(context, device, properties=how)
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

    def accepts(self, queue: Queue) -> bool:
        """Return True if it can run on a queue."""
        return self.out_of_order or self.extension.accepts(queue.properties)

    def calls(self, queue: Queue, begin: c_void_p, end: c_void_p) -> list[Callable[[], int]]:
        """Return the calls of OpenCL that enqueue one run.

        A run on the queue out of order is between two events on the given one: that of `begin`, whose handle
        has to be there before the first call, and one whose handle is put into `end`, and there until the
        last call.
        """
        if not self.out_of_order:
            return [partial(self._enqueue, 1, byref(c_void_p(queue.handle)), self.handle, 0, None, None)]
        own = self._queue.int_ptr
        return [
            partial(self._enqueue, 1, byref(c_void_p(own)), self.handle, 1, byref(begin), byref(end)),
            partial(flush, own),
            partial(enqueue_barrier, queue.handle, 1, byref(end), None),
            partial(release_event, end),
        ]
