"""Captures on the shim. Run by ``python -m simulators.hip_on_cuda``."""

from __future__ import annotations

import os
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

from hip import hip

from .calls import (
    GLOBAL,
    LIBRARY,
    RELAXED,
    KernelParams,
    answer,
    begin,
    checked,
    edges,
    end,
    executable_of,
    handle,
    handles,
    kind,
    launch,
    raw,
    read,
)

pytest_plugins = ["simulators.hip_on_cuda.fixtures"]


def forked(step, cells, stream, other, event, b):
    """Capture a fill, then a kernel on each of two streams, then a kernel: one diamond."""
    begin(stream)
    raw("hipMemsetAsync", cells, c_int(0), c_size_t(8), stream)
    raw("hipEventRecord", event, stream)
    raw("hipStreamWaitEvent", other, event, c_uint(0))
    launch(step, stream, cells, 1, b)
    launch(step, other, cells + 4, 1, 5)
    raw("hipEventRecord", event, other)
    raw("hipStreamWaitEvent", stream, event, c_uint(0))
    launch(step, stream, cells, 10, 1)
    raw("hipStreamIsCapturing", stream, byref(status := c_int(-1)))
    assert status.value == 1
    return end(stream)


def test_a_capture_that_forks_and_joins_is_replayed_and_updated(step, cells, stream, other, event):
    graph = forked(step, cells, stream, other, event, 3)
    fill, *kernels = sorted(handles("hipGraphGetNodes", graph), key=kind, reverse=True)
    assert [kind(fill), *map(kind, kernels)] == [2, 0, 0, 0]
    assert handles("hipGraphGetRootNodes", graph) == [fill]
    found = edges(graph)
    assert len(found) == 4
    (last,) = set(kernels) - {target for source, target in found if source == fill}
    middle = {target for source, target in found if source == fill}
    assert found == {(fill, node) for node in middle} | {(node, last) for node in middle}
    assert set(handles("hipGraphNodeGetDependencies", last)) == middle
    assert set(handles("hipGraphNodeGetDependentNodes", fill)) == middle

    raw("hipGraphKernelNodeGetParams", last, byref(params := KernelParams()))
    assert ([*params.grid], [*params.block], params.shared) == ([1, 1, 1], [1, 1, 1], 0)
    LIBRARY.hipKernelNameRef.restype = c_char_p
    assert LIBRARY.hipKernelNameRef(c_void_p(params.function)) == b"step"

    executable = executable_of(graph, 1 | 8)
    raw("hipGraphUpload", executable, stream)
    for _ in range(2):
        raw("hipMemsetAsync", cells, c_int(0xFF), c_size_t(8), stream)
        raw("hipGraphLaunch", executable, stream)
        raw("hipStreamSynchronize", stream)
        assert read(cells, 2) == [31, 5]

    changed = forked(step, cells, stream, other, event, 4)
    culprit, result = c_void_p(), c_int(-1)
    raw("hipGraphExecUpdate", executable, changed, byref(culprit), byref(result))
    assert result.value == 0
    raw("hipGraphLaunch", executable, stream)
    raw("hipStreamSynchronize", stream)
    assert read(cells, 2) == [41, 5]
    for made in (graph, changed):
        raw("hipGraphDestroy", made)
    raw("hipGraphExecDestroy", executable)


def test_an_update_that_does_not_fit_says_why(cells, stream):
    graphs = []
    for fills in (1, 2):
        begin(stream)
        for _ in range(fills):
            raw("hipMemsetAsync", cells, c_int(1), c_size_t(4), stream)
        graphs.append(end(stream))
    executable = executable_of(graphs[0])
    culprit, result = c_void_p(), c_int(-1)
    code = answer("hipGraphExecUpdate", executable, graphs[1], byref(culprit), byref(result))
    if code != 910:
        checked(code or -1, "hipGraphExecUpdate")
    assert result.value == int(hip.hipGraphExecUpdateResult.hipGraphExecUpdateErrorTopologyChanged)
    raw("hipGraphExecDestroy", executable)
    for graph in graphs:
        raw("hipGraphDestroy", graph)


def test_flags_that_amd_refuses_are_refused(cells, stream):
    begin(stream)
    raw("hipMemsetAsync", cells, c_int(1), c_size_t(4), stream)
    graph = end(stream)
    for flag in (2, 4, 16):
        assert answer("hipGraphInstantiateWithFlags", byref(c_void_p()), graph, c_uint64(flag)) == 1
    raw("hipGraphDestroy", graph)


