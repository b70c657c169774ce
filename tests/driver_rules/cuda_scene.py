"""A few streams, events and a graph of the CUDA driver, and what can be done with them, step by step.

A step is a line such as ``wait a e``, or ``other: wait a e``: a verb and its objects, and before it the
thread, if it is not the present one. ``other`` has the context, ``bare`` has none, ``gone`` has it and
ends after the step. The step answers the driver's code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cuda.bindings import driver

from accelerator_graph.testing.works.cuda import call, device
from driver_rules.contexts import current, new_context
from driver_rules.verbs import BYTES, CAPTURE_MODES, Verbs

TIMEOUT = 60
_FIXED = {"null": 0, "legacy": 1, "own": 2}


class Scene(Verbs):
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
            self.left = []
            self.events = {}
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
            pool.submit(driver.cuThreadExchangeStreamCaptureMode, CAPTURE_MODES["global"]).result(TIMEOUT)
            pool.submit(self._end_all, ["own"]).result(TIMEOUT)
            pool.shutdown()
        driver.cuThreadExchangeStreamCaptureMode(CAPTURE_MODES["relaxed"])
        with current(self.context):
            self._end_all([name for name in self.streams if name not in ("null", "legacy")])
            driver.cuThreadExchangeStreamCaptureMode(CAPTURE_MODES["global"])
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

    # ---- what they share -----------------------------------------------------------------------

    def _answer(self, work: Callable[..., Any], names: list[str]) -> int | str:
        answer = work(*names)
        return answer if isinstance(answer, str) else int(answer[0])

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
    context = new_context() if apart else device(0).context
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
