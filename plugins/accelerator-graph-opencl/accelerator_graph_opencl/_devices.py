"""The devices, their contexts, and the streams on them."""

from __future__ import annotations

import threading
from functools import cache
from weakref import WeakValueDictionary

import pyopencl as cl

from ._driver import translated
from ._extension import Extension, extension_of
from ._stream import Stream

_UNORDERED = 1 | 4  # CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_ON_DEVICE


class Devices:
    """All devices of all platforms, in the order in which OpenCL lists them.

    A runtime that the loader knows by two names lists the same devices twice; they count once.
    """

    __slots__ = ("_context", "_lock", "_ordinals", "_streams", "all")

    def __init__(self) -> None:
        self.all: list[cl.Device] = []
        for platform in cl.get_platforms():
            try:
                self.all += (each for each in platform.get_devices() if each not in self.all)
            except cl.Error as error:
                if error.code != cl.status_code.DEVICE_NOT_FOUND:
                    raise
        self._ordinals: dict[int, int] = {each.int_ptr: index for index, each in enumerate(self.all)}
        self._context = cache(lambda ordinal: cl.Context([self.all[ordinal]]))
        self._streams: WeakValueDictionary[int, Stream] = WeakValueDictionary()
        self._lock = threading.RLock()

    def create_stream(self, ordinal: int, like: Stream | None) -> Stream:
        """Make a queue, in the context of `like` or else in the device's own."""
        with translated("clCreateCommandQueueWithProperties"), self._lock:
            context = self._context(ordinal) if like is None else like.opencl_context
            return self._stream(cl.CommandQueue(context, self.all[ordinal]), ordinal)

    def as_stream(self, obj: object) -> Stream | None:
        """Return the stream of a queue.

        Raises
        ------
        ValueError
            The queue is out of order, or on a part of a device.
        """
        if isinstance(obj, Stream):
            return obj
        if not isinstance(obj, cl.CommandQueue):
            return None
        try:
            ordinal, properties = self._ordinals.get(obj.device.int_ptr), int(obj.properties)
            obj.context  # noqa: B018
        except cl.Error as error:
            raise ValueError(f"the queue, or its context, was released: {error}. Keep both.") from error
        if properties & _UNORDERED:
            raise ValueError(
                "the queue executes out of order, and a stream's work has an order; pass a queue that was "
                "made without the property OUT_OF_ORDER_EXEC_MODE_ENABLE."
            )
        if ordinal is None:
            raise ValueError("the queue's device is a sub-device; pass a queue of the whole device.")
        return self._stream(obj, ordinal)

    @cache  # noqa: B019 (as long as the process)
    def extension(self, ordinal: int) -> Extension | None:
        """Return a device's command buffers; None if it has none."""
        return extension_of(self.all[ordinal])

    def _stream(self, queue: cl.CommandQueue, ordinal: int) -> Stream:
        """Return the stream of a queue. As long as it lives, no other queue has the same handle."""
        with self._lock:
            stream = self._streams.get(queue.int_ptr)
            if stream is None:
                stream = self._streams[queue.int_ptr] = Stream(queue, ordinal)
            return stream