def test_a_graph_is_dumped(cells, stream, tmp_path):
    begin(stream)
    raw("hipMemsetAsync", cells, c_int(1), c_size_t(4), stream)
    graph = end(stream)
    raw("hipGraphDebugDotPrint", graph, os.fsencode(tmp_path / "graph.dot"), c_uint(1))
    assert (tmp_path / "graph.dot").read_text(encoding="utf-8").startswith("digraph")
    raw("hipGraphDestroy", graph)


def test_a_forbidden_call_breaks_a_capture(cells, stream):
    begin(stream)
    assert answer("hipStreamSynchronize", stream) == 900
    raw("hipStreamIsCapturing", stream, byref(status := c_int(-1)))
    assert status.value == 2
    assert answer("hipStreamEndCapture", stream, byref(c_void_p())) == 901
    assert answer("hipStreamBeginCapture", 0, c_int(RELAXED)) == 900
    assert LIBRARY.hipGetLastError() == 900


def test_a_fork_that_is_not_joined_is_an_error(cells, stream, other, event):
    begin(stream)
    raw("hipEventRecord", event, stream)
    raw("hipStreamWaitEvent", other, event, c_uint(0))
    raw("hipMemsetAsync", cells, c_int(1), c_size_t(4), other)
    assert answer("hipStreamEndCapture", stream, byref(c_void_p())) == 904


def test_a_device_can_be_asked_for_and_a_mode_exchanged_in_a_capture(cells, stream):
    begin(stream)
    raw("hipStreamGetDevice", stream, byref(device := c_int(-1)))
    assert device.value == 0
    raw("hipThreadExchangeStreamCaptureMode", byref(mode := c_int(RELAXED)))
    assert mode.value == GLOBAL
    raw("hipThreadExchangeStreamCaptureMode", byref(mode))
    assert mode.value == RELAXED
    number, graph, count = c_uint64(), c_void_p(), c_size_t(9)
    raw("hipMemsetAsync", cells, c_int(1), c_size_t(4), stream)
    status, nodes = c_int(), c_void_p()
    raw("hipStreamGetCaptureInfo_v2", stream, *map(byref, (status, number, graph, nodes, count)))
    assert (status.value, count.value) == (1, 1)
    assert number.value
    assert end(stream) == graph.value
    raw("hipGraphDestroy", graph.value)


def test_dependencies_of_a_capture_are_replaced(cells, stream):
    begin(stream)
    raw("hipMemsetAsync", cells, c_int(1), c_size_t(4), stream)
    code = answer("hipStreamUpdateCaptureDependencies", stream, None, c_size_t(0), c_uint(1))
    raw("hipMemsetAsync", cells + 4, c_int(1), c_size_t(4), stream)
    answer("hipStreamEndCapture", stream, byref(graph := c_void_p()))
    if graph.value and code == 0:
        assert len(handles("hipGraphGetRootNodes", graph.value)) == 2
    answer("hipGraphDestroy", graph.value)
    checked(code, "hipStreamUpdateCaptureDependencies")


def test_memory_is_allocated_by_a_graph(stream):
    begin(stream, RELAXED)
    memory = handle("hipMallocAsync", c_size_t(64), stream)
    raw("hipMemsetAsync", memory, c_int(1), c_size_t(64), stream)
    raw("hipFreeAsync", memory, stream)
    graph = end(stream)
    assert sorted(map(kind, handles("hipGraphGetNodes", graph))) == [2, 10, 11]
    executable = executable_of(graph, 1)
    raw("hipGraphLaunch", executable, stream)
    raw("hipStreamSynchronize", stream)
    raw("hipGraphExecDestroy", executable)
    raw("hipGraphDestroy", graph)
    raw("hipDeviceGraphMemTrim", c_int(0))


def test_what_an_allocation_allocates(stream):
    begin(stream, RELAXED)
    memory = handle("hipMallocAsync", c_size_t(64), stream)
    raw("hipFreeAsync", memory, stream)
    graph = end(stream)
    by_kind = {kind(node): node for node in handles("hipGraphGetNodes", graph)}
    found = (c_uint64 * 15)()
    code = answer("hipGraphMemAllocNodeGetParams", by_kind[10], found)
    freed = c_void_p()
    code = code or answer("hipGraphMemFreeNodeGetParams", by_kind[11], byref(freed))
    raw("hipGraphDestroy", graph)
    checked(code, "hipGraphMemAllocNodeGetParams")
    assert found[13] >= 64
    assert found[14] == freed.value == memory
