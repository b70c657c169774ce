"""Loops and branches as conditional nodes, and the kernel that tests their flags.

The kernel is a text in PTX, which the driver compiles by itself: no compiler and no library of the device's
runtime is needed. It sets the condition of the node behind it: ahead of the node, and of a loop at the end
of its body as well, so that a node inside another one finds its condition set at every entry.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from ctypes import c_uint32, c_uint64
from functools import partial
from typing import Any
from weakref import finalize

from ...errors import AcceleratorGraphError
from .._shared import keep
from .._shared.driver import CAPTURE_STATUSES, ILLEGAL_STATE
from ..base import CaptureStatus
from ..driver import Handle
from .driver import Driver, Graph
from .node import Reader, copies_pageable
from .raw_calls import calls_of
from .update import handles_of, kinds_of

KERNEL = b"accelerator_graph_test_flag"
PTX = b"""
.version 6.3
.target sm_50
.address_size 64
.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);
.visible .entry accelerator_graph_test_flag (.param .u64 condition, .param .u64 flag, .param .u32 size,
    .param .u64 count, .param .u64 limit, .param .u32 entry)
{
  .reg .pred %entry, %is, %true, %below, %on;
  .reg .b32 %size, %first, %value;
  .reg .b64 %condition, %flag, %count, %limit, %runs, %found;
  ld.param.u64 %condition, [condition];
  ld.param.u64 %flag, [flag];
  ld.param.u32 %size, [size];
  ld.param.u64 %count, [count];
  ld.param.u64 %limit, [limit];
  ld.param.u32 %first, [entry];
  cvta.to.global.u64 %count, %count;
  mov.u64 %runs, 0;
  setp.ne.u32 %entry, %first, 0;
  @%entry bra counted;
  ld.global.u64 %runs, [%count];
  add.u64 %runs, %runs, 1;
counted:
  st.global.u64 [%count], %runs;
  setp.eq.u32 %is, %size, 1;
  @%is bra byte;
  setp.eq.u32 %is, %size, 2;
  @%is bra half;
  setp.eq.u32 %is, %size, 4;
  @%is bra word;
  ld.u64 %found, [%flag];
  bra.uni test;
byte:
  ld.u8 %found, [%flag];
  bra.uni test;
half:
  ld.u16 %found, [%flag];
  bra.uni test;
word:
  ld.u32 %found, [%flag];
test:
  setp.ne.u64 %true, %found, 0;
  setp.lt.u64 %below, %runs, %limit;
  and.pred %on, %true, %below;
  selp.u32 %value, 1, 0, %on;
  {
    .param .b64 handle;
    .param .b32 value;
    st.param.b64 [handle], %condition;
    st.param.b32 [value], %value;
    call.uni cudaGraphSetConditional, (handle, value);
  }
  ret;
}
\0"""
"""Counts the runs of a body, and sets the condition: the flag is not zero, and the limit is not reached."""

NO_LIMIT = 2**64 - 1
_BROKEN = CAPTURE_STATUSES.index(CaptureStatus.INVALIDATED)
_PERMITTED = frozenset(("kernel", "memset", "memcpy", "empty", "graph", "conditional"))
"""The nodes that the driver takes in a body. It finds others when the whole is instantiated."""

_COUNTERS = 4096
"""For how many loops memory is allocated at once. What is free longest is used again first, so that a run
that is under way when its graph goes disturbs nobody."""


class Tests:
    """The kernel in one context, and memory for counts. Both live as long as the process."""

    def __init__(self, driver: Driver, place: Any) -> None:
        relaxed = driver.relaxed(place).run
        module = relaxed(driver.call, "cuModuleLoadData", PTX)
        self.kernel: Any = driver.call("cuModuleGetFunction", module, KERNEL)
        self._allocate = partial(relaxed, driver.call, "cuMemAlloc", 8 * _COUNTERS)
        self.free: deque[int] = deque()

    def count(self) -> int:
        """Return the address of a count that is used by nobody else, until that is among the free ones."""
        if not self.free:
            memory = int(self._allocate())
            self.free.extend(range(memory, memory + 8 * _COUNTERS, 8))
        return self.free.popleft()


class Condition:
    """A conditional node, with what its test needs."""

    __slots__ = ("__weakref__", "_arguments", "_kernel", "bodies", "count", "kind", "root")

    root: tuple[int, Any]
    """The graph that is captured, in which this is, however deep, and the stream of its capture."""

    def __init__(
        self, tests: Tests, kind: str, handle: int, flag: int, nbytes: int, limit: int | None
    ) -> None:
        self.kind = kind
        self.count = tests.count()
        """The address of the number of runs."""
        finalize(self, tests.free.append, self.count).atexit = False
        most = NO_LIMIT if limit is None else min(limit, NO_LIMIT)
        of_count = c_uint64(self.count), c_uint64(most)
        self._kernel = tests.kernel
        self._arguments = c_uint64(handle), c_uint64(flag), c_uint32(nbytes), *of_count
        self.bodies: list[Any] = []

    def test(self, backend: Any, stream: Any, *, entry: bool) -> None:
        """Record the kernel."""
        backend.launch(stream, self._kernel, *self._arguments, c_uint32(entry), grid=1, block=1)


class Body(Handle):
    """A capture of a stream into a body of a condition."""

    __slots__ = ("condition", "graph")

    def __init__(self, stream: Any, place: Any, condition: Condition, graph: Any) -> None:
        super().__init__(stream, place)
        self.condition = condition
        self.graph = graph


def begin_condition(
    backend: Any, stream: Any, kind: str, bodies: int, flag: int, nbytes: int, limit: int | None
) -> Condition:
    """Record the test of a flag and a conditional node on a capturing stream."""
    driver: Driver = backend.driver
    api, place = driver.api, driver.place_of(stream)
    with driver.current(place):
        tests = driver.tests.get(int(place))
        if tests is None:
            tests = driver.tests[int(place)] = Tests(driver, place)
        graph = driver.position(stream).graph
        handle = driver.call("cuGraphConditionalHandleCreate", graph, place, 0, 0)
        found = Condition(tests, kind, int(handle), flag, nbytes, limit)
        found.root = driver.roots.get(int(graph)) or (int(graph), stream)
        found.test(backend, stream, entry=True)
        params = api.CUgraphNodeParams()
        params.type = api.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        params.conditional.handle, params.conditional.ctx = handle, place
        params.conditional.type = getattr(
            api.CUgraphConditionalNodeType, f"CU_GRAPH_COND_TYPE_{kind.upper()}"
        )
        params.conditional.size = bodies
        here = driver.position(stream)
        add = "cuGraphAddNode_v2" if hasattr(api, "cuGraphAddNode_v2") else "cuGraphAddNode"
        after = driver.array(here.nodes), [api.CUgraphEdgeData() for _ in here.nodes], len(here.nodes)
        answers: list[Any] = []
        try:
            keep(answers, getattr(api, add), here.graph, *after, params)
            node = driver.checked(add, answers[0])
            found.bodies = [driver.graph(int(body)) for body in params.conditional.phGraph_out]
            driver.bodies[int(node)] = found
            driver.follow(stream, [node], others=False)
        except BaseException:
            if answers and answers[0][0] is driver.success:  # a node that nothing joins breaks the capture
                driver.follow(stream, [answers[0][1]], others=False)
            raise
    return found


def begin_body(backend: Any, condition: Condition, number: int, stream: Any) -> Body:
    """Begin to capture a stream into a body.

    The mode is relaxed: a call that the thread may not make then breaks the capture around the body alone,
    which can be abandoned without harm.
    """
    driver: Driver = backend.driver
    body = Body(stream, driver.place_of(stream), condition, condition.bodies[number])
    what = stream, body.graph, None, None, 0, driver.capture_modes["relaxed"]
    driver.roots[int(body.graph)] = condition.root
    try:
        driver.within(body.place, driver.call, "cuStreamBeginCaptureToGraph", *what)
    except BaseException:
        abandon_body(backend, body)
        raise
    return body


def end_body(backend: Any, body: Body) -> Graph:
    """Record the test of a loop at the end of its body, and end the capture."""
    driver: Driver = backend.driver
    try:
        if body.condition.kind == "while":
            body.condition.test(backend, body.handle, entry=False)
    except BaseException:
        abandon_body(backend, body)
        raise
    driver.checked(driver.names.end_capture, _end(driver, body))
    return Graph(body.graph, body.place)


def misplaced(driver: Driver, body: Graph) -> tuple[int, str] | None:
    """Return the number of the first node that the driver does not take in a body, and what it is."""
    calls, read = calls_of(driver), Reader(driver)
    with driver.relaxed(body.place):
        handles = handles_of(driver, calls, int(body.handle))
        kinds, numbers = kinds_of(driver, calls, handles), memoryview(handles).cast("Q")
        for number, (kind, node) in enumerate(zip(kinds, numbers, strict=True)):
            if kind not in _PERMITTED:
                return number, f"a node of the kind {kind!r}"
            if kind == "memcpy" and copies_pageable(read, node):
                return number, "a copy to the device from memory that is not pinned"
    return None


def abandon_body(backend: Any, body: Body) -> None:
    """End the capture of a body that may be over already. The body itself belongs to its node."""
    with suppress(AcceleratorGraphError):
        _end(backend.driver, body)


def _end(driver: Driver, body: Body) -> tuple[Any, ...]:
    """End the capture of a body, unless a call that was interrupted has done so; return the driver's answer.

    If a call has broken the capture, the driver destroys the body, and ends the process when the graph that
    has it is destroyed: that graph is left alone. If the capture of that is broken too, its end destroys it,
    so the body is not ended: its stream goes on capturing, and its context can't be waited for any more.
    """
    graph, stream = body.condition.root
    answers = body.destroyed = body.destroyed or []
    if not answers:
        if driver.ask_status(body.handle) == driver.ask_status(stream) == _BROKEN:
            return (driver.api.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,)
        driver.within(body.place, driver.keep, answers, driver.names.end_capture, body.handle)
    answer: tuple[Any, ...] = answers[-1]
    if answer[0] is not driver.success and int(answer[0]) != ILLEGAL_STATE:  # 401: it had not begun
        driver.broken.add(graph)
    driver.roots.pop(int(body.graph), None)
    return answer
