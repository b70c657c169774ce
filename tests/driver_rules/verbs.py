"""What can be done with the objects of a scene: every method is a verb, and answers as the driver does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver

from accelerator_graph.testing.works.cuda import KERNEL, call, device
from driver_rules.contexts import current

BYTES = 64
MODES = ("global", "thread_local", "relaxed")
STATUSES = ("none", "active", "invalidated")
CAPTURE_MODES = dict(zip(MODES, driver.CUstreamCaptureMode, strict=True))


class Verbs:
    """What a scene takes its steps with."""

    mode: str
    context: Any
    streams: dict[str, Any]
    events: dict[str, Any]
    memory: Any
    unused: Any
    graph: Any
    executable: Any
    left: list[tuple[Callable[..., Any], Any]]
    """What is to be released, and how."""
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(lambda *_: None)

    # ---- captures -----------------------------------------------------------------------

    def do_begin(self, stream: str, mode: str = "") -> Any:
        return driver.cuStreamBeginCapture(self.streams[stream], CAPTURE_MODES[mode or self.mode])

    def do_end(self, stream: str) -> Any:
        code, graph = driver.cuStreamEndCapture(self.streams[stream])
        if code == 0:
            self.left.append((driver.cuGraphDestroy, graph))
        return (code,)

    def do_forget(self, stream: str) -> Any:
        """Let the next node depend on none."""
        return self._follow(stream, [])

    def do_status(self, stream: str) -> Any:
        code, status = driver.cuStreamIsCapturing(self.streams[stream])
        return STATUSES[int(status)] if code == 0 else (code,)

    def do_info(self, stream: str) -> Any:
        return driver.cuStreamGetCaptureInfo(self.streams[stream])

    def do_exchange(self, mode: str) -> Any:
        return driver.cuThreadExchangeStreamCaptureMode(CAPTURE_MODES[mode])

    # ---- streams ------------------------------------------------------------------------

    def do_create(self) -> Any:
        return self._made(driver.cuStreamCreate(1), driver.cuStreamDestroy)

    def do_destroy(self, stream: str) -> Any:
        answer = driver.cuStreamDestroy(self.streams[stream])
        if answer[0] == 0:
            del self.streams[stream]
        return answer

    def do_sync(self, stream: str) -> Any:
        return driver.cuStreamSynchronize(self.streams[stream])

    def do_query(self, stream: str) -> Any:
        return driver.cuStreamQuery(self.streams[stream])

    def do_device(self, stream: str) -> Any:
        return driver.cuStreamGetDevice(self.streams[stream])

    def do_id(self, stream: str) -> Any:
        return driver.cuStreamGetId(self.streams[stream])

    def do_flags(self, stream: str) -> Any:
        return driver.cuStreamGetFlags(self.streams[stream])

    def do_ctx(self, stream: str) -> Any:
        return driver.cuStreamGetCtx(self.streams[stream])

    def do_priority(self, stream: str) -> Any:
        return driver.cuStreamGetPriority(self.streams[stream])

    # ---- events -------------------------------------------------------------------------

    def do_event_create(self) -> Any:
        return self._made(driver.cuEventCreate(2), driver.cuEventDestroy)

    def do_event_destroy(self, event: str) -> Any:
        return driver.cuEventDestroy(self.events.pop(event))

    def do_event_query(self, event: str) -> Any:
        return driver.cuEventQuery(self._event(event))

    def do_event_sync(self, event: str) -> Any:
        return driver.cuEventSynchronize(self._event(event))

    def do_record(self, event: str, stream: str) -> Any:
        return driver.cuEventRecord(self._event(event), self.streams[stream])

    def do_record_with(self, flags: str, event: str, stream: str) -> Any:
        return driver.cuEventRecordWithFlags(self._event(event), self.streams[stream], int(flags))

    def do_elapsed(self, start: str, end: str) -> Any:
        return driver.cuEventElapsedTime(self._event(start), self._event(end))

    def do_wait(self, stream: str, event: str) -> Any:
        return self.do_wait_with("0", stream, event)

    def do_wait_with(self, flags: str, stream: str, event: str) -> Any:
        return driver.cuStreamWaitEvent(self.streams[stream], self._event(event), int(flags))

    # ---- memory and work ----------------------------------------------------------------

    def do_alloc(self) -> Any:
        return self._made(driver.cuMemAlloc(BYTES), driver.cuMemFree)

    def do_free(self) -> Any:
        answer = driver.cuMemFree(self.unused)
        if answer[0] == 0:
            self.unused = None
        return answer

    def do_mem_info(self) -> Any:
        return driver.cuMemGetInfo()

    def do_alloc_host(self) -> Any:
        return self._made(driver.cuMemHostAlloc(BYTES, 0), driver.cuMemFreeHost)

    def do_alloc_managed(self) -> Any:
        return self._made(driver.cuMemAllocManaged(BYTES, 1), driver.cuMemFree)

    def do_pointer(self) -> Any:
        kind = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        return driver.cuPointerGetAttributes(1, [kind], self.memory)

    def do_pool(self) -> Any:
        return driver.cuDeviceGetDefaultMemPool(device(0).number)

    def do_pool_trim(self) -> Any:
        return driver.cuMemPoolTrimTo(call(driver.cuDeviceGetDefaultMemPool, device(0).number), 0)

    def do_alloc_on(self, stream: str) -> Any:
        now = self.do_status(stream) == "none"
        code, self.recorded = driver.cuMemAllocAsync(BYTES, self.streams[stream])
        return self._made((code, self.recorded), driver.cuMemFree) if now else (code,)

    def do_free_on(self, stream: str) -> Any:
        return driver.cuMemFreeAsync(self.recorded, self.streams[stream])

    def do_fill(self, stream: str) -> Any:
        return driver.cuMemsetD8Async(self.memory, 1, BYTES, self.streams[stream])

    def do_copy(self, stream: str) -> Any:
        return driver.cuMemcpyAsync(self.memory, int(self.memory) + 8, 8, self.streams[stream])

    def do_kernel(self, stream: str) -> Any:
        values = (int(self.memory), 1, 1, 0), (*[ctypes.c_uint64], *[ctypes.c_uint32] * 2, ctypes.c_uint64)
        return driver.cuLaunchKernel(device(0).kernel, 1, 1, 1, 1, 1, 1, 0, self.streams[stream], values, 0)

    def do_callback(self, stream: str) -> Any:
        function = driver.CUstreamCallback(_ptr=ctypes.addressof(self.callback))
        return driver.cuStreamAddCallback(self.streams[stream], function, 0, 0)

    def do_fill_now(self) -> Any:
        return driver.cuMemsetD8(self.memory, 1, BYTES)

    def do_read_now(self) -> Any:
        return driver.cuMemcpyDtoH(bytearray(BYTES), self.memory, BYTES)

    def do_write_now(self) -> Any:
        return driver.cuMemcpyHtoD(self.memory, bytes(BYTES), BYTES)

    def do_load(self) -> Any:
        return self._made(driver.cuModuleLoadData(KERNEL), driver.cuModuleUnload)

    # ---- contexts and graphs ------------------------------------------------------------

    def do_ctx_sync(self) -> Any:
        return driver.cuCtxSynchronize()

    def do_ctx_device(self) -> Any:
        return driver.cuCtxGetDevice()

    def do_retain(self) -> Any:
        number = driver.CUdevice(0)
        return self._made(
            (driver.cuDevicePrimaryCtxRetain(number)[0], number), driver.cuDevicePrimaryCtxRelease
        )

    def do_instantiate(self) -> Any:
        return self._made(driver.cuGraphInstantiate(self.graph, 0), driver.cuGraphExecDestroy)

    def do_upload(self, stream: str) -> Any:
        return driver.cuGraphUpload(self.executable, self.streams[stream])

    def do_launch(self, stream: str) -> Any:
        return driver.cuGraphLaunch(self.executable, self.streams[stream])

    def do_update(self, graph: str = "") -> Any:
        return driver.cuGraphExecUpdate(self.executable, self.cloned if graph else self.graph)

    def do_clone(self) -> Any:
        code, self.cloned = driver.cuGraphClone(self.graph)
        return self._made((code, self.cloned), driver.cuGraphDestroy)

    def do_build(self) -> Any:
        code, graph = self._made(driver.cuGraphCreate(0), driver.cuGraphDestroy)
        return driver.cuGraphAddEmptyNode(graph, [], 0) if code == 0 else (code,)

    def do_graph_memory(self) -> Any:
        used = driver.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT
        return driver.cuDeviceGetGraphMemAttribute(device(0).number, used)

    def do_trim(self) -> Any:
        return driver.cuDeviceGraphMemTrim(device(0).number)

    def do_add_graph(self, stream: str) -> Any:
        return self._added(stream, driver.cuGraphAddChildGraphNode, self.graph)

    def do_add_record(self, stream: str, event: str) -> Any:
        return self._added(stream, driver.cuGraphAddEventRecordNode, self._event(event))

    def do_add_wait(self, stream: str, event: str) -> Any:
        return self._added(stream, driver.cuGraphAddEventWaitNode, self._event(event))

    def do_nodes(self) -> Any:
        return driver.cuGraphGetNodes(self.graph)

    def do_exec_destroy(self) -> Any:
        answer = driver.cuGraphExecDestroy(self.executable)
        if answer[0] == 0:
            self.executable = None
        return answer

    def do_graph_destroy(self) -> Any:
        answer = driver.cuGraphDestroy(self.graph)
        if answer[0] == 0:
            self.graph = None
        return answer

    # ---- what they share -----------------------------------------------------------------------

    def _added(self, stream: str, add: Callable[..., Any], what: Any) -> Any:
        """Add a node to what a stream captures, and let the next one follow it."""
        captures = getattr(driver, "cuStreamGetCaptureInfo_v3", driver.cuStreamGetCaptureInfo)
        _, _, _, graph, nodes, *_, count = captures(self.streams[stream])
        code, node = add(graph, nodes[:count], count, what)
        return (code,) if code else self._follow(stream, [node])

    def _follow(self, stream: str, nodes: list[Any]) -> Any:
        only = driver.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES.value
        try:
            return driver.cuStreamUpdateCaptureDependencies(
                self.streams[stream], nodes, None, len(nodes), only
            )
        except TypeError:  # before CUDA 13
            return driver.cuStreamUpdateCaptureDependencies(self.streams[stream], nodes, len(nodes), only)

    def _made(self, answer: Any, release: Callable[..., Any]) -> Any:
        if answer[0] == 0:
            self.left.append((release, answer[1]))
        return answer

    def _event(self, name: str) -> Any:
        if name not in self.events:
            with current(self.context):
                self.events[name] = call(driver.cuEventCreate, 2)
        return self.events[name]
