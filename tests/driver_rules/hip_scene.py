"""A few streams and events of the bare HIP runtime, a graph, and steps that can be taken with them.

A step is a line such as ``wait a inside``: a verb and its objects. It answers the runtime's code.
"""

import ctypes
import os
import threading
from ctypes import CFUNCTYPE, byref, c_int, c_size_t, c_uint64, c_void_p

from backends.hip.bench import (
    NO_TIMING,
    NON_BLOCKING,
    Block,
    answer,
    bare_begin,
    bare_end,
    bare_stream,
    call,
    loaded,
    made,
    status_of,
    until,
)
from threads import in_thread

HOST_FUNCTION = CFUNCTYPE(None, c_void_p)(lambda given: None)
CALLBACK = CFUNCTYPE(None, c_void_p, c_int, c_void_p)(lambda stream, code, given: None)
TO_DEVICE, ON_DEVICE = 1, 3
SIZE = 64


class Scene:
    """Streams ``s`` (blocking or not), ``a`` and ``b`` (non-blocking), ``null`` and ``own`` (the per-thread
    one); events ``fresh``, ``outside`` (recorded on ``b``) and ``before`` (on ``s``); one graph and its
    executable.
    """

    def __init__(self, blocking=False):
        self.streams = {
            "s": bare_stream(0 if blocking else NON_BLOCKING),
            "a": bare_stream(),
            "b": bare_stream(),
        }
        self.streams |= {"null": 0, "own": 2}
        self.memory, self.unused = Block(SIZE), Block(SIZE)
        self.host = ctypes.create_string_buffer(SIZE)
        self.pinned = made("hipHostMalloc", SIZE, 0)
        self.events = {
            name: made("hipEventCreateWithFlags", NO_TIMING)
            for name in ("fresh", "outside", "before", "inside")
        }
        assert self("record outside b") == self("sync b") == 0
        assert self("record before s") == self("sync s") == 0
        assert bare_begin(self.streams["a"], "relaxed") == self("fill a") == 0
        code, self.graph = bare_end(self.streams["a"])
        assert code == 0
        self.executable = made("hipGraphInstantiateWithFlags", self.graph, c_uint64(1))
        self.kernel = loaded().geometry if Scene.kernel is None else Scene.kernel
        Scene.kernel = self.kernel
        call("hipDeviceSynchronize")
        self.gone = set()
        self.unended = ""  # the mode of a capture on `s` that could not be ended

    kernel = None

    def __call__(self, step):
        """Take a step and return the code."""
        verb, *names = step.split()
        return getattr(self, f"do_{verb}")(*names)

    def in_thread(self, step):
        """Take a step in a thread of its own, and wait for its end: of what is on its own stream, too.

        Nobody else waits for that stream while its thread ends, `hipFree` not either.
        """
        code, ident = in_thread(lambda: (self(step), threading.get_native_id()))
        assert until(lambda: not os.path.exists(f"/proc/self/task/{ident}"))
        return code

    def end(self):
        """End the capture on ``s``: the code, and how many nodes the graph has."""
        code, graph = bare_end(self.streams["s"])
        if code:
            return code, None
        count = c_size_t()
        call("hipGraphGetNodes", graph, None, byref(count))
        call("hipGraphDestroy", graph)
        return code, count.value

    def close(self):
        """Bring the stream ``s`` back, as the backend does, and release everything."""
        stream = self.streams["s"]
        if self.unended and "s" not in self.gone:
            answer("hipStreamQuery", stream)
            if self.unended != "relaxed":
                bare_end(stream)
        if "s" not in self.gone and status_of(stream) != "none":
            bare_begin(stream, "relaxed")
            bare_end(stream)
        answer("hipDeviceSynchronize")
        for name in ("s", "a", "b"):
            if name not in self.gone:
                answer("hipStreamDestroy", self.streams[name])
        for name, event in self.events.items():
            if name not in self.gone:
                answer("hipEventDestroy", event)
        if "executable" not in self.gone:
            answer("hipGraphExecDestroy", self.executable)
        if "graph" not in self.gone:
            answer("hipGraphDestroy", self.graph)
        answer("hipFree", self.memory.pointer)
        answer("hipFree", self.unused.pointer)
        answer("hipHostFree", self.pinned)
        answer("hipGetLastError")

    # ---- asking and waiting ----------------------------------------------------------------------

    def do_device_sync(self):
        return answer("hipDeviceSynchronize")

    def do_sync(self, on):
        return answer("hipStreamSynchronize", self.streams[on])

    def do_query(self, on):
        return answer("hipStreamQuery", self.streams[on])

    def do_device(self, on):
        return answer("hipStreamGetDevice", self.streams[on], byref(c_int()))

    def do_flags(self, on):
        return answer("hipStreamGetFlags", self.streams[on], byref(c_int()))

    def do_priority(self, on):
        return answer("hipStreamGetPriority", self.streams[on], byref(c_int()))

    def do_status(self, on):
        return answer("hipStreamIsCapturing", self.streams[on], byref(c_int()))

    def do_info(self, on):
        where = byref(c_int()), byref(c_uint64())
        return answer("hipStreamGetCaptureInfo_v2", self.streams[on], *where, None, None, None)

    def do_range(self):
        return answer("hipDeviceGetStreamPriorityRange", byref(c_int()), byref(c_int()))

    def do_set_device(self):
        return answer("hipSetDevice", 0)

    def do_mem_info(self):
        return answer("hipMemGetInfo", byref(c_size_t()), byref(c_size_t()))

    # ---- work ------------------------------------------------------------------------------------

    def do_fill(self, on):
        return answer("hipMemsetAsync", self.memory.pointer, 1, SIZE, self.streams[on])

    def do_copy(self, on):
        half = SIZE // 2
        return answer(
            "hipMemcpyAsync",
            self.memory.pointer,
            self.memory.pointer + half,
            half,
            ON_DEVICE,
            self.streams[on],
        )

    def do_copy_pageable(self, on):
        return answer("hipMemcpyAsync", self.memory.pointer, self.host, SIZE, TO_DEVICE, self.streams[on])

    def do_kernel(self, on):
        value = c_void_p(self.memory.pointer)
        places = (c_void_p * 1)(ctypes.addressof(value))
        return answer("hipModuleLaunchKernel", self.kernel, *[1] * 6, 0, self.streams[on], places, None)

    def do_host_function(self, on):
        return answer("hipLaunchHostFunc", self.streams[on], HOST_FUNCTION, None)

    def do_callback(self, on):
        return answer("hipStreamAddCallback", self.streams[on], CALLBACK, None, 0)

    def do_fill_now(self):
        return answer("hipMemset", self.memory.pointer, 1, SIZE)

    def do_write_now(self):
        return answer("hipMemcpy", self.memory.pointer, self.host, SIZE, TO_DEVICE)

    # ---- memory ----------------------------------------------------------------------------------

    def do_alloc(self):
        return self._made("hipMalloc", "hipFree", SIZE)

    def do_alloc_host(self):
        return self._made("hipHostMalloc", "hipHostFree", SIZE, 0)

    def do_alloc_on(self, on):
        return self._made("hipMallocAsync", None, SIZE, self.streams[on])

    def do_free(self):
        return answer("hipFree", c_void_p())

    def do_trim(self):
        return answer("hipDeviceGraphMemTrim", 0)

    def do_graph_memory(self):
        return answer("hipDeviceGetGraphMemAttribute", 0, 0, byref(c_uint64()))

    # ---- streams and events ----------------------------------------------------------------------

    def do_create(self):
        return self._made("hipStreamCreateWithPriority", "hipStreamDestroy", NON_BLOCKING, 0)

    def do_destroy(self, on):
        code = answer("hipStreamDestroy", self.streams[on])
        if code == 0:
            self.gone.add(on)
        return code

    def do_event_create(self):
        return self._made("hipEventCreateWithFlags", "hipEventDestroy", NO_TIMING)

    def do_event_destroy(self, event):
        self.gone.add(event)
        return answer("hipEventDestroy", self.events[event])

    def do_event_query(self, event):
        return answer("hipEventQuery", self.events[event])

    def do_event_sync(self, event):
        return answer("hipEventSynchronize", self.events[event])

    def do_record(self, event, on):
        return answer("hipEventRecord", self.events[event], self.streams[on])

    def do_wait(self, on, event):
        return answer("hipStreamWaitEvent", self.streams[on], self.events[event], 0)

    # ---- graphs ----------------------------------------------------------------------------------

    def do_add_child(self, on):
        return self._add("hipGraphAddChildGraphNode", on, self.graph)

    def do_add_record(self, on, event):
        return self._add("hipGraphAddEventRecordNode", on, self.events[event])

    def do_add_wait(self, on, event):
        return self._add("hipGraphAddEventWaitNode", on, self.events[event])

    def _add(self, function, on, what):
        """Add a node to what a stream captures, as its next one."""
        status, graph, before = c_int(), c_void_p(), c_void_p()
        count, node = c_size_t(), c_void_p()
        found = map(byref, (status, c_uint64(), graph, before, count))
        return (
            answer("hipStreamGetCaptureInfo_v2", self.streams[on], *found)
            or answer(function, byref(node), graph, before, count, what)
            or answer("hipStreamUpdateCaptureDependencies", self.streams[on], byref(node), c_size_t(1), 1)
        )

    def do_begin(self, on):
        return bare_begin(self.streams[on], "thread_local")

    def do_instantiate(self):
        return self._made("hipGraphInstantiateWithFlags", "hipGraphExecDestroy", self.graph, c_uint64(1))

    def do_update(self):
        return answer("hipGraphExecUpdate", self.executable, self.graph, byref(c_void_p()), byref(c_int()))

    def do_upload(self, on):
        return answer("hipGraphUpload", self.executable, self.streams[on])

    def do_launch(self, on):
        return answer("hipGraphLaunch", self.executable, self.streams[on])

    def do_nodes(self):
        return answer("hipGraphGetNodes", self.graph, None, byref(c_size_t()))

    def do_edit(self):
        """Add a node and take it away."""
        node = c_void_p()
        code = answer("hipGraphAddEmptyNode", byref(node), self.graph, None, 0)
        return code or answer("hipGraphDestroyNode", node)

    def do_exec_destroy(self):
        self.gone.add("executable")
        return answer("hipGraphExecDestroy", self.executable)

    def do_graph_destroy(self):
        self.gone.add("graph")
        return answer("hipGraphDestroy", self.graph)

    def _made(self, make, release, *args):
        handle = c_void_p()
        code = answer(make, byref(handle), *args)
        if code == 0 and release:
            answer(release, handle)
        return code
