"""A command buffer: recorded once, enqueued any number of times."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from ctypes import byref, c_int32, c_uint32, c_uint64, c_void_p
from functools import partial
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from ._driver import check, enqueue_barrier, flush, release_event, translated
from ._extension import RECORDING, Extension, lists_properties

if TYPE_CHECKING:
    from ._stream import Stream

_FLAGS = 0x1293  # CL_COMMAND_BUFFER_FLAGS_KHR
_OUT_OF_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE


class CommandBuffer:
    """A command buffer of the extension.

    It is recorded for a queue of its own, since that queue's properties decide in which order the commands
    run: out of order, the given points alone decide. But on an in-order queue they run one after another all
    the same, as Intel's runtime does it, so such a command buffer is enqueued on its own queue, too.
    """

    __slots__ = ("_process", "_queue", "extension", "handle", "out_of_order")

    def __init__(self, extension: Extension, stream: Stream, *, out_of_order: bool = False) -> None:
        self._process = os.getpid()
        self.extension: Extension = extension
        self.out_of_order: bool = out_of_order
        with translated("clCreateCommandQueueWithProperties"):
            how = _OUT_OF_ORDER if out_of_order else 0
            self._queue = cl.CommandQueue(stream.opencl_context, stream.queue.device, properties=how)
        code = c_int32()
        properties = (c_uint64 * 3)(_FLAGS, extension.flags, 0)
        queues = byref(c_void_p(self._queue.int_ptr))
        self.handle: int = extension.functions["create"](1, queues, properties, byref(code))
        check("clCreateCommandBufferKHR", code.value)

    # Found in the class, since a module's names may be gone when the interpreter exits.
    _getpid = staticmethod(os.getpid)
    _is_finalizing = staticmethod(sys.is_finalizing)

    def __del__(self) -> None:
        handle = getattr(self, "handle", None)  # `__init__` may have raised
        if handle and not self._is_finalizing() and self._process == self._getpid():
            self.extension.functions["release"](handle)

    def record(self, kind: str, after: Sequence[int], arguments: Sequence[Any]) -> int:
        """Record a command behind some points; return its own point."""
        point, count = c_uint32(), len(after)
        points = (c_uint32 * count)(*after) if count else None
        listed = (None,) * lists_properties(kind, self.extension.version)
        record = self.extension.functions[kind]
        ending = (count, points, byref(point), None)
        check(RECORDING[kind], record(self.handle, None, *listed, *arguments, *ending))
        return point.value

    def finalize(self) -> None:
        """End the recording."""
        check("clFinalizeCommandBufferKHR", self.extension.functions["finalize"](self.handle))

    def accepts(self, stream: Stream) -> bool:
        """Return True if it can run on a stream."""
        return self.out_of_order or self.extension.accepts(stream.properties)

    def calls(self, stream: Stream, begin: c_void_p, end: c_void_p) -> list[Callable[[], int]]:
        """Return the calls of OpenCL that enqueue one run.

        A run on the queue out of order is between two events on the given one: that of `begin`, whose handle
        has to be there before the first call, and one whose handle is put into `end`, and there until the
        last call.
        """
        enqueue = self.extension.functions["enqueue"]
        if not self.out_of_order:
            return [partial(enqueue, 1, byref(c_void_p(stream.handle)), self.handle, 0, None, None)]
        own = self._queue.int_ptr
        return [
            partial(enqueue, 1, byref(c_void_p(own)), self.handle, 1, byref(begin), byref(end)),
            partial(flush, own),
            partial(enqueue_barrier, stream.handle, 1, byref(end), None),
            partial(release_event, end),
        ]
