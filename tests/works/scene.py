"""A few streams, events and a graph of the CUDA driver, and what can be done with them, step by step.

A step is a line such as ``wait a e``, or ``other: wait a e``: a verb and its objects, and before it the
thread, if it is not the present one. ``other`` has the context, ``bare`` has none, ``gone`` has it and
ends after the step. The step answers the driver's code.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cuda.bindings import driver

from .cuda import KERNEL, call, device

TIMEOUT = 60
BYTES = 64
MODES = ("global", "thread_local", "relaxed")
STATUSES = ("none", "active", "invalidated")
_MODES = dict(zip(MODES, driver.CUstreamCaptureMode, strict=True))
_FIXED = {"null": 0, "legacy": 1, "own": 2}


class Scene:
    """Streams ``s`` (non-blocking, if not asked for otherwise), ``a`` and ``b`` (non-blocking), ``k``
    (blocking), ``null``, ``legacy`` and ``own`` (the per-thread one); events by any name, of which
    ``outside`` is recorded on ``b``; one graph, its executable and some memory.
    """

    def __init__(self, mode: str, blocking: bool, context: Any) -> None:
        self.mode = mode
        self.context = context
        with current(context):
            self.streams = {
                name: call(driver.cuStreamCreate, flag)
                for name, flag in (("s", not blocking), ("a", 1), ("b", 1), ("k", 0))
            }
            self.streams |= {name: driver.CUstream(handle) for name, handle in _FIXED.items()}
            self.memory = call(driver.cuMemAlloc, BYTES)
            self.unused = call(driver.cuMemAlloc, BYTES)
            self.left: list[tuple[Callable[..., Any], Any]] = []
            self.events: dict[str, Any] = {}
            self.pools: dict[str, ThreadPoolExecutor] = {}
            for step in ("record outside b", "sync b", "begin a", "fill a"):
                assert self(step) == 0
            self.graph = call(driver.cuStreamEndCapture, self.streams["a"])
            self.executable = call(driver.cuGraphInstantiate, self.graph, 0)

    def __call__(self, step: str) -> int | str:
        """Take a step and return the code, or what was asked for."""
        where, colon, what = step.rpartition(":")
        verb, *names = what.split()
        work = getattr(self, f"do_{verb}")
        if not colon:
            return self._answer(work, names)
        if where == "gone":
            with self._pool(where) as pool:
                return pool.submit(self._answer, work, names).result(TIMEOUT)
        if where not in self.pools:
            self.pools[where] = self._pool(where)
        return self.pools[where].submit(self._answer, work, names).result(TIMEOUT)

    def close(self) -> None:
        """End what goes on and release everything."""
        for pool in self.pools.values():
            pool.submit(driver.cuThreadExchangeStreamCaptureMode, _MODES["global"]).result(TIMEOUT)
            pool.submit(self._end_all, ["own"]).result(TIMEOUT)
            pool.shutdown()
        driver.cuThreadExchangeStreamCaptureMode(_MODES["relaxed"])
        with current(self.context):
            self._end_all([name for name in self.streams if name not in ("null", "legacy")])
            driver.cuThreadExchangeStreamCaptureMode(_MODES["global"])
            call(driver.cuCtxSynchronize)
            for release, handle in reversed(self.left):
                call(release, handle)
            for event in self.events.values():
                call(driver.cuEventDestroy, event)
            if self.executable is not None:
                call(driver.cuGraphExecDestroy, self.executable)
            if self.graph is not None:
                call(driver.cuGraphDestroy, self.graph)
            for name, stream in self.streams.items():
                if name not in _FIXED:
                    call(driver.cuStreamDestroy, stream)
            for memory in (self.memory, self.unused):
                if memory is not None:
                    call(driver.cuMemFree, memory)

    # ---- verbs: captures -----------------------------------------------------------------------

    def do_begin(self, stream: str, mode: str = "") -> Any:
        return driver.cuStreamBeginCapture(self.streams[stream], _MODES[mode or self.mode])

    def do_end(self, stream: str) -> Any:
        code, graph = driver.cuStreamEndCapture(self.streams[stream])
        if code == 0 and int(graph):
            self.left.append((driver.cuGraphDestroy, graph))
        return (code,)

    def do_status(self, stream: str) -> Any:
        code, status = driver.cuStreamIsCapturing(self.streams[stream])
        return STATUSES[int(status)] if code == 0 else (code,)

    def do_info(self, stream: str) -> Any:
        return driver.cuStreamGetCaptureInfo(self.streams[stream])

    def do_exchange(self, mode: str) -> Any:
        return driver.cuThreadExchangeStreamCaptureMode(_MODES[mode])

    # ---- verbs: streams ------------------------------------------------------------------------

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

    # ---- verbs: events -------------------------------------------------------------------------

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

    def do_wait(self, stream: str, event: str) -> Any:
        return driver.cuStreamWaitEvent(self.streams[stream], self._event(event), 0)

    # ---- verbs: memory and work ----------------------------------------------------------------

    def do_alloc(self) -> Any:
        return self._made(driver.cuMemAlloc(BYTES), driver.cuMemFree)

    def do_free(self) -> Any:
        answer = driver.cuMemFree(self.unused)
        if answer[0] == 0:
            self.unused = None
        return answer

    def do_mem_info(self) -> Any:
        return driver.cuMemGetInfo()

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
        return driver.cuLaunchKernel(device().kernel, 1, 1, 1, 1, 1, 1, 0, self.streams[stream], values, 0)

    def do_fill_now(self) -> Any:
        return driver.cuMemsetD8(self.memory, 1, BYTES)

    def do_read_now(self) -> Any:
        return driver.cuMemcpyDtoH(bytearray(BYTES), self.memory, BYTES)

    def do_write_now(self) -> Any:
        return driver.cuMemcpyHtoD(self.memory, bytes(BYTES), BYTES)

    def do_load(self) -> Any:
        return self._made(driver.cuModuleLoadData(KERNEL), driver.cuModuleUnload)

    # ---- verbs: contexts and graphs ------------------------------------------------------------

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
        return driver.cuDeviceGetGraphMemAttribute(device().number, used)

    def do_trim(self) -> Any:
        return driver.cuDeviceGraphMemTrim(device().number)

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

    def _answer(self, work: Callable[..., Any], names: list[str]) -> int | str:
        answer = work(*names)
        return answer if isinstance(answer, str) else int(answer[0])

    def _made(self, answer: Any, release: Callable[..., Any]) -> Any:
        if answer[0] == 0:
            self.left.append((release, answer[1]))
        return answer

    def _event(self, name: str) -> Any:
        if name not in self.events:
            with current(self.context):
                self.events[name] = call(driver.cuEventCreate, 2)
        return self.events[name]

    def _end_all(self, names: list[str]) -> None:
        for name in names:
            code, status = driver.cuStreamIsCapturing(self.streams[name])
            if code == 0 and int(status):
                self.do_end(name)

    def _pool(self, where: str) -> ThreadPoolExecutor:
        if where == "bare":
            return ThreadPoolExecutor(1)
        return ThreadPoolExecutor(1, initializer=driver.cuCtxPushCurrent, initargs=(self.context,))


@contextlib.contextmanager
def scene(mode: str, blocking: bool = False, apart: bool = False) -> Iterator[Scene]:
    """Make a scene, with its context current, and clear it away afterwards.

    With `apart` the context is its own, for what could leave traces in it.
    """
    context = new_context() if apart else device().context
    try:
        made = Scene(mode, blocking, context)
        try:
            with current(context):
                yield made
        finally:
            made.close()
    finally:
        if apart:
            call(driver.cuCtxDestroy, context)


def new_context() -> Any:
    """Make a context on device 0, which is not current afterwards."""
    number = device().number
    try:
        context = call(driver.cuCtxCreate, None, 0, number)  # since CUDA 13
    except TypeError:
        context = call(driver.cuCtxCreate, 0, number)
    call(driver.cuCtxPopCurrent)
    return context


@contextlib.contextmanager
def current(context: Any) -> Iterator[None]:
    """Make a context current for a while."""
    call(driver.cuCtxPushCurrent, context)
    try:
        yield
    finally:
        call(driver.cuCtxPopCurrent)
