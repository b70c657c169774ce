"""Graphs that are made by hand, on the shim. Run by ``python -m simulators.hip_on_cuda``."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

from .calls import (
    Gate,
    KernelParams,
    Step,
    answer,
    begin,
    checked,
    edges,
    end,
    executable_of,
    handle,
    handles,
    kind,
    raw,
    read,
)

pytest_plugins = ["simulators.hip_on_cuda.fixtures"]


class MemsetParams(ctypes.Structure):
    _fields_ = (
        *(("dst", c_void_p), ("element", c_uint), ("height", c_size_t), ("pitch", c_size_t)),
        *(("value", c_uint), ("width", c_size_t)),
    )


def test_a_graph_is_made_by_hand(cells, graph, stream):
    none = c_size_t(0)
    params = MemsetParams(cells, 4, 1, 0, 7, 2)
    fill = handle("hipGraphAddMemsetNode", graph, None, none, byref(params))
    raw("hipGraphMemsetNodeGetParams", fill, byref(found := MemsetParams()))
    assert (found.dst, found.value, found.element, found.width, found.height) == (cells, 7, 4, 2, 1)
    empty = handle("hipGraphAddEmptyNode", graph, byref(c_void_p(fill)), c_size_t(1))
    inner = handle("hipGraphCreate", c_uint(0))
    params.dst, params.value = cells + 8, 9
    handle("hipGraphAddMemsetNode", inner, None, none, byref(params))
    child = handle("hipGraphAddChildGraphNode", graph, None, none, inner)
    raw("hipGraphDestroy", inner)
    raw("hipGraphAddDependencies", graph, byref(c_void_p(empty)), byref(c_void_p(child)), c_size_t(1))
    assert edges(graph) == {(fill, empty), (empty, child)}
    assert [kind(node) for node in (fill, empty, child)] == [2, 5, 4]
    held = c_void_p()
    raw("hipGraphChildGraphNodeGetGraph", child, byref(held))
    assert len(handles("hipGraphGetNodes", held.value)) == 1
    clone = handle("hipGraphClone", graph)
    executable = executable_of(clone)
    raw("hipGraphDestroy", clone)
    raw("hipGraphLaunch", executable, stream)
    raw("hipStreamSynchronize", stream)
    assert read(cells, 4) == [7, 7, 9, 9]
    raw("hipGraphExecDestroy", executable)


def test_a_node_is_taken_out(graph):
    nodes = [handle("hipGraphAddEmptyNode", graph, None, c_size_t(0)) for _ in range(2)]
    raw("hipGraphDestroyNode", nodes[0])
    assert handles("hipGraphGetNodes", graph) == nodes[1:]


def test_a_kernel_and_a_copy_are_added_by_hand(step, cells, graph, stream):
    step_args = Step(cells, 0, 6)
    grid, block = (c_uint * 3)(2, 3, 1), (c_uint * 3)(4, 1, 2)
    arguments = ctypes.cast(step_args.pointers, ctypes.POINTER(c_void_p))
    params = KernelParams(block, None, step, grid, arguments, 16)
    kernel = handle("hipGraphAddKernelNode", graph, None, c_size_t(0), byref(params))
    raw("hipGraphKernelNodeGetParams", kernel, byref(same := KernelParams()))
    assert ([*same.grid], [*same.block], same.shared) == ([2, 3, 1], [4, 1, 2], 16)
    copy = handle(
        *("hipGraphAddMemcpyNode1D", graph, byref(c_void_p(kernel)), c_size_t(1)),
        *(cells + 4, cells, c_size_t(4), c_int(3)),
    )
    found = (c_uint64 * 20)()
    raw("hipGraphMemcpyNodeGetParams", copy, found)
    assert (found[4], found[12], found[16]) == (cells, cells + 4, 4)
    executable = executable_of(graph)
    raw("hipGraphLaunch", executable, stream)
    raw("hipStreamSynchronize", stream)
    assert read(cells, 2) == [6, 6]
    raw("hipGraphExecDestroy", executable)


def test_host_functions_are_captured(stream):
    gate = Gate()
    gate.opened.set()
    begin(stream)
    raw("hipLaunchHostFunc", stream, gate.function, 77)
    graph = end(stream)
    (node,) = handles("hipGraphGetNodes", graph)
    assert kind(node) == 3
    executable = executable_of(graph)
    raw("hipGraphLaunch", executable, stream)
    raw("hipStreamSynchronize", stream)
    assert gate.reached.is_set()
    raw("hipGraphExecDestroy", executable)
    found = (c_void_p * 2)()
    code = answer("hipGraphHostNodeGetParams", node, found)
    raw("hipGraphDestroy", graph)
    checked(code, "hipGraphHostNodeGetParams")
    assert found[1] == 77


def test_a_graph_is_instantiated_with_parameters(cells, graph, stream):
    class Params(ctypes.Structure):
        _fields_ = (
            *(("culprit", c_void_p), ("flags", c_uint64), ("result", c_int)),
            *(("upload", c_void_p),),
        )

    params = Params(flags=1, result=-1)
    executable = c_void_p()
    raw("hipGraphInstantiateWithParams", byref(executable), graph, byref(params))
    assert (params.result, params.culprit) == (0, None)
    raw("hipGraphExecGetFlags", executable.value, byref(flags := c_uint64()))
    assert flags.value == 1
    raw("hipGraphExecDestroy", executable.value)
